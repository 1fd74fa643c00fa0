//! The records of a call from a transceiver's log.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use daemon::StartError;
use serde_json::Value;
use transceiver::record::{ExportedSession, ExportedTurn};

/// Reads the log, or the records alone, one a line. Without a session it is the last call's.
///
/// # Errors
/// The file cannot be read, or the call is not in it.
pub(super) fn read(file: &Path, session: Option<&str>) -> Result<ExportedSession, StartError> {
    let unreadable = |error| StartError::File(format!("--file {}: {error}", file.display()));
    let lines: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(file).map_err(unreadable)?))
    };
    collect(lines, session).map_err(unreadable)?.ok_or_else(|| {
        let what = session.map_or_else(|| "a turn".to_owned(), |session| format!("a turn of {session}"));
        StartError::File(format!(
            "--file {}: it has no record of {what}. The transceiver writes one per turn at level info with \
             log.format = \"json\"; lines that went before are in an older file",
            file.display()
        ))
    })
}

/// `None`: the call is not there.
pub(super) fn collect(lines: impl BufRead, session: Option<&str>) -> io::Result<Option<ExportedSession>> {
    let mut turns: Vec<ExportedTurn> = Vec::new();
    for line in lines.split(b'\n') {
        let Some(turn) = turn_of(&line?) else { continue };
        if session.is_some_and(|session| session != turn.session) {
            continue;
        }
        // The last call's alone are wanted then.
        if turns.last().is_some_and(|last| last.session != turn.session) {
            turns.clear();
        }
        turns.push(turn);
    }
    Ok(turns.last().map(|last| (last.session.clone(), last.model.clone())).map(|(session, model)| ExportedSession {
        session,
        model,
        live: false,
        given_up: 0,
        turns,
    }))
}

/// Of a line of the log, of one behind the origin that `fronthaul up` writes, or of a record by itself.
fn turn_of(line: &[u8]) -> Option<ExportedTurn> {
    let from = line.iter().position(|byte| *byte == b'{')?;
    let mut value: Value = serde_json::from_slice(&line[from..]).ok()?;
    let record = match value.get_mut("record").map(Value::take) {
        Some(Value::String(record)) => return serde_json::from_str(&record).ok(),
        Some(record) => record,
        None => value,
    };
    serde_json::from_value(record).ok().filter(|turn: &ExportedTurn| !turn.outcome.is_empty())
}
