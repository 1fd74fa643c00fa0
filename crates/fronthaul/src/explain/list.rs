//! The calls of a transceiver as a table.

use std::fmt::Write as _;

use transceiver::record::{ExportedCall, ExportedCalls};

const HEAD: [&str; 7] = ["SESSION", "MODEL", "STATE", "BEGAN", "LASTED", "TURNS", "LAST WRONG THING"];

/// All of it.
pub(super) fn table(calls: &ExportedCalls) -> String {
    let over = calls.calls.iter().filter(|call| !call.live).count();
    let mut text = format!(
        "{} on, {over} that ended lately{}\n",
        if calls.live == 1 { "1 call goes".to_owned() } else { format!("{} calls go", calls.live) },
        if calls.left_out > 0 { format!("; {} more are not listed", calls.left_out) } else { String::new() },
    );
    if calls.calls.is_empty() {
        return text;
    }
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(calls.calls.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; HEAD.len()] = std::array::from_fn(width);
    text.push('\n');
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push_str("\nfronthaul explain SESSION tells one of them turn by turn\n");
    text
}

fn row(call: &ExportedCall) -> [String; HEAD.len()] {
    let wrong = call.wrong.as_ref();
    [
        call.session.clone(),
        call.model.to_string(),
        call.state.replace('_', " "),
        format!("{} ago", long(call.lasted_ms + call.ended_ago_ms.unwrap_or(0))),
        long(call.lasted_ms),
        call.turns.to_string(),
        wrong.map_or_else(|| "-".to_owned(), |wrong| format!("at {}: {}", long(wrong.at_ms), wrong.what)),
    ]
}

/// In the two largest units.
fn long(ms: u64) -> String {
    let s = ms / 1000;
    match (s / 3600, s / 60 % 60, s % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, minutes, s) => format!("{minutes} min {s} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use transceiver::record::ExportedWrong;

    use super::*;

    #[test]
    fn calls_are_a_table_with_what_went_wrong_last() {
        let live = ExportedCall {
            session: "rtc_000000000000004d".to_owned(),
            model: "parrot".into(),
            live: true,
            state: "agent_speaking".into(),
            began_unix_ms: 1_000_000,
            lasted_ms: 75_400,
            ended_ago_ms: None,
            turns: 12,
            wrong: None,
        };
        let over = ExportedCall {
            session: "rtc_000000000000000b".to_owned(),
            live: false,
            state: "over".into(),
            lasted_ms: 9100,
            ended_ago_ms: Some(7_200_000),
            turns: 1,
            wrong: Some(ExportedWrong { at_ms: 4000, what: "the reply failed: no reason is known".to_owned() }),
            ..live.clone()
        };
        let told = "\
1 call goes on, 1 that ended lately; 2 more are not listed

SESSION               MODEL   STATE           BEGAN           LASTED      TURNS  LAST WRONG THING
rtc_000000000000004d  parrot  agent speaking  1 min 15 s ago  1 min 15 s  12     -
rtc_000000000000000b  parrot  over            2 h 0 min ago   9 s         1      at 4 s: the reply failed: no reason is known

fronthaul explain SESSION tells one of them turn by turn
";
        assert_eq!(table(&ExportedCalls { live: 1, left_out: 2, calls: vec![live, over] }), told);
        assert_eq!(table(&ExportedCalls::default()), "0 calls go on, 0 that ended lately\n");
    }
}
