//! The timeline of a call in words.

use std::fmt::Write as _;

use transceiver::record::{ExportedCounts, ExportedDecision, ExportedSession, ExportedTiming, ExportedTurn, wrong};

/// Characters of the longest bar.
const BAR: u64 = 40;

/// All of it.
pub(super) fn story(session: &ExportedSession) -> String {
    let mut text = String::new();
    let state = if session.live { "goes on" } else { "is over" };
    let turns = match session.turns.len() {
        0 => "no turn yet".to_owned(),
        1 => "1 turn".to_owned(),
        count => format!("{count} turns"),
    };
    let _ = writeln!(text, "{}: model {}, {turns}, {state}", session.session, session.model);
    if session.given_up > 0 {
        let _ = writeln!(text, "{} earlier turns are not kept", session.given_up);
    }
    wrongs(&mut text, session);
    for turn in &session.turns {
        text.push('\n');
        one(&mut text, turn);
    }
    text
}

/// The first wrong thing, and the others in a line each.
fn wrongs(text: &mut String, session: &ExportedSession) {
    let found = wrong::all(&session.turns);
    let Some(((index, first), others)) = found.split_first() else {
        text.push_str("nothing wrong found\n");
        return;
    };
    let place = |index: usize, at_ms: u64| {
        let turn = &session.turns[index];
        format!("{}, {}", name(turn), at(turn, at_ms))
    };
    let _ = writeln!(text, "first wrong thing: {}: {}", place(*index, first.at_ms), first.what);
    let _ = writeln!(text, "  look at: {}", first.look);
    for (index, other) in others {
        let _ = writeln!(text, "also: {}: {}", place(*index, other.at_ms), other.what);
    }
}

fn name(turn: &ExportedTurn) -> String {
    match (turn.turn, turn.response) {
        (Some(turn), Some(response)) => format!("turn {turn}, reply {response}"),
        (Some(turn), None) => format!("turn {turn}"),
        (None, Some(response)) => format!("reply {response}"),
        (None, None) => "between turns".to_owned(),
    }
}

/// Relative to the turn's begin.
fn at(turn: &ExportedTurn, at_ms: u64) -> String {
    let (sign, ms) = if at_ms >= turn.began_ms { ('+', at_ms - turn.began_ms) } else { ('-', turn.began_ms - at_ms) };
    format!("{sign}{}", seconds(ms))
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03} s", ms / 1000, ms % 1000)
}

fn one(text: &mut String, turn: &ExportedTurn) {
    let _ = writeln!(text, "{}: {}; it began {} into the call", name(turn), outcome(turn), seconds(turn.began_ms));
    let moments = &turn.moments;
    let steps = [
        (moments.committed_ms, "the user's speech is complete"),
        (moments.asked_ms, "the reply is asked for"),
        (moments.audio_ms, "the backend gives its first audio"),
        (moments.playing_ms, "the reply leaves the edge"),
        (moments.over_ms, "over"),
    ];
    let steps = steps.into_iter().filter_map(|(at_ms, what)| Some((at_ms?, what.to_owned())));
    let mut lines: Vec<(u64, String)> =
        turn.decisions.iter().map(|decision| (decision.at_ms, sentence(decision))).chain(steps).collect();
    // Stable: at one time what was decided comes before what followed.
    lines.sort_by_key(|(at_ms, _)| *at_ms);
    for (at_ms, what) in lines {
        let _ = writeln!(text, "  {:>9}  {what}", at(turn, at_ms));
    }
    if turn.decisions_dropped > 0 {
        let _ = writeln!(text, "  and {} decisions more than are kept", turn.decisions_dropped);
    }
    if let Some(timing) = &turn.timing {
        delay(text, timing);
    }
    positions(text, turn);
    let counts = &turn.counts;
    if *counts != ExportedCounts::default() {
        let _ = writeln!(
            text,
            "  on the way: {} ms made up, {} ms by RED, {} ms from in-band copies, {} packets too late, {} underruns",
            counts.concealed_ms, counts.red_ms, counts.fec_ms, counts.late_packets, counts.underruns
        );
    }
}

fn outcome(turn: &ExportedTurn) -> String {
    let words = match &*turn.outcome {
        "open" => "it goes on",
        "answered" => "answered to the end",
        "interrupted" => "interrupted by the user",
        "cancelled" => "cut by the client",
        "failed" => "failed",
        "unanswered" => "not answered",
        "idle" => "nobody's turn",
        other => other,
    };
    match &turn.reason {
        Some(reason) => format!("{words} ({reason})"),
        None => words.to_owned(),
    }
}

/// A decision with what it rests on.
fn sentence(decision: &ExportedDecision) -> String {
    let what = match &*decision.kind {
        "onset" => "a sound that may be speech",
        "pause" => "the reply is held",
        "resume" => "the reply goes on",
        "dismiss" => "it was no interruption",
        "interrupt" => "the user takes the turn: the reply is cut",
        "refuse" => "an interruption is refused",
        "turn_start" => "the user's turn begins",
        "turn_end" => "the user's turn is over",
        "max_turn" => "the user's turn is ended because it is too long",
        "verdict" => "a verdict on the end of the turn",
        "echo_veto" => "the sound is the agent's own, heard back",
        "echo_gone" => "the agent is not heard back any more",
        "idle_timeout" => "nobody spoke for the idle timeout",
        "input_silent" => "the microphone gives nothing but zeros",
        "mislabeled" => "the reply's audio seems to have another rate than its label",
        "client_cut" => "the client cuts the reply",
        "response_timeout" => "the backend gave nothing in time: the reply is given up",
        "playout_timeout" => "the edge said nothing of the reply: it is given up",
        other => other,
    };
    let mut inputs = Vec::new();
    if decision.run_frames > 0 {
        inputs.push(format!("{} voiced frames in a row", decision.run_frames));
    }
    if decision.probability > 0.0 {
        inputs.push(format!("probability {:.2}", decision.probability));
    }
    if decision.voiced_ms > 0 {
        inputs.push(format!("{} ms of speech", decision.voiced_ms));
    }
    if decision.silence_ms > 0 {
        inputs.push(format!("{} ms of silence", decision.silence_ms));
    }
    if decision.words > 0 {
        inputs.push(format!("{} words", decision.words));
    }
    if let Some(profile) = &decision.profile {
        inputs.push(format!("rules for {profile}"));
    }
    inputs.push(format!("by {}", decision.source));
    format!("{what} ({})", inputs.join(", "))
}

/// The parts with bars, and their sum.
fn delay(text: &mut String, timing: &ExportedTiming) {
    text.push_str("  from the user's last sound to the agent's first:\n");
    let longest = timing.parts().iter().map(|(_, us)| *us).max().unwrap_or(0).max(1);
    for (part, us) in timing.parts() {
        let bar = usize::try_from(us.saturating_mul(BAR).div_ceil(longest)).unwrap_or(0);
        let line = format!("    {part:<8}{:>9} ms  {}", ms(us), "#".repeat(bar));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = writeln!(text, "    {:<8}{:>9} ms", "sum", ms(timing.total_us));
}

fn ms(us: u64) -> String {
    format!("{}.{}", us / 1000, us % 1000 / 100)
}

fn positions(text: &mut String, turn: &ExportedTurn) {
    let positions = &turn.positions;
    let known = [
        (positions.generated, "generated"),
        (positions.sent, "sent"),
        (positions.played_end, "played"),
        (positions.heard_at, "heard when the user began"),
    ];
    let known: Vec<String> =
        known.into_iter().filter_map(|(samples, what)| Some(format!("{what} {}", seconds(samples? / 48)))).collect();
    if !known.is_empty() {
        let _ = writeln!(text, "  of the reply: {}", known.join(", "));
    }
}
