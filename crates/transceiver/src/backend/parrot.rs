//! `parrot`: says back what it heard in the turn, from the first to the last voiced sample and [`MARGIN`] on either side.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use voice::{AgentAudio, BackendInput, BackendOutput, ResponseId};

use super::{Backend, Wanted};

/// Kept around the voiced part, in 48 kHz samples: 40 ms, so that soft onsets and ends are heard.
const MARGIN: u64 = 48 * 40;

/// Media times closer than this are one: 1 ms.
const ROUNDING: u64 = 48;

/// Audio given at once: 100 ms, as models do.
const CHUNK_MS: usize = 100;

/// Most audio kept of a turn, in seconds: 60 s is the longest turn by default and 10 s of padding and silence around it;
/// at 16 kHz 2.2 MB. What comes beyond is not said back.
const MAX_SECONDS: usize = 70;

/// The backend.
#[derive(Debug)]
pub(crate) struct Parrot {
    /// Samples per second of all PCM here.
    rate: usize,
    /// What is heard of the running turn.
    hearing: Speech,
    /// What the last committed turn was.
    heard: Arc<Vec<i16>>,
    outputs: VecDeque<BackendOutput>,
    saying: Option<Saying>,
    /// Samples beyond [`MAX_SECONDS`].
    dropped: u64,
}

/// A response being said.
#[derive(Debug)]
struct Saying {
    response: ResponseId,
    /// Its own hold on the audio: the user may finish another turn meanwhile.
    pcm: Arc<Vec<i16>>,
    at: usize,
}

/// Audio and where voice lies in it.
#[derive(Debug, Default)]
struct Speech {
    pcm: Vec<i16>,
    /// Where audio without a gap begins: its 48 kHz media time, and its place in `pcm`. A sender that is silent for more
    /// than a second moves the clock without samples.
    stretches: Vec<(u64, usize)>,
    /// First voiced sample and one past the last, 48 kHz media time.
    voiced: Option<(u64, u64)>,
}

impl Parrot {
    /// `rate`: of the PCM heard and said.
    pub(crate) fn new(rate: u32) -> Self {
        Self {
            rate: usize::try_from(rate).unwrap_or(16_000),
            hearing: Speech::default(),
            heard: Arc::default(),
            outputs: VecDeque::from([BackendOutput::Ready]),
            saying: None,
            dropped: 0,
        }
    }

    fn hear(&mut self, pcm: &[i16], media_time: u64) {
        let room = (self.rate * MAX_SECONDS).saturating_sub(self.hearing.pcm.len());
        let taken = pcm.len().min(room);
        if taken > 0 && self.hearing.end(self.rate).is_none_or(|end| media_time > end + ROUNDING) {
            self.hearing.stretches.push((media_time, self.hearing.pcm.len()));
        }
        self.hearing.pcm.extend_from_slice(&pcm[..taken]);
        self.dropped += u64::try_from(pcm.len() - taken).unwrap_or(0);
    }

    fn begin(&mut self, response: ResponseId) {
        self.outputs.push_back(BackendOutput::ResponseStarted { response });
        self.saying = Some(Saying { response, pcm: Arc::clone(&self.heard), at: 0 });
    }

    fn say(&mut self) -> Option<BackendOutput> {
        let Saying { response, pcm, at } = self.saying.as_mut()?;
        let (response, begin) = (*response, *at);
        let end = pcm.len().min(begin + self.rate * CHUNK_MS / 1000);
        if begin == end {
            self.saying = None;
            return Some(BackendOutput::ResponseDone { response });
        }
        *at = end;
        Some(BackendOutput::Audio { response, audio: AgentAudio::Pcm(pcm[begin..end].to_vec()) })
    }
}

impl Backend for Parrot {
    fn handle(&mut self, input: BackendInput) {
        match input {
            BackendInput::Audio { pcm, media_time } => self.hear(&pcm, media_time),
            // What was not committed is forgotten: the client cleared it.
            BackendInput::SpeechStarted { .. } => self.hearing = Speech::default(),
            BackendInput::SpeechStopped { from, to, .. } => self.hearing.voiced = Some((from, to)),
            BackendInput::Commit { .. } => {
                self.heard = Arc::new(std::mem::take(&mut self.hearing).voiced_part(self.rate));
            }
            BackendInput::CreateResponse { response, .. } => self.begin(response),
            BackendInput::Cancel { response } => {
                if self.saying.as_ref().is_some_and(|saying| saying.response == response) {
                    self.saying = None;
                }
                self.outputs.retain(|output| *output != BackendOutput::ResponseStarted { response });
            }
            // It says what it heard, and nothing else.
            BackendInput::Settings(_)
            | BackendInput::Connected
            | BackendInput::Played { .. }
            | BackendInput::Correction { .. }
            | BackendInput::Key { .. }
            | BackendInput::Item(_)
            | BackendInput::ItemDeleted { .. }
            | BackendInput::ItemTruncated { .. } => {}
            BackendInput::Close => {
                self.saying = None;
                self.outputs.clear();
            }
        }
    }

    fn poll(&mut self, _: Instant, wanted: Wanted) -> Option<BackendOutput> {
        let control = self.outputs.pop_front();
        if wanted == Wanted::Control { control } else { control.or_else(|| self.say()) }
    }
}

impl Speech {
    /// 48 kHz media time behind the last sample.
    fn end(&self, rate: usize) -> Option<u64> {
        let (begin, at) = *self.stretches.last()?;
        let samples = u64::try_from(self.pcm.len() - at).ok()?;
        Some(begin + samples * 48_000 / u64::try_from(rate).ok()?.max(1))
    }

    /// Where a media time lies in `pcm`; one in a gap, where the gap is.
    fn index(&self, time: u64, rate: usize) -> usize {
        let next = self.stretches.partition_point(|(begin, _)| *begin <= time);
        let until = self.stretches.get(next).map_or(self.pcm.len(), |(_, at)| *at);
        let Some((begin, at)) = next.checked_sub(1).and_then(|last| self.stretches.get(last)) else { return 0 };
        let samples = (time - begin).saturating_mul(u64::try_from(rate).unwrap_or(0)) / 48_000;
        usize::try_from(samples).map_or(until, |samples| at.saturating_add(samples).min(until))
    }

    /// The voiced part with its margins; everything when nobody told where voice lies.
    fn voiced_part(mut self, rate: usize) -> Vec<i16> {
        let Some((from, to)) = self.voiced else {
            self.pcm.shrink_to_fit();
            return self.pcm;
        };
        let (from, to) = (self.index(from.saturating_sub(MARGIN), rate), self.index(to.saturating_add(MARGIN), rate));
        self.pcm.truncate(to.max(from));
        self.pcm.drain(..from);
        // It is kept until the next turn is committed: what grew by doubling, and the silence around it, are not.
        self.pcm.shrink_to_fit();
        self.pcm
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use voice::Request;
    use voice::TurnId;

    const TURN: TurnId = TurnId(1);

    /// A sample that says which it is.
    fn ramp(range: std::ops::Range<u16>) -> Vec<i16> {
        range.map(|n| i16::try_from(n).unwrap()).collect()
    }

    fn said(parrot: &mut Parrot) -> Vec<i16> {
        let mut said = Vec::new();
        while let Some(output) = parrot.poll(Instant::now(), Wanted::All) {
            if let BackendOutput::Audio { audio: AgentAudio::Pcm(pcm), .. } = output {
                assert!(pcm.len() <= 1600);
                said.extend(pcm);
            }
        }
        said
    }

    fn heard(parrot: &mut Parrot, from: u64, to: u64) {
        parrot.handle(BackendInput::SpeechStarted { turn: TURN });
        parrot.handle(BackendInput::Audio { pcm: ramp(0..8000), media_time: 96_000 });
        parrot.handle(BackendInput::Audio { pcm: ramp(8000..16_000), media_time: 96_000 + 24_000 });
        parrot.handle(BackendInput::SpeechStopped { turn: TURN, from, to });
        parrot.handle(BackendInput::Commit { turn: TURN });
    }

    #[test]
    fn of_a_committed_turn_nothing_is_kept_but_what_is_said() {
        let mut parrot = Parrot::new(16_000);
        heard(&mut parrot, 96_000 + 9600, 96_000 + 38_400);
        assert_eq!(parrot.heard.capacity(), 9600 + 2 * 640);
        assert_eq!(parrot.hearing.pcm.capacity(), 0);
    }

    #[test]
    fn the_voiced_part_is_said_with_forty_milliseconds_around_it() {
        let mut parrot = Parrot::new(16_000);
        heard(&mut parrot, 96_000 + 9600, 96_000 + 38_400);
        parrot.handle(BackendInput::CreateResponse { response: ResponseId(1), request: Request::default() });
        // 9600 and 38400 samples at 48 kHz are 3200 and 12800 at 16 kHz; 40 ms are 640.
        assert_eq!(said(&mut parrot), ramp(3200 - 640..12_800 + 640));
    }

    #[test]
    fn margins_end_where_the_audio_ends() {
        let mut parrot = Parrot::new(16_000);
        heard(&mut parrot, 96_000, 96_000 + 48_000);
        parrot.handle(BackendInput::CreateResponse { response: ResponseId(1), request: Request::default() });
        assert_eq!(said(&mut parrot), ramp(0..16_000));
    }

    #[test]
    fn a_turn_is_ready_started_said_and_done_in_this_order() {
        let mut parrot = Parrot::new(16_000);
        heard(&mut parrot, 96_000, 96_000 + 4800);
        let response = ResponseId(7);
        parrot.handle(BackendInput::CreateResponse { response, request: Request::default() });
        let outputs: Vec<_> = std::iter::from_fn(|| parrot.poll(Instant::now(), Wanted::All)).collect();
        assert_eq!(outputs[..2], [BackendOutput::Ready, BackendOutput::ResponseStarted { response }]);
        assert_eq!(outputs[2..4].iter().filter(|output| matches!(output, BackendOutput::Audio { .. })).count(), 2);
        assert_eq!(outputs[4..], [BackendOutput::ResponseDone { response }]);
    }

    #[test]
    fn nothing_follows_a_cancel() {
        let mut parrot = Parrot::new(16_000);
        heard(&mut parrot, 96_000, 96_000 + 38_400);
        assert_eq!(parrot.poll(Instant::now(), Wanted::All), Some(BackendOutput::Ready));
        let response = ResponseId(1);
        parrot.handle(BackendInput::CreateResponse { response, request: Request::default() });
        parrot.poll(Instant::now(), Wanted::All);
        parrot.poll(Instant::now(), Wanted::All);
        parrot.handle(BackendInput::Cancel { response });
        assert_eq!(parrot.poll(Instant::now(), Wanted::All), None);
    }

    #[test]
    fn what_was_not_committed_is_not_part_of_the_next_turn() {
        let mut parrot = Parrot::new(16_000);
        parrot.handle(BackendInput::SpeechStarted { turn: TURN });
        parrot.handle(BackendInput::Audio { pcm: vec![9; 4800], media_time: 0 });
        parrot.handle(BackendInput::SpeechStarted { turn: TurnId(2) });
        parrot.handle(BackendInput::Audio { pcm: vec![5; 4800], media_time: 480_000 });
        parrot.handle(BackendInput::SpeechStopped { turn: TurnId(2), from: 480_000, to: 494_400 });
        parrot.handle(BackendInput::Commit { turn: TurnId(2) });
        parrot.handle(BackendInput::CreateResponse { response: ResponseId(1), request: Request::default() });
        assert_eq!(said(&mut parrot), vec![5; 4800]);
    }

    #[test]
    fn a_turn_that_ends_during_a_reply_is_said_after_it_and_not_in_it() {
        let mut parrot = Parrot::new(16_000);
        heard(&mut parrot, 96_000, 96_000 + 38_400);
        parrot.handle(BackendInput::CreateResponse { response: ResponseId(1), request: Request::default() });
        for _ in 0..3 {
            parrot.poll(Instant::now(), Wanted::All);
        }
        parrot.handle(BackendInput::SpeechStarted { turn: TurnId(2) });
        parrot.handle(BackendInput::Audio { pcm: vec![-1; 4800], media_time: 480_000 });
        parrot.handle(BackendInput::SpeechStopped { turn: TurnId(2), from: 480_000, to: 494_400 });
        parrot.handle(BackendInput::Commit { turn: TurnId(2) });
        assert!(said(&mut parrot).iter().all(|sample| *sample >= 0));
        parrot.handle(BackendInput::CreateResponse { response: ResponseId(2), request: Request::default() });
        assert_eq!(said(&mut parrot), vec![-1; 4800]);
    }

    #[test]
    fn an_answer_to_nothing_is_done_at_once() {
        let mut parrot = Parrot::new(16_000);
        parrot.handle(BackendInput::CreateResponse { response: ResponseId(1), request: Request::default() });
        assert!(said(&mut parrot).is_empty());
        assert!(parrot.saying.is_none());
    }

    #[test]
    fn a_silence_without_samples_moves_no_voice() {
        let mut parrot = Parrot::new(16_000);
        parrot.handle(BackendInput::SpeechStarted { turn: TURN });
        parrot.handle(BackendInput::Audio { pcm: ramp(0..8000), media_time: 0 });
        // 20 s later.
        parrot.handle(BackendInput::Audio { pcm: ramp(8000..16_000), media_time: 24_000 + 960_000 });
        let voiced = (984_000 + 4800, 984_000 + 14_400);
        parrot.handle(BackendInput::SpeechStopped { turn: TURN, from: voiced.0, to: voiced.1 });
        parrot.handle(BackendInput::Commit { turn: TURN });
        parrot.handle(BackendInput::CreateResponse { response: ResponseId(1), request: Request::default() });
        assert_eq!(said(&mut parrot), ramp(9600 - 640..12_800 + 640));
    }

    #[test]
    fn voice_on_both_sides_of_a_silence_without_samples_is_said() {
        let mut parrot = Parrot::new(16_000);
        parrot.handle(BackendInput::Audio { pcm: ramp(0..8000), media_time: 0 });
        parrot.handle(BackendInput::Audio { pcm: ramp(8000..16_000), media_time: 24_000 + 960_000 });
        parrot.handle(BackendInput::SpeechStopped { turn: TURN, from: 9600, to: 984_000 + 14_400 });
        parrot.handle(BackendInput::Commit { turn: TURN });
        parrot.handle(BackendInput::CreateResponse { response: ResponseId(1), request: Request::default() });
        assert_eq!(said(&mut parrot), ramp(3200 - 640..12_800 + 640));
    }

    #[test]
    fn memory_is_bounded() {
        let mut parrot = Parrot::new(16_000);
        for second in 0..100 {
            parrot.handle(BackendInput::Audio { pcm: vec![1; 16_000], media_time: second * 48_000 });
        }
        assert_eq!(parrot.hearing.pcm.len(), 70 * 16_000);
        assert_eq!(parrot.dropped, 30 * 16_000);
    }
}
