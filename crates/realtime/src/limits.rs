//! What one client can make us hold and do. All bounds of the crate stand here, with their arithmetic.
//!
//! Together: 2 MiB of items, 1.8 MiB of settings, 0.3 MiB of the response being made, 0.1 MiB of names, 2 MiB that wait behind audio, so under 6.5 MiB for a client that
//! fills everything; a session of ten minutes' talk holds about 40 KiB. Events wait only until the caller polls them.

use std::time::{Duration, Instant};

/// Largest client text read: the protocol's own megabyte.
pub const MAX_CLIENT_BYTES: usize = 1 << 20;

/// JSON values in a client text: as many as a session may have, and those around it. The costliest, an object of one field, takes 628 bytes as a tree:
/// 12 MB for a moment.
pub(crate) const MAX_CLIENT_VALUES: usize = 20_000;

/// Largest event sent: what stock browsers take in one message (`a=max-message-size:262144`), and half of what the smallest
/// default of a WebSocket client is.
pub const MAX_EVENT_BYTES: usize = 256 * 1024;

/// Largest session object, as text: `session.updated` repeats all of it and has to fit [`MAX_EVENT_BYTES`].
pub(crate) const MAX_SESSION_BYTES: usize = 192 * 1024;

/// Values in the session object. Each takes about 100 bytes beside its text: 16 Ki of them are 1.6 MiB.
pub const MAX_SESSION_VALUES: usize = 16 * 1024;

/// Largest item kept and repeated, as text; the same as of a session.
pub(crate) const MAX_ITEM_BYTES: usize = 192 * 1024;

/// Items kept: an hour of turns of 4 s.
pub(crate) const MAX_ITEMS: usize = 1024;

/// Their texts together: 1024 items of 2 KiB, or ten of the largest.
pub(crate) const MAX_ITEMS_BYTES: usize = 2 << 20;

/// Text kept of one response's message, as JSON text. `response.done` repeats it, and with arguments and metadata has to fit
/// [`MAX_EVENT_BYTES`]: 128 + 64 + 40 KiB. Beyond this only deltas are sent.
pub(crate) const MAX_TRANSCRIPT_BYTES: usize = 128 * 1024;

/// Arguments of all tool calls of one response, as JSON text.
pub(crate) const MAX_ARGUMENTS_BYTES: usize = 64 * 1024;

/// Tool calls of one response.
pub(crate) const MAX_CALLS: usize = 32;

/// Names, ids of calls and of items, in bytes: those of the API have 32, function names 64.
pub(crate) const MAX_NAME_BYTES: usize = 128;

/// Metadata of a response: the API's own bound is 16 pairs of 64 + 512 characters of up to 4 bytes.
pub(crate) const MAX_METADATA_BYTES: usize = 40_000;

/// Pairs of it.
pub(crate) const MAX_METADATA_PAIRS: usize = 16;

/// Stretches of speech remembered between onset and transcript: one is open at a time, a few wait for a manual commit or a slow recognizer.
pub(crate) const MAX_TURNS: usize = 16;

/// Words kept of a stretch whose item does not exist yet: a minute's speech is 1 KiB.
pub(crate) const MAX_EARLY_BYTES: usize = 16 * 1024;

/// Responses remembered: one is being made, one is playing, one more per answer cut while the edge's word on it is
/// on its way (a round trip, so a few at most).
pub(crate) const MAX_RESPONSES: usize = 16;

/// Rate limits told at once: the API has two.
pub(crate) const MAX_RATE_LIMITS: usize = 16;

/// Unknown event types that are told of, each once.
pub(crate) const MAX_UNKNOWN_TYPES: usize = 16;

/// Requests that wait behind audio in the call: as many as it lets wait. Each holds an `event_id` of 512 bytes at most: 256 KiB.
pub(crate) const MAX_WAITING: usize = 512;

/// Events that wait behind these, as text: two of the largest.
pub(crate) const MAX_WAITING_BYTES: usize = 2 << 20;

/// Audio in one `response.output_audio.delta`: 500 ms of PCM, 32 KiB of text, so that no event waits long behind one.
pub(crate) const MAX_DELTA_BYTES: usize = 24_000;

/// Messages of any kind: ten times what a client sends that appends every 20 ms.
const MESSAGES: Rate = Rate { every: Duration::from_micros(2000), burst: 2000 };

/// Their bytes, in KiB: 2 MiB a second are 32 times the speed of speech (PCM16 at 24 kHz is 64 KB a second as base64), and a minute of it may come
/// at once.
const KIBIBYTES: Rate = Rate { every: Duration::from_micros(488), burst: 4096 };

/// Requests other than appended audio: one and one more per 2 KiB of what answers it, so that a small `session.update` cannot ask for the largest
/// `session.updated` a thousand times a second (one a second is answered, four at once).
const REQUESTS: Rate = Rate { every: Duration::from_millis(10), burst: 400 };

/// Of an answer, in bytes, what costs as much as a request.
const ANSWER_UNIT: usize = 2048;

/// Refused messages before the session is closed: 20 s of twice what is allowed.
const MAX_REFUSED: u32 = 10_000;

/// The client hears of its flood once in this time.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is read.
    Pass,
    /// It is not, and the client is told.
    Refuse,
    /// It is not, and the client was told a moment ago.
    Ignore,
    /// This goes on for too long.
    Close,
}

#[derive(Debug, Clone, Copy)]
struct Rate {
    /// One unit each.
    every: Duration,
    burst: u32,
}

/// A virtual queue that empties at a rate (GCRA).
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    /// When it is empty.
    empty: Option<Instant>,
}

impl Bucket {
    fn take(&mut self, now: Instant, rate: Rate, units: u32) -> bool {
        let begin = self.empty.map_or(now, |empty| empty.max(now));
        let end = begin + rate.every * units;
        let fits = end.duration_since(now) <= rate.every * rate.burst;
        if fits {
            self.empty = Some(end);
        }
        fits
    }
}

/// Guards a session against its client's pace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flood {
    messages: Bucket,
    kibibytes: Bucket,
    requests: Bucket,
    refused: u32,
    told: Option<Instant>,
}

impl Flood {
    /// A message of so many bytes came.
    pub(crate) fn message(&mut self, now: Instant, bytes: usize) -> Verdict {
        let kibibytes = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(KIBIBYTES.burst);
        let passes = self.messages.take(now, MESSAGES, 1) && self.kibibytes.take(now, KIBIBYTES, kibibytes);
        self.judge(now, passes)
    }

    /// It is a request that is answered with about so many bytes.
    pub(crate) fn request(&mut self, now: Instant, answer: usize) -> Verdict {
        // What is larger than an event is not repeated.
        let units = u32::try_from(1 + answer.min(MAX_EVENT_BYTES) / ANSWER_UNIT).unwrap_or(u32::MAX);
        let passes = self.requests.take(now, REQUESTS, units);
        self.judge(now, passes)
    }

    fn judge(&mut self, now: Instant, passes: bool) -> Verdict {
        if passes {
            return Verdict::Pass;
        }
        self.refused += 1;
        if self.refused >= MAX_REFUSED {
            return Verdict::Close;
        }
        if self.told.is_some_and(|told| now < told + TELL_EVERY) {
            return Verdict::Ignore;
        }
        self.told = Some(now);
        Verdict::Refuse
    }
}

/// At least as many values as a JSON text has, told without reading it: each stands behind an opening bracket or a comma. Whatever is no JSON has some
/// number too.
#[must_use]
pub fn values_at_most(text: &str) -> usize {
    let (mut count, mut in_string, mut escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' | b',' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Bytes that a text takes inside JSON, less its quotes.
pub(crate) fn escaped_len(text: &str) -> usize {
    let escape = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..32 => 6,
        _ => 1,
    };
    text.bytes().map(escape).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_in_json_is_that_of_the_serializer() {
        let text: String = (0..0x300).filter_map(char::from_u32).collect();
        assert_eq!(escaped_len(&text), serde_json::to_string(&text).unwrap().len() - 2);
    }

    #[test]
    fn values_are_counted_outside_of_texts() {
        for (text, count) in
            [("1", 1), ("[]", 2), ("[1,2]", 3), (r#"{"a":[{},{}],"b":"[,\",{"}"#, 7), (r#""\\",["#, 3), ("{{{[,", 6)]
        {
            assert_eq!(values_at_most(text), count, "{text}");
        }
    }

    #[test]
    fn the_pace_of_speech_passes_for_ever_and_a_minute_of_it_at_once() {
        let (mut flood, start) = (Flood::default(), Instant::now());
        for n in 0..10_000 {
            assert_eq!(flood.message(start + Duration::from_millis(20 * n), 1360), Verdict::Pass);
        }
        let mut flood = Flood::default();
        for _ in 0..60 {
            assert_eq!(flood.message(start, 64_100), Verdict::Pass);
        }
    }

    #[test]
    fn a_flood_is_told_once_a_second_and_ends_the_session_at_last() {
        let (mut flood, now) = (Flood::default(), Instant::now());
        let verdicts: Vec<_> = (0..400).map(|_| flood.request(now, 0)).collect();
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Pass));
        assert_eq!(flood.request(now, 0), Verdict::Refuse);
        assert_eq!(flood.request(now, 0), Verdict::Ignore);
        assert_eq!(flood.request(now + Duration::from_millis(10), 0), Verdict::Pass);
        let later = now + TELL_EVERY;
        for _ in 0..100 {
            flood.request(later, 0);
        }
        assert_eq!(flood.request(later + TELL_EVERY / 1000, 0), Verdict::Ignore);
        let last = (0..MAX_REFUSED).map(|_| flood.request(later, 0)).last();
        assert_eq!(last, Some(Verdict::Close));
    }

    #[test]
    fn large_answers_are_given_less_often() {
        let (mut flood, now) = (Flood::default(), Instant::now());
        let passed = (0..100).filter(|_| flood.request(now, MAX_SESSION_BYTES) == Verdict::Pass).count();
        assert_eq!(passed, 4);
    }
}
