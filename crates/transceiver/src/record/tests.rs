//! Records of events as a conversation gives them.

use std::time::{Duration, Instant};

use voice::{
    Balance, Decision, DecisionInputs, DecisionKind, Event, Failure, FlushReason, InterruptSource, Profile, ResponseId,
    State, TurnId, TurnTiming, Utterance,
};

use super::*;

const ONE: ResponseId = ResponseId(1);

struct Told {
    recorder: Recorder,
    start: Instant,
}

impl Told {
    fn new() -> Self {
        let start = Instant::now();
        Self { recorder: Recorder::new(start), start }
    }

    fn event(&mut self, at_ms: u64, event: Event) {
        self.recorder.event(self.start + Duration::from_millis(at_ms), &event);
    }

    fn decide(&mut self, at_ms: u64, kind: DecisionKind) {
        self.event(at_ms, Event::Decision(decision(at_ms, kind)));
    }

    /// The user speaks from 1000 to 2000 ms and is answered from 2600 ms on.
    fn answered(&mut self) {
        self.decide(1048, DecisionKind::TurnStart);
        self.event(1048, Event::SpeechStarted { turn: TurnId(1), audio_start_ms: 700 });
        self.decide(2510, DecisionKind::TurnEnd);
        self.event(2510, Event::SpeechStopped { turn: TurnId(1), audio_end_ms: 2000 });
        self.event(2510, Event::Committed { turn: TurnId(1) });
        self.event(2510, Event::ResponseCreated { response: ONE });
        self.event(2550, Event::ResponseAudioStarted { response: ONE, utterance: Utterance(1) });
        self.event(2560, Event::ResponseDone { response: ONE, generated: 48_000 });
        self.event(2600, Event::PlayoutStarted { response: ONE });
        self.recorder.timing(TIMING);
    }

    fn over(&mut self, at_ms: u64, played_end: u64, heard_at: Option<u64>) {
        let balance = Balance {
            response: ONE,
            generated: 48_000,
            sent: played_end,
            played_end,
            heard_at,
            underruns: 2,
            preroll_us: 0,
        };
        self.event(at_ms, Event::ReplyOver(balance));
    }

    fn records(&mut self, counts: Counts) -> Vec<TurnRecord> {
        self.recorder.settle(|| counts);
        std::iter::from_fn(|| self.recorder.poll()).map(|record| (*record).clone()).collect()
    }
}

const TIMING: TurnTiming = TurnTiming {
    silence_us: 500_000,
    uplink_us: 3000,
    repair_us: 1000,
    backend_us: 40_000,
    encode_us: 2000,
    playout_us: 48_000,
    total_us: 594_000,
};

fn decision(at_ms: u64, kind: DecisionKind) -> Decision {
    let inputs = DecisionInputs {
        run_frames: 3,
        probability: 0.9,
        profile: Some(Profile::Speaking),
        source: InterruptSource::Vad,
        ..DecisionInputs::default()
    };
    Decision { at_media: at_ms * 48, kind, state_before: State::Listening, inputs }
}

fn decided(at_ms: u64, kind: DecisionKind) -> Decided {
    Decided { at_ms, decision: decision(at_ms, kind) }
}

/// What [`Told::answered`] is when it was played to its end at 3600 ms.
pub(super) fn answered() -> TurnRecord {
    TurnRecord {
        turn: Some(TurnId(1)),
        response: Some(ONE),
        began_ms: 1048,
        audio_start_ms: Some(700),
        audio_end_ms: Some(2000),
        outcome: Outcome::Answered,
        reason: None,
        moments: Moments {
            committed_ms: Some(2510),
            asked_ms: Some(2510),
            audio_ms: Some(2550),
            playing_ms: Some(2600),
            over_ms: Some(3600),
        },
        decisions: vec![decided(1048, DecisionKind::TurnStart), decided(2510, DecisionKind::TurnEnd)],
        decisions_dropped: 0,
        timing: Some(TIMING),
        positions: Positions { generated: Some(48_000), sent: Some(48_000), played_end: Some(48_000), heard_at: None },
        counts: Counts { concealed: 960, red: 1920, fec: 0, late: 1, underruns: 2 },
    }
}

#[test]
fn a_turn_and_its_answer_are_one_record() {
    let mut told = Told::new();
    told.answered();
    assert_eq!(told.records(Counts::default()), [], "it is not over");
    told.event(3600, Event::PlayoutStopped { response: ONE });
    told.over(3600, 48_000, None);
    let counts = Counts { concealed: 960, red: 1920, late: 1, ..Counts::default() };
    assert_eq!(told.records(counts), [answered()]);
    assert_eq!(told.records(counts), [], "it is told once");
}

#[test]
fn parts_sum_to_the_whole_in_what_is_exported() {
    let turn = ExportedTurn::of(link::ids::SessionId(77), "parrot", &answered());
    let timing = turn.timing.unwrap();
    assert_eq!(timing.parts().iter().map(|(_, us)| us).sum::<u64>(), timing.total_us);
    let json = serde_json::to_string(&turn).unwrap();
    assert_eq!(serde_json::from_str::<ExportedTurn>(&json).unwrap(), turn, "what is written can be read");
}

#[test]
fn a_reply_that_is_cut_ends_behind_the_speech_that_cut_it() {
    let mut told = Told::new();
    told.answered();
    told.decide(3000, DecisionKind::Onset);
    told.decide(3250, DecisionKind::Interrupt);
    told.event(3250, Event::SpeechStarted { turn: TurnId(2), audio_start_ms: 2700 });
    assert_eq!(told.records(Counts::default()), []);
    told.decide(3260, DecisionKind::Verdict);
    told.event(3280, Event::PlayoutCleared { response: ONE, played_end: 19_200 });
    told.over(3280, 19_200, Some(18_000));
    let cut = TurnRecord {
        outcome: Outcome::Interrupted,
        moments: Moments { over_ms: Some(3280), ..answered().moments },
        decisions: vec![
            decided(1048, DecisionKind::TurnStart),
            decided(2510, DecisionKind::TurnEnd),
            decided(3000, DecisionKind::Onset),
            decided(3250, DecisionKind::Interrupt),
        ],
        positions: Positions {
            generated: Some(48_000),
            sent: Some(19_200),
            played_end: Some(19_200),
            heard_at: Some(18_000),
        },
        counts: Counts { underruns: 2, ..Counts::default() },
        ..answered()
    };
    assert_eq!(told.records(Counts::default()), [cut]);
    let open = told.recorder.all(Counts::default());
    let speech = open.last().unwrap();
    assert_eq!((speech.turn, speech.outcome), (Some(TurnId(2)), Outcome::Open));
    assert_eq!(speech.decisions, [decided(3260, DecisionKind::Verdict)]);
}

#[test]
fn a_backend_that_gives_nothing_is_a_failed_turn_with_its_reason() {
    let mut told = Told::new();
    told.event(0, Event::SpeechStarted { turn: TurnId(1), audio_start_ms: 0 });
    told.event(900, Event::Committed { turn: TurnId(1) });
    told.event(900, Event::ResponseCreated { response: ONE });
    told.decide(10_900, DecisionKind::ResponseTimeout);
    told.event(10_900, Event::ResponseFailed { response: ONE, failure: Failure::new("late", "nothing ".repeat(100)) });
    let records = told.records(Counts::default());
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].outcome, Outcome::Failed);
    assert_eq!(records[0].reason.as_ref().map(String::len), Some(200));
    assert_eq!(records[0].decisions, [decided(10_900, DecisionKind::ResponseTimeout)]);
}

#[test]
fn a_response_cancelled_before_its_first_sound_is_over_at_once() {
    let mut told = Told::new();
    told.event(0, Event::ResponseCreated { response: ONE });
    told.event(5, Event::ResponseCancelled { response: ONE, reason: FlushReason::ClientCancelled });
    let records = told.records(Counts::default());
    assert_eq!((records.len(), records[0].turn, records[0].outcome), (1, None, Outcome::Cancelled));
}

#[test]
fn the_end_of_a_call_completes_what_is_open_and_what_belongs_to_no_turn() {
    let mut told = Told::new();
    told.answered();
    told.recorder.end(Counts::default());
    let records = told.records(Counts::default());
    assert_eq!((records.len(), records[0].outcome), (1, Outcome::Unanswered));
    let mut told = Told::new();
    told.decide(2000, DecisionKind::InputSilent);
    told.recorder.end(Counts::default());
    let records = told.records(Counts::default());
    assert_eq!((records.len(), records[0].outcome), (1, Outcome::Idle));
    assert_eq!(records[0].decisions, [decided(2000, DecisionKind::InputSilent)]);
}

#[test]
fn a_reply_under_a_wrong_label_says_so_and_a_failure_says_more() {
    for fails in [false, true] {
        let mut told = Told::new();
        told.event(0, Event::ResponseCreated { response: ONE });
        told.event(1, Event::AudioMislabeled { response: ONE, declared: 16_000, likely: 24_000 });
        if fails {
            told.event(2, Event::ResponseFailed { response: ONE, failure: Failure::new("gone", "gone") });
        }
        told.recorder.end(Counts::default());
        let records = told.records(Counts::default());
        let expected = if fails { "gone" } else { "its audio is labeled 16000 Hz and seems to have 24000" };
        assert_eq!(records[0].reason.as_deref(), Some(expected));
    }
}

#[test]
fn a_flood_of_turns_and_decisions_is_bounded_and_counted() {
    let mut told = Told::new();
    let mut seen = 0;
    for turn in 0..1000 {
        told.event(turn, Event::SpeechStarted { turn: TurnId(turn), audio_start_ms: turn });
        for _ in 0..1000 {
            told.decide(turn, DecisionKind::Onset);
        }
        seen += told.records(Counts::default()).len();
    }
    let kept = told.recorder.all(Counts::default());
    let decisions: usize = kept.iter().map(|record| record.decisions.len()).sum();
    assert_eq!((seen, kept.len(), decisions), (999, 9, PAST_DECISIONS + TURN_DECISIONS));
    assert_eq!(kept[0].decisions_dropped, 936);
    assert_eq!(told.recorder.given_up(), 991);
    for turn in 1000..2000 {
        told.event(turn, Event::SpeechStarted { turn: TurnId(turn), audio_start_ms: turn });
        told.recorder.settle(Counts::default);
    }
    assert_eq!(told.recorder.all(Counts::default()).len(), PAST_TURNS + 1);
    // Responses without an end push each other out.
    for response in 0..1000 {
        told.event(3000, Event::ResponseCreated { response: ResponseId(response) });
        told.event(3000, Event::ResponseAudioStarted { response: ResponseId(response), utterance: Utterance(1) });
        told.recorder.settle(Counts::default);
    }
    assert_eq!(told.recorder.all(Counts::default()).len(), PAST_TURNS + 4);
}
