//! What went wrong in a call, worst first.
//!
//! The ranks follow what a user notices: silence instead of an answer before holes in it, holes before cuts at the wrong
//! place, these before waits.

use super::{ExportedDecision, ExportedTurn};

/// Made-up audio in a turn below this is not heard by a recognizer.
const CONCEALED_MS: u64 = 60;

/// A pause of the user's this short was no end: they went on at once.
const TOO_EARLY_MS: u64 = 300;

/// What a part of the delay may take, in microseconds, before it is what a user waits for.
const SHARES: [(&str, u64); 6] = [
    ("uplink", 100_000),
    ("repair", 60_000),
    ("silence", 800_000),
    ("backend", 1_000_000),
    ("encode", 40_000),
    ("playout", 150_000),
];

/// Something wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Small is bad.
    pub rank: u8,
    /// Ms since the call began.
    pub at_ms: u64,
    /// What, in words.
    pub what: String,
    /// Where to look.
    pub look: &'static str,
}

/// Everything wrong with the turns, the worst first, of equals the earliest; with the index of the turn.
#[must_use]
pub fn all(turns: &[ExportedTurn]) -> Vec<(usize, Wrong)> {
    let mut found: Vec<(usize, Wrong)> = Vec::new();
    for (index, turn) in turns.iter().enumerate() {
        let rules = [
            failed(turn),
            silent_input(turn),
            underruns(turn),
            mislabeled(turn),
            ended_early(turn, turns.get(index + 1)),
            echo(turn),
            false_sound(turn),
            concealed(turn),
            slow(turn),
        ];
        found.extend(rules.into_iter().flatten().map(|wrong| (index, wrong)));
    }
    found.sort_by_key(|(_, wrong)| (wrong.rank, wrong.at_ms));
    found
}

fn made<'a>(turn: &'a ExportedTurn, kind: &'a str) -> impl Iterator<Item = &'a ExportedDecision> {
    turn.decisions.iter().filter(move |decision| decision.kind == kind)
}

fn over(turn: &ExportedTurn) -> u64 {
    turn.moments.over_ms.unwrap_or(turn.began_ms)
}

fn failed(turn: &ExportedTurn) -> Option<Wrong> {
    if turn.outcome != "failed" {
        return None;
    }
    let reason = turn.reason.as_deref().unwrap_or("no reason is known");
    let edge = made(turn, "playout_timeout").next().is_some() || reason.contains("edge");
    Some(Wrong {
        rank: 0,
        at_ms: over(turn),
        what: format!("the reply failed: {reason}"),
        look: if edge { "the edge and the link to it" } else { "the backend, and voice.response_timeout_ms" },
    })
}

fn silent_input(turn: &ExportedTurn) -> Option<Wrong> {
    made(turn, "input_silent").next().map(|decision| Wrong {
        rank: 1,
        at_ms: decision.at_ms,
        what: "the microphone gave nothing but zeros".to_owned(),
        look: "the user's device: muted in the system, or taken by another program",
    })
}

fn underruns(turn: &ExportedTurn) -> Option<Wrong> {
    let count = turn.counts.underruns;
    (count > 0).then(|| Wrong {
        rank: 2,
        at_ms: turn.moments.playing_ms.unwrap_or(turn.began_ms),
        what: format!("the reply had holes: the edge ran out of audio {}", times(count)),
        look: "a backend slower than real time, or the link to the edge",
    })
}

fn mislabeled(turn: &ExportedTurn) -> Option<Wrong> {
    made(turn, "mislabeled").next().map(|decision| Wrong {
        rank: 2,
        at_ms: decision.at_ms,
        what: format!(
            "the reply sounds too slow or too fast: {}",
            turn.reason.as_deref().unwrap_or("its rate is wrong")
        ),
        look: "the rate that the backend says its audio has",
    })
}

/// The user went on before anything of the reply was heard.
fn ended_early(turn: &ExportedTurn, next: Option<&ExportedTurn>) -> Option<Wrong> {
    let end = made(turn, "turn_end").last()?;
    let began = |decision: &&ExportedDecision| {
        matches!(&*decision.kind, "onset" | "turn_start") && decision.media_ms >= end.media_ms
    };
    // An onset that came to nothing was no word.
    let here = made(turn, "interrupt").next().and_then(|_| turn.decisions.iter().find(began));
    let onset = here.or_else(|| next?.decisions.iter().find(began))?;
    let pause = onset.media_ms - end.media_ms;
    (pause < TOO_EARLY_MS).then(|| Wrong {
        rank: 3,
        at_ms: end.at_ms,
        what: format!("the turn was ended before the user's last word: they went on {pause} ms later"),
        look: "voice.silence_duration_ms, or semantic_vad with less eagerness",
    })
}

fn echo(turn: &ExportedTurn) -> Option<Wrong> {
    made(turn, "echo_veto").next().map(|decision| Wrong {
        rank: 4,
        at_ms: decision.at_ms,
        what: "the agent heard itself: the user's device does not cancel its echo".to_owned(),
        look: "echoCancellation in the page's getUserMedia, a headset, a lower volume",
    })
}

/// A pause that no interruption followed.
fn false_sound(turn: &ExportedTurn) -> Option<Wrong> {
    let pause = turn.decisions.iter().position(|decision| decision.kind == "pause")?;
    let end = turn.decisions[pause..]
        .iter()
        .find(|decision| matches!(&*decision.kind, "resume" | "interrupt" | "client_cut"))?;
    let at = &turn.decisions[pause];
    (end.kind == "resume").then(|| Wrong {
        rank: 5,
        at_ms: at.at_ms,
        what: format!(
            "the reply was held for {} ms because of a sound that was no interruption ({} ms of it sounded like speech)",
            end.at_ms.saturating_sub(at.at_ms),
            end.voiced_ms.max(at.voiced_ms),
        ),
        look: "a cough or a noise; nothing was lost. If it happens often: voice.threshold",
    })
}

fn concealed(turn: &ExportedTurn) -> Option<Wrong> {
    let ms = turn.counts.concealed_ms;
    (ms > CONCEALED_MS).then(|| Wrong {
        rank: 6,
        at_ms: turn.began_ms,
        what: format!("{ms} ms of the user's speech were lost on the way and made up"),
        look: "the user's network; words may be missing",
    })
}

fn slow(turn: &ExportedTurn) -> Option<Wrong> {
    let timing = turn.timing?;
    let beyond = |&(name, us): &(&str, u64)| {
        let share = SHARES.iter().find(|(part, _)| *part == name).map_or(u64::MAX, |(_, share)| *share);
        us.saturating_sub(share)
    };
    let (name, us) = timing.parts().into_iter().max_by_key(beyond).filter(|part| beyond(part) > 0)?;
    Some(Wrong {
        rank: 7,
        at_ms: turn.moments.playing_ms.unwrap_or(turn.began_ms),
        what: format!("the answer was slow: {} ms of {} ms went to {name}", us / 1000, timing.total_us / 1000),
        look: match name {
            "silence" => "voice.silence_duration_ms, or semantic_vad",
            "backend" => "the backend's time to its first audio",
            "encode" => "the transceiver's CPU",
            "uplink" | "playout" => "the link between edge and transceiver",
            _ => "the user's network",
        },
    })
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
