//! The sound of one reply on its way into events, and where a client is that plays them.
//!
//! Pieces of 100 ms leave as soon as they are there; less leaves when the client is about to have nothing to play, and at the end. A
//! client has at most [`AHEAD`] more than it has played: that is 100 pieces, of which the way to the client holds 256 messages, and
//! 640 KB of base64, of which a slow reader may leave 4 MiB. What is beyond waits here.

use std::time::{Duration, Instant};

use super::SampleFormat;
use crate::backend::AgentAudio;
use crate::intake::{Intake, Next, Taken};
use crate::opus::Decoder;
use crate::rate::Resampler;

/// The most a client has of what it has not played.
pub(super) const AHEAD: Duration = Duration::from_secs(10);

/// A client that has no more than this left is given what there is.
const DRY: Duration = Duration::from_millis(200);

/// Of a whole piece.
const PIECE_MS: u32 = 100;

/// Packets of a backend's are decoded at this rate.
const DECODED: u32 = 24_000;

/// One reply's sound.
#[derive(Debug)]
pub(super) struct Outlet {
    intake: Intake,
    complete: bool,
    /// Less than a frame more than a piece, at `rate`.
    piece: Vec<i16>,
    rate: u32,
    frame: Vec<i16>,
    decoder: Option<Box<Decoder>>,
    /// To the format's rate.
    resampler: Option<(u32, Resampler)>,
    /// 48 kHz samples the backend gave.
    pub(super) generated: u64,
    /// 48 kHz samples that left.
    pub(super) sent: u64,
}

impl Outlet {
    pub(super) fn new() -> Self {
        Self {
            intake: Intake::new(),
            complete: false,
            piece: Vec::new(),
            rate: DECODED,
            frame: Vec::new(),
            decoder: None,
            resampler: None,
            generated: 0,
            sent: 0,
        }
    }

    /// More of it, as far as no more than `room` 48 kHz samples wait then. `native`: the rate of samples that do not say theirs.
    pub(super) fn push(&mut self, audio: AgentAudio, native: u32, room: u64) -> Taken {
        let taken = self.intake.push(audio, native, room, &mut |_| {});
        self.generated += taken.samples;
        taken
    }

    /// Nothing more comes.
    pub(super) fn complete(&mut self) {
        if !std::mem::replace(&mut self.complete, true) {
            self.generated += self.intake.complete(&mut |_| {});
        }
    }

    /// 48 kHz samples that wait.
    pub(super) fn waiting(&self) -> u64 {
        self.intake.waiting()
    }

    /// All of it left.
    pub(super) fn is_over(&self) -> bool {
        self.complete && self.intake.ready(true).is_none() && self.piece.is_empty() && self.resampler.is_none()
    }

    /// The next piece in that format, if it is to leave by now. `left`: what the client has not played.
    pub(super) fn next(&mut self, format: SampleFormat, left: Duration) -> Option<Vec<u8>> {
        if left > AHEAD {
            return None;
        }
        self.fill();
        let whole = self.piece.len() >= (self.rate / 1000 * PIECE_MS) as usize;
        let last = self.complete && self.intake.ready(true).is_none();
        if !(whole || last || left <= DRY) || (self.piece.is_empty() && !(last && self.resampler.is_some())) {
            return None;
        }
        let pcm = self.convert(format.rate(), last);
        self.piece.clear();
        let sent = self.sent + pcm.len() as u64 * u64::from(48_000 / format.rate());
        self.sent = if last { self.generated } else { sent.min(self.generated) };
        (!pcm.is_empty()).then(|| format.encode(&pcm))
    }

    /// How long the client must still play until what waits leaves. `None`: nothing waits.
    pub(super) fn wanted(&self) -> Option<Duration> {
        if self.is_over() {
            return None;
        }
        match self.intake.ready(self.complete) {
            Some(_) => Some(AHEAD),
            None if self.complete => Some(AHEAD),
            None if !self.piece.is_empty() => Some(DRY),
            None => None,
        }
    }

    /// Puts frames into the piece until it is whole.
    fn fill(&mut self) {
        while self.piece.len() < (self.rate / 1000 * PIECE_MS) as usize && self.intake.ready(self.complete).is_some() {
            match self.intake.next(&mut self.frame) {
                Some(Next::Frame { padding }) => {
                    self.rate = self.intake.rate().unwrap_or(DECODED);
                    let length = self.frame.len() - padding;
                    self.piece.extend_from_slice(&self.frame[..length]);
                }
                Some(Next::Packet { payload, samples }) => self.decode(&payload, samples),
                None => return,
            }
        }
    }

    /// What cannot be decoded is silence.
    fn decode(&mut self, packet: &[u8], samples: u32) {
        self.rate = DECODED;
        let length = (samples / (48_000 / DECODED)) as usize;
        let at = self.piece.len();
        self.piece.resize(at + length, 0);
        if self.decoder.is_none() {
            // Only libopus' allocation can fail.
            self.decoder = Decoder::new(DECODED).ok().map(Box::new);
        }
        let out = &mut self.piece[at..];
        if let Some(decoder) = &mut self.decoder
            && decoder.decode(packet, out).is_err()
        {
            out.fill(0);
        }
    }

    fn convert(&mut self, to: u32, last: bool) -> Vec<i16> {
        if to == self.rate {
            self.resampler = None;
            return self.piece.clone();
        }
        let mut out = Vec::with_capacity(self.piece.len() * to as usize / self.rate as usize + 32);
        let mut resampler = match self.resampler.take() {
            Some((rate, resampler)) if rate == to => resampler,
            _ => Resampler::new(self.rate, to),
        };
        resampler.process(&self.piece, &mut out);
        if last {
            resampler.finish(&mut out);
        } else {
            self.resampler = Some((to, resampler));
        }
        out
    }
}

/// How far a client has played that plays without a break, by the wall clock and by that of its own audio. Whichever is ahead counts: a client that
/// appends only what its user says lets the latter stand, one that appends a file lets it run.
#[derive(Debug, Default)]
pub(super) struct Playing {
    until: Option<(Instant, u64)>,
}

impl Playing {
    /// What left by now is played then.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until.map(|(until, _)| until)
    }

    /// What the client has not played by the wall clock.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |(until, _)| until.saturating_duration_since(now))
    }

    /// The client plays. `media`: the time of its audio.
    pub(super) fn is_on(&self, now: Instant, media: u64) -> bool {
        self.until.is_some_and(|(until, media_until)| now < until && media < media_until)
    }

    /// So many more 48 kHz samples left.
    pub(super) fn sent(&mut self, now: Instant, media: u64, samples: u64) {
        let (until, media_until) = self.until.unwrap_or((now, media));
        self.until = Some((until.max(now) + duration(samples), media_until.max(media) + samples));
    }

    /// The client dropped what it has not played.
    pub(super) fn cut(&mut self) {
        self.until = None;
    }
}

/// Of 48 kHz samples.
pub(super) fn duration(samples: u64) -> Duration {
    Duration::from_micros(samples.saturating_mul(125) / 6)
}

/// 48 kHz samples of a time.
pub(super) fn samples(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).map_or(u64::MAX / 2, |micros| micros.saturating_mul(6) / 125)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::g711::Law;

    const NATIVE: u32 = 16_000;
    const ROOM: u64 = 60 * 48_000;

    /// All that leaves, with the client's clock running on what it got.
    fn drain(outlet: &mut Outlet, format: SampleFormat) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| outlet.next(format, Duration::ZERO)).collect()
    }

    #[test]
    fn a_reply_is_as_long_in_events_as_it_was_given_in_pieces_of_100_ms() {
        for (format, per_ms) in [(SampleFormat::Pcm16, 48), (SampleFormat::G711(Law::Mu), 8)] {
            let mut outlet = Outlet::new();
            let said = crate::babble::speech(NATIVE, 1234, 3);
            outlet.push(AgentAudio::Pcm(said.clone()), NATIVE, ROOM);
            outlet.complete();
            let pieces = drain(&mut outlet, format);
            assert!(outlet.is_over());
            assert_eq!(outlet.wanted(), None);
            assert!(pieces.iter().all(|piece| piece.len() <= 101 * per_ms), "{format:?}");
            assert_eq!(pieces.len(), 13);
            let total: usize = pieces.iter().map(Vec::len).sum();
            assert!(total.abs_diff(1234 * per_ms) <= 2, "{total}");
            assert!((outlet.sent, outlet.generated) == (1234 * 48, 1234 * 48), "{} {}", outlet.sent, outlet.generated);
        }
    }

    #[test]
    fn samples_of_the_formats_own_rate_pass_as_they_are() {
        let mut outlet = Outlet::new();
        let data: Vec<u8> = (0..9600_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
        // The pieces of a stream end where they like.
        for piece in data.chunks(999) {
            outlet.push(AgentAudio::Bytes { rate: 24_000, data: piece.to_vec() }, NATIVE, ROOM);
        }
        outlet.complete();
        assert_eq!(drain(&mut outlet, SampleFormat::Pcm16).concat(), data);
    }

    #[test]
    fn opus_is_decoded() {
        let mut outlet = Outlet::new();
        outlet.push(AgentAudio::Opus(vec![vec![0xf8, 0xff, 0xfe]; 10]), NATIVE, ROOM);
        outlet.complete();
        assert_eq!(drain(&mut outlet, SampleFormat::Pcm16).concat(), [0; 9600]);
    }

    #[test]
    fn little_leaves_at_once_where_the_client_has_nothing_and_waits_where_it_has() {
        let mut outlet = Outlet::new();
        let twenty = |outlet: &mut Outlet| outlet.push(AgentAudio::Pcm(vec![5; 320]), NATIVE, ROOM);
        twenty(&mut outlet);
        assert!(outlet.next(SampleFormat::Pcm16, Duration::from_millis(201)).is_none());
        assert_eq!(outlet.wanted(), Some(DRY));
        assert!(outlet.next(SampleFormat::Pcm16, DRY).is_some());
        for _ in 0..5 {
            assert!(outlet.next(SampleFormat::Pcm16, Duration::from_secs(1)).is_none());
            twenty(&mut outlet);
        }
        assert_eq!(outlet.next(SampleFormat::Pcm16, Duration::from_secs(1)).unwrap().len(), 4800);
    }

    #[test]
    fn no_more_than_ten_seconds_are_ahead_of_the_client() {
        let (mut outlet, now, mut playing) = (Outlet::new(), Instant::now(), Playing::default());
        outlet.push(AgentAudio::Pcm(vec![5; 16_000 * 30]), NATIVE, ROOM);
        let mut given = 0;
        while let Some(piece) = outlet.next(SampleFormat::Pcm16, playing.left(now)) {
            given += piece.len();
            playing.sent(now, 0, piece.len() as u64);
        }
        assert_eq!(given / 48_000, 10);
        assert_eq!(outlet.wanted(), Some(AHEAD));
        assert!(outlet.next(SampleFormat::Pcm16, playing.left(now + Duration::from_millis(200))).is_some());
    }

    #[test]
    fn another_format_in_the_middle_holds_from_the_next_piece_on() {
        let mut outlet = Outlet::new();
        outlet.push(AgentAudio::Pcm(crate::babble::speech(NATIVE, 300, 3)), NATIVE, ROOM);
        assert!(outlet.next(SampleFormat::Pcm16, Duration::ZERO).unwrap().len() > 4700);
        assert!(outlet.next(SampleFormat::G711(Law::A), Duration::ZERO).unwrap().len() < 810);
    }

    #[test]
    fn a_client_has_played_what_either_of_its_clocks_says() {
        let (now, mut playing) = (Instant::now(), Playing::default());
        assert!(!playing.is_on(now, 0));
        playing.sent(now, 4800, 48_000);
        playing.sent(now, 4800, 48_000);
        assert!(playing.is_on(now + Duration::from_millis(1999), 4800 + 95_999));
        assert!(!playing.is_on(now + Duration::from_millis(2000), 4800));
        assert!(!playing.is_on(now, 4800 + 96_000));
        playing.cut();
        assert_eq!((playing.left(now), playing.is_on(now, 0)), (Duration::ZERO, false));
    }
}
