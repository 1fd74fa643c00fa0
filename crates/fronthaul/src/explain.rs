//! `fronthaul explain`: what happened in a call, in words, with the first wrong thing on top.
//!
//! The records come from a transceiver's admin port, or from its log. [`tell`] makes the words of them, [`list`] the table of
//! calls; both are pure.

mod fetch;
mod list;
mod log;
mod tell;
#[cfg(test)]
mod tests;

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use daemon::StartError;
use serde::Serialize;

#[derive(Debug, Args)]
pub(crate) struct ExplainOptions {
    /// The call: its id as the API gives it in `Location`, `rtc_` and 16 hex digits. Without it the calls that go on or ended
    /// lately are listed; with --file it is the last call of the file.
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// The admin port of the transceiver that has or had the call.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9081", conflicts_with = "file")]
    admin: String,
    /// Read the transceiver's log instead, written with `log.format = "json"`. `-` is standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print the records as JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the timeline.
pub(crate) fn run(options: &ExplainOptions) -> Result<(), StartError> {
    let text = match (&options.file, options.session.as_deref()) {
        (Some(file), wanted) => options.show(&log::read(file, wanted)?, tell::story)?,
        (None, Some(session)) => options.show(&fetch::session(&options.admin, session)?, tell::story)?,
        (None, None) => options.show(&fetch::calls(&options.admin)?, list::table)?,
    };
    // Nobody can be told that standard output is gone.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(())
}

impl ExplainOptions {
    fn show<T: Serialize>(&self, records: &T, in_words: impl Fn(&T) -> String) -> Result<String, StartError> {
        if !self.json {
            return Ok(in_words(records));
        }
        let json = serde_json::to_string_pretty(records);
        Ok(json.map_err(|error| StartError::failed("writing the records", error))? + "\n")
    }
}
