//! The words of a reply, and which of them were said by a sample of it.
//!
//! With word times the answer is the last word that was over by then. Without, a reply whose text and sound are both whole is said
//! at an even rate over its speech (its pauses left out); of one that is still being made the total does not exist, so it is this
//! voice's rate in former replies, or that of an ordinary voice, less a tenth. Either is rounded down to a word: what nobody
//! heard must not stand in the context, a word that was heard may miss.

use std::time::Duration;

use crate::backend::WordTime;
use crate::contour::Contour;

/// Text kept of one reply: what a `response.done` can repeat. What is beyond is not cut, but missing.
const MAX_BYTES: usize = 128 * 1024;

/// Word times kept of one reply: words of 8 bytes on average fill the text. 16 bytes each.
const MAX_WORDS: usize = 16 * 1024;

/// Milliunits of text per second of speech before anything is known of the voice: about 150 words a minute.
const ORDINARY: u64 = 14_000;

/// Less speech than this says nothing about a voice's rate: 1 s.
const LEAST_SPEECH: u64 = 48_000;

/// The text of one reply.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    text: String,
    /// Byte behind a word, and item sample by which it was said. Both rise.
    words: Vec<(usize, u64)>,
}

/// How fast this voice speaks: text per speech of the replies that were whole.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// Milliunits per second; 0: not known.
    rate: u64,
}

impl Script {
    pub(crate) fn push(&mut self, delta: &str, words: &[WordTime]) {
        let begin = self.text.len();
        if begin + delta.len() > MAX_BYTES {
            return;
        }
        self.text.push_str(delta);
        for word in words {
            let to = begin + word.to;
            let last = self.words.last().copied().unwrap_or_default();
            let sound = self.text.is_char_boundary(to) && to > last.0 && word.end >= last.1;
            if sound && self.words.len() < MAX_WORDS {
                self.words.push((to, word.end));
            }
        }
    }

    /// There is text.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// What was said before the item sample `to`. `whole`: item samples of all of it, when text and sound are whole.
    pub(crate) fn said(&self, to: u64, whole: Option<u64>, contour: &Contour, pace: Pace) -> &str {
        if whole.is_some_and(|whole| to >= whole) {
            return &self.text;
        }
        if !self.words.is_empty() {
            let said = self.words.partition_point(|(_, end)| *end <= to);
            return self.until(said.checked_sub(1).map_or(0, |last| self.words[last].0));
        }
        let speech = contour.speech(to);
        let units = match whole {
            Some(whole) => milliunits(&self.text).saturating_mul(speech) / contour.speech(whole).max(1),
            None => pace.rate().saturating_mul(speech) / 48_000 * 9 / 10,
        };
        self.until(self.word_before(units))
    }

    /// The last word that was over by `to`, as the item sample of its end; `None` without word times.
    pub(crate) fn word_border(&self, to: u64) -> Option<u64> {
        let said = self.words.partition_point(|(_, end)| *end <= to);
        said.checked_sub(1).map(|last| self.words[last].1)
    }

    /// Byte behind the last word that ends within so many milliunits.
    fn word_before(&self, most: u64) -> usize {
        let (mut units, mut border) = (0, 0);
        let mut chars = self.text.char_indices().peekable();
        while let Some((at, char)) = chars.next() {
            units += weight(char);
            if units > most {
                return border;
            }
            let next = chars.peek();
            if !char.is_whitespace() && next.is_none_or(|(_, next)| next.is_whitespace() || is_word(*next)) {
                border = at + char.len_utf8();
            }
        }
        border
    }

    fn until(&self, to: usize) -> &str {
        self.text.get(..to).unwrap_or_default().trim_end()
    }
}

impl Pace {
    /// A reply that is whole: its text took so much speech. Half of the rate is the latest reply's.
    pub(crate) fn learn(&mut self, script: &Script, speech: u64) {
        let units = milliunits(&script.text);
        if speech < LEAST_SPEECH || units == 0 {
            return;
        }
        let rate = units.saturating_mul(48_000) / speech;
        self.rate = if self.rate == 0 { rate } else { u64::midpoint(self.rate, rate) };
    }

    /// How much speech the words of a reply should take. `None`: the voice is not known.
    pub(crate) fn expected(self, script: &Script) -> Option<Duration> {
        let micros = milliunits(&script.text).saturating_mul(1_000_000).checked_div(self.rate)?;
        Some(Duration::from_micros(micros))
    }

    fn rate(self) -> u64 {
        if self.rate == 0 { ORDINARY } else { self.rate }
    }
}

/// How long a text takes, in thousandths of what a letter does.
fn milliunits(text: &str) -> u64 {
    text.chars().map(weight).sum()
}

/// A digit is read as a word, and so is a sign of a script that has one per syllable; a space is a letter's worth.
fn weight(char: char) -> u64 {
    match char {
        _ if char.is_ascii_digit() || is_word(char) => 3000,
        _ if char.is_alphanumeric() || char.is_whitespace() => 1000,
        _ => 0,
    }
}

/// A sign that is a word by itself: those of scripts without spaces.
fn is_word(char: char) -> bool {
    matches!(char, '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 48_000;
    const TEXT: &str = "The quick brown fox jumps over the lazy dog, and then it sleeps.";

    fn spoken(seconds: usize) -> Contour {
        let mut contour = Contour::default();
        for _ in 0..seconds * 50 {
            contour.push_packet(60, 960);
        }
        contour
    }

    fn script(text: &str) -> Script {
        let mut script = Script::default();
        script.push(text, &[]);
        script
    }

    #[test]
    fn word_times_cut_behind_the_last_word_that_was_over() {
        let mut script = Script::default();
        script.push("Hello there", &[WordTime { to: 5, end: SECOND / 2 }, WordTime { to: 11, end: SECOND }]);
        script.push(" again.", &[WordTime { to: 7, end: 2 * SECOND }]);
        let said = |to| script.said(to, None, &Contour::default(), Pace::default());
        assert_eq!(said(SECOND / 2 - 1), "");
        assert_eq!(said(SECOND - 1), "Hello");
        assert_eq!(said(SECOND), "Hello there");
        assert_eq!(said(3 * SECOND), "Hello there again.");
        assert_eq!(script.word_border(SECOND + 5), Some(SECOND));
    }

    #[test]
    fn word_times_that_make_no_sense_are_left_out() {
        let mut script = Script::default();
        let word = |to, end| WordTime { to, end };
        script.push("äöü bc", &[word(1, 10), word(6, 20), word(3, 30), word(99, 40), word(9, 15), word(9, 50)]);
        assert_eq!(script.words, [(6, 20), (9, 50)]);
    }

    #[test]
    fn a_whole_reply_is_said_evenly_and_rounded_down_to_a_word() {
        let (script, contour) = (script(TEXT), spoken(4));
        let said = |to| script.said(to, Some(4 * SECOND), &contour, Pace::default());
        assert_eq!(said(0), "");
        assert_eq!(said(SECOND), "The quick brown");
        assert_eq!(said(2 * SECOND), "The quick brown fox jumps over");
        assert_eq!(said(4 * SECOND - 960), "The quick brown fox jumps over the lazy dog, and then it");
        assert_eq!(said(4 * SECOND), TEXT);
    }

    #[test]
    fn pauses_are_no_words() {
        let script = script(TEXT);
        let mut contour = spoken(2);
        for _ in 0..100 {
            contour.push_packet(3, 960);
        }
        for _ in 0..100 {
            contour.push_packet(60, 960);
        }
        let said = |to| script.said(to, Some(6 * SECOND), &contour, Pace::default());
        assert_eq!(said(2 * SECOND), said(4 * SECOND));
        assert_eq!(said(4 * SECOND), "The quick brown fox jumps over");
    }

    #[test]
    fn a_reply_in_the_making_is_said_at_the_rate_of_the_former_ones() {
        let former = script(TEXT);
        let mut pace = Pace::default();
        pace.learn(&former, 8 * SECOND);
        let (script, contour) = (script(&TEXT.repeat(20)), spoken(10));
        // Half as fast as in the test above, less a tenth.
        assert_eq!(script.said(4 * SECOND, None, &contour, pace), "The quick brown fox jumps");
        assert_eq!(script.said(SECOND, None, &contour, Pace::default()), "The quick");
    }

    #[test]
    fn signs_without_spaces_are_words() {
        let (script, contour) = (script("你好世界"), spoken(2));
        assert_eq!(script.said(SECOND, Some(2 * SECOND), &contour, Pace::default()), "你好");
    }

    #[test]
    fn text_is_bounded() {
        let mut script = script("a word");
        script.push(&"x".repeat(MAX_BYTES), &[]);
        assert_eq!(script.text, "a word");
    }
}
