//! `fronthaul explain`: what happened in a call, in words, with the first wrong thing on top.
//!
//! The records come from a transceiver's admin port, or from its log. [`tell`] makes the words of them and [`wrong`] judges
//! them; both are pure.

mod fetch;
mod log;
mod tell;
#[cfg(test)]
mod tests;
mod wrong;

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use daemon::StartError;

#[derive(Debug, Args)]
pub(crate) struct ExplainOptions {
    /// The call: its id as the API gives it in `Location`, `rtc_` and 16 hex digits. With --file it may be left out: the last
    /// call of the file.
    #[arg(value_name = "SESSION", required_unless_present = "file")]
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
    let wanted = options.session.as_deref();
    let session = match &options.file {
        Some(file) => log::read(file, wanted)?,
        None => fetch::session(&options.admin, wanted.unwrap_or_default())?,
    };
    let text = if options.json {
        let json = serde_json::to_string_pretty(&session);
        json.map_err(|error| StartError::failed("writing the records", error))? + "\n"
    } else {
        tell::story(&session)
    };
    // Nobody can be told that standard output is gone.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(())
}
