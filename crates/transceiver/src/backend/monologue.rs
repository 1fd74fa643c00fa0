//! `monologue`: speaks all the time, in real time, and listens to nobody. For benches: a call costs what it costs while both
//! sides speak.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use voice::{AgentAudio, BackendInput, BackendOutput, ResponseId};

use super::{Backend, Wanted};

/// Audio given at once, as models do.
const CHUNK: Duration = Duration::from_millis(100);

/// Chunks given ahead of their time: a model's own jitter.
const AHEAD: u32 = 2;

/// What is said, over and over: 4 s, shared by all calls of a process; 384 KiB at 48 kHz.
const TEXT_MS: usize = 4000;

/// The backend.
#[derive(Debug)]
pub(crate) struct Monologue {
    text: &'static [i16],
    /// Where in the text it is.
    at: usize,
    /// Samples of [`CHUNK`].
    chunk: usize,
    outputs: VecDeque<BackendOutput>,
    /// The response that never ends by itself, and when its next chunk is due; none until it was asked for the first.
    saying: Option<(ResponseId, Option<Instant>)>,
}

impl Monologue {
    /// `rate`: of the PCM said. `seed`: where in the text it begins, so that calls do not say the same at the same time.
    pub(crate) fn new(rate: u32, seed: u64) -> Self {
        let text = text(rate);
        let chunk = usize::try_from(rate / 10).unwrap_or(1600);
        let at = usize::try_from(seed % (text.len() / chunk) as u64).unwrap_or(0) * chunk;
        Self { text, at, chunk, outputs: VecDeque::from([BackendOutput::Ready]), saying: None }
    }
}

impl Backend for Monologue {
    fn handle(&mut self, input: BackendInput) {
        match input {
            BackendInput::Connected => self.outputs.push_back(BackendOutput::Initiate),
            BackendInput::CreateResponse { response, .. } => {
                self.outputs.push_back(BackendOutput::ResponseStarted { response });
                self.saying = Some((response, None));
            }
            BackendInput::Cancel { .. } | BackendInput::Close => {
                self.outputs.clear();
                self.saying = None;
            }
            BackendInput::Settings(_)
            | BackendInput::Audio { .. }
            | BackendInput::SpeechStarted { .. }
            | BackendInput::SpeechStopped { .. }
            | BackendInput::Commit { .. }
            | BackendInput::Key { .. }
            | BackendInput::Played { .. }
            | BackendInput::Item(_)
            | BackendInput::ItemDeleted { .. }
            | BackendInput::ItemTruncated { .. }
            | BackendInput::Correction { .. } => {}
        }
    }

    fn poll(&mut self, now: Instant, wanted: Wanted) -> Option<BackendOutput> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if wanted == Wanted::Control {
            return None;
        }
        let (response, next) = self.saying.as_mut()?;
        let due = next.unwrap_or(now);
        if due > now + CHUNK * AHEAD {
            return None;
        }
        *next = Some(due + CHUNK);
        let pcm = self.text[self.at..self.at + self.chunk].to_vec();
        self.at = (self.at + self.chunk) % self.text.len();
        Some(BackendOutput::Audio { response: *response, audio: AgentAudio::Pcm(pcm) })
    }

    fn poll_timeout(&self, wanted: Wanted) -> Option<Instant> {
        let (_, due) = self.saying.filter(|_| wanted == Wanted::All)?;
        due.and_then(|due| due.checked_sub(CHUNK * AHEAD))
    }
}

fn text(rate: u32) -> &'static [i16] {
    static TEXTS: [OnceLock<Vec<i16>>; 3] = [const { OnceLock::new() }; 3];
    let place = match rate {
        24_000 => 1,
        48_000 => 2,
        _ => 0,
    };
    TEXTS[place].get_or_init(|| voice::babble::speech(rate, TEXT_MS, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use voice::Request;

    /// Samples given when asked at `now`.
    fn given(monologue: &mut Monologue, now: Instant) -> usize {
        let outputs = std::iter::from_fn(|| monologue.poll(now, Wanted::All));
        outputs
            .map(
                |output| {
                    if let BackendOutput::Audio { audio: AgentAudio::Pcm(pcm), .. } = output { pcm.len() } else { 0 }
                },
            )
            .sum()
    }

    #[test]
    fn it_speaks_in_real_time_and_a_little_ahead_until_it_is_cancelled() {
        let begin = Instant::now();
        let mut monologue = Monologue::new(24_000, 123_456);
        assert_eq!(given(&mut monologue, begin), 0);
        assert_eq!(monologue.poll_timeout(Wanted::All), None);
        monologue.handle(BackendInput::CreateResponse { response: ResponseId(1), request: Request::default() });
        assert_eq!(given(&mut monologue, begin), 3 * 2400);
        let mut total = 0;
        for _ in 0..100 {
            let due = monologue.poll_timeout(Wanted::All).unwrap();
            total += given(&mut monologue, due);
        }
        assert_eq!(monologue.poll_timeout(Wanted::All), Some(begin + CHUNK * 101));
        assert_eq!(total, 100 * 2400);
        monologue.handle(BackendInput::Cancel { response: ResponseId(1) });
        assert_eq!(given(&mut monologue, begin + CHUNK * 1000), 0);
    }
}
