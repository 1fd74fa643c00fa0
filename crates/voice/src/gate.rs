//! The gate that everything passes that would interrupt a reply.
//!
//! Whoever asks (the detector, recognized words, the edge's reflex, a backend's verdict), the question is the same and so are the
//! rules: the [`Evidence`] of one utterance against the [`Rules`] of what the agent does. Evidence is counted per utterance
//! and never added up over several. **Speech is what the detector counted**: words and verdicts without sound prove nothing,
//! since a transcript of the question often comes while the answer plays. A client's cancel is a command: it passes always.
//!
//! A sound that is no word (a hum, a cough) has to last longer: [`NO_WORD`].

use crate::config::{InterruptionConfig, InterruptionProfile};
use crate::decision::Profile;

/// Milliseconds of one voiced frame.
pub(crate) const FRAME_MS: u32 = 16;
/// Wordlike frames that make a word of a sound: 80 ms, the core of one syllable.
const WORDLIKE: u32 = 5;
/// Speech without them that interrupts all the same, in ms: longer than a hum of assent.
const NO_WORD: u32 = 800;
/// Beyond the speech the rules ask for, in ms, until a sound without them is no word: words that begin behind closed lips, and
/// voices of which half the frames are too soft to tell. A reply that goes on before that is cut a moment later.
const CLOSED_BEGIN: u32 = 350;
/// Longest time a reply is held in doubt, in ms. Rules that take longer do not hold it at all.
pub(crate) const HOLD_MAX: u32 = 1000;
/// Longest doubt, in ms, unless the rules ask for more speech: with gaps just short enough the default is reached in 2.6 s.
const DOUBT_MAX: u32 = 3000;
/// From here on a verdict says yes.
const YES: f32 = 0.5;

/// What one utterance over a reply has shown so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Evidence {
    /// Voiced frames.
    pub(crate) voiced: u32,
    /// Of these, frames that could be part of a word.
    pub(crate) wordlike: u32,
    /// Words recognized.
    pub(crate) words: u32,
    /// Probability that the turn is wanted.
    pub(crate) verdict: Option<f32>,
}

impl Evidence {
    pub(crate) fn voiced_ms(&self) -> u32 {
        self.voiced * FRAME_MS
    }

    /// It could be a word, as far as it has been heard.
    pub(crate) fn is_wordlike(&self) -> bool {
        self.wordlike >= WORDLIKE || self.words > 0 || self.verdict.is_some_and(|verdict| verdict >= YES)
    }
}

/// What the gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// More is needed.
    Wait,
    /// The reply is cut.
    Pass,
    /// It is no interruption, whatever comes.
    Deny,
}

/// What it takes, in one situation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Nothing of the user's interrupts.
    pub(crate) closed: bool,
    min_voiced_ms: u32,
    min_words: u32,
}

impl Rules {
    pub(crate) fn new(config: &InterruptionConfig, profile: Profile) -> Self {
        let InterruptionProfile { interruptible, min_duration_ms, min_words } = match profile {
            Profile::Greeting => config.greeting,
            Profile::Thinking => config.thinking,
            Profile::Speaking => config.speaking,
        };
        Self {
            closed: !(config.enabled && interruptible),
            min_voiced_ms: min_duration_ms.unwrap_or(config.min_duration_ms),
            min_words: min_words.unwrap_or(config.min_words),
        }
    }

    pub(crate) fn judge(&self, evidence: &Evidence) -> Ruling {
        if self.closed || evidence.verdict.is_some_and(|verdict| verdict < YES) {
            Ruling::Deny
        } else if self.is_spoken(evidence) && evidence.words >= self.min_words {
            Ruling::Pass
        } else {
            Ruling::Wait
        }
    }

    /// All but the words is there: they may come late.
    pub(crate) fn waits_for_words(&self, evidence: &Evidence) -> bool {
        self.min_words > 0 && self.is_spoken(evidence)
    }

    /// It has lasted long enough for a word and was none.
    pub(crate) fn is_no_word(&self, evidence: &Evidence) -> bool {
        evidence.voiced_ms() >= self.min_voiced_ms + CLOSED_BEGIN && !evidence.is_wordlike()
    }

    /// A reply is worth holding for it.
    pub(crate) fn holds(&self) -> bool {
        !self.closed && self.min_voiced_ms <= HOLD_MAX
    }

    /// How long a doubt may last, in ms.
    pub(crate) fn doubt_ms(&self) -> u32 {
        DOUBT_MAX.max(self.min_voiced_ms * 2)
    }

    /// Enough is said for an interruption, whatever the words.
    pub(crate) fn is_spoken(&self, evidence: &Evidence) -> bool {
        let voiced = evidence.voiced_ms();
        voiced >= self.min_voiced_ms && (evidence.is_wordlike() || voiced >= NO_WORD)
    }
}

/// Counts the words of one utterance in the pieces they come in, and keeps none of the text.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WordCount {
    /// In transcripts that are final: a recognizer may make several of one utterance.
    done: u32,
    /// In the one that grows.
    count: u32,
    in_word: bool,
}

impl WordCount {
    /// More text of a transcript, or all of it. All words so far.
    pub(crate) fn push(&mut self, text: &str, is_final: bool) -> u32 {
        if is_final {
            // The whole of it, unless it is empty as some recognizers' is.
            let whole = Self::default().add(text);
            let count = if whole.count > 0 { whole.count } else { self.count };
            *self = Self { done: self.done.saturating_add(count), ..Self::default() };
        } else {
            *self = self.add(text);
        }
        self.done.saturating_add(self.count)
    }

    fn add(mut self, text: &str) -> Self {
        for character in text.chars() {
            // Scripts without spaces: a character is about a syllable, and counts as a word.
            let alone =
                matches!(character, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}');
            let part = character.is_alphanumeric();
            if alone || (part && !self.in_word) {
                self.count = self.count.saturating_add(1);
            }
            // "don't" and "mm-hm" are one word.
            self.in_word = !alone && (part || (self.in_word && matches!(character, '\'' | '\u{2019}' | '-')));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speech(frames: u32) -> Evidence {
        Evidence { voiced: frames, wordlike: frames, ..Evidence::default() }
    }

    fn rules(change: impl FnOnce(&mut InterruptionConfig)) -> Rules {
        let mut config = InterruptionConfig::default();
        change(&mut config);
        Rules::new(&config, Profile::Speaking)
    }

    #[test]
    fn a_quarter_of_a_second_of_speech_passes() {
        let rules = rules(|_| {});
        assert_eq!(rules.judge(&speech(15)), Ruling::Wait);
        assert_eq!(rules.judge(&speech(16)), Ruling::Pass);
    }

    #[test]
    fn t06_ten_seconds_hold_for_every_source() {
        let rules = rules(|config| config.min_duration_ms = 10_000);
        let all = Evidence { words: 50, verdict: Some(1.0), ..speech(62) };
        assert_eq!(rules.judge(&all), Ruling::Wait);
        assert!(!rules.holds(), "a reply is not held for ten seconds");
        assert_eq!(rules.judge(&speech(625)), Ruling::Pass);
    }

    #[test]
    fn words_and_verdicts_without_sound_prove_nothing() {
        let rules = rules(|_| {});
        assert_eq!(rules.judge(&Evidence { words: 9, verdict: Some(1.0), ..Evidence::default() }), Ruling::Wait);
    }

    #[test]
    fn too_few_words_wait_and_a_verdict_denies() {
        let rules = rules(|config| config.min_words = 3);
        assert_eq!(rules.judge(&Evidence { words: 2, ..speech(60) }), Ruling::Wait);
        assert!(rules.waits_for_words(&speech(60)));
        assert_eq!(rules.judge(&Evidence { words: 3, ..speech(60) }), Ruling::Pass);
        assert_eq!(rules.judge(&Evidence { words: 3, verdict: Some(0.2), ..speech(60) }), Ruling::Deny);
    }

    #[test]
    fn a_hum_has_to_last_longer_than_a_word() {
        let rules = rules(|_| {});
        let hum = |frames| Evidence { voiced: frames, ..Evidence::default() };
        assert_eq!(rules.judge(&hum(40)), Ruling::Wait);
        assert!(rules.is_no_word(&hum(40)) && !rules.is_no_word(&speech(40)));
        assert_eq!(rules.judge(&hum(50)), Ruling::Pass);
    }

    #[test]
    fn each_profile_has_its_own_rules() {
        let mut config = InterruptionConfig::default();
        config.greeting.interruptible = false;
        config.thinking.min_duration_ms = Some(500);
        assert_eq!(Rules::new(&config, Profile::Greeting).judge(&speech(600)), Ruling::Deny);
        assert_eq!(Rules::new(&config, Profile::Thinking).judge(&speech(30)), Ruling::Wait);
        assert_eq!(Rules::new(&config, Profile::Speaking).judge(&speech(30)), Ruling::Pass);
    }

    #[test]
    fn words_are_counted_across_pieces() {
        let mut count = WordCount::default();
        assert_eq!(count.push("sto", false), 1);
        assert_eq!(count.push("p that, do", false), 3);
        assert_eq!(count.push("n't", false), 3);
        assert_eq!(count.push("stop that, don't", true), 3);
        assert_eq!(count.push("wa", false), 4);
        assert_eq!(count.push("wait", true), 4, "another transcript of the same utterance");
        assert_eq!(count.push("", true), 4);
        assert_eq!(WordCount::default().push("停下", false), 2);
        assert_eq!(WordCount::default().push("mm-hm", true), 1);
    }
}
