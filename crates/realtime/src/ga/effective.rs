//! A session before it begins: what `session.created` would show, for whoever hands out keys to it.

use serde_json::Value;

use super::session::{intended, read_requested};
use super::settings::Settings;
use crate::Config;
use crate::ids::Ids;

/// Why a session cannot begin as it is asked for, in the API's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// For clients.
    pub code: Option<&'static str>,
    /// For people.
    pub message: String,
    /// The field at fault, as a path that begins with `session`.
    pub param: Option<String>,
}

/// The session with which a [`Session`](super::Session) of this config would begin, defaults filled in.
///
/// # Errors
/// What is asked for cannot be.
pub fn effective_session(config: &Config) -> Result<Value, Unfit> {
    let requested = read_requested(&config.requested);
    let intent = intended(requested.as_ref().ok(), config.intent);
    let mut settings = Settings::new(&Ids::new(config.seed).mint("sess_"), intent, config);
    let patched = requested.and_then(|patch| settings.patch(patch, false));
    patched.map(|()| settings.as_json().clone()).map_err(|error| error.unfit())
}
