//! Why a WebSocket session ends, and what its client is told.

use serde_json::{Value, json};

/// The longest reason that a close frame holds (RFC 6455 §5.5).
const REASON_MAX: usize = 123;

/// Why a session ended: labels of the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The client closed it.
    Client,
    /// The connection broke, or its first bytes after the handshake never came.
    Lost,
    /// The transceiver ended it, or the call that it listened to is over.
    Ended,
    /// The link to the transceiver broke.
    TransceiverLost,
    /// No transceiver took the session.
    OpenFailed,
    /// The call to join is not there.
    NotFound,
    /// The client does not read.
    SlowReader,
    /// A message of the client's was too large.
    TooLarge,
    /// The client broke the protocol.
    Protocol,
    /// Nothing came from the client.
    PingTimeout,
    /// The key's longest duration is over.
    TimeLimit,
    /// The edge stops.
    Draining,
    /// The client speaks the beta's dialect.
    Beta,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Client,
        Self::Lost,
        Self::Ended,
        Self::TransceiverLost,
        Self::OpenFailed,
        Self::NotFound,
        Self::SlowReader,
        Self::TooLarge,
        Self::Protocol,
        Self::PingTimeout,
        Self::TimeLimit,
        Self::Draining,
        Self::Beta,
    ];

    pub(crate) fn index(self) -> usize {
        Self::ALL.iter().position(|one| *one == self).unwrap_or_default()
    }

    /// The label of the counter.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Lost => "lost",
            Self::Ended => "ended",
            Self::TransceiverLost => "transceiver_lost",
            Self::OpenFailed => "open_failed",
            Self::NotFound => "not_found",
            Self::SlowReader => "slow_reader",
            Self::TooLarge => "too_large",
            Self::Protocol => "protocol",
            Self::PingTimeout => "ping_timeout",
            Self::TimeLimit => "time_limit",
            Self::Draining => "draining",
            Self::Beta => "beta",
        }
    }
}

/// The end of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Why.
    pub reason: Reason,
    /// The close code.
    pub code: u16,
    /// The text beside it.
    pub text: String,
    /// An event before it.
    pub event: Option<String>,
    /// Whether what waits for the client is sent before.
    pub flush: bool,
}

impl Ending {
    /// As the reason says by itself.
    #[must_use]
    pub fn of(reason: Reason) -> Self {
        let invalid = |code, message: &str| Some(error_event("invalid_request_error", code, message));
        let failed = |code, message: &str| Some(error_event("server_error", code, message));
        let (code, text, event) = match reason {
            Reason::Client | Reason::Lost | Reason::Ended => (1000, "", None),
            Reason::TransceiverLost => {
                (1011, "transceiver_lost", failed("transceiver_lost", "The session was lost; connect again."))
            }
            Reason::OpenFailed => {
                (1013, "open_failed", failed("open_failed", "No transceiver took the session; connect again."))
            }
            Reason::NotFound => {
                let message = "No session found for the provided call_id.";
                (1008, "call_id_not_found", invalid("call_id_not_found", message))
            }
            Reason::SlowReader => (1008, "slow_reader", None),
            Reason::TooLarge => {
                let message = "A message has more than 1 MiB: send audio and items in smaller ones.";
                (1009, "message_too_large", invalid("message_too_large", message))
            }
            Reason::Protocol => (1002, "protocol_error", None),
            Reason::PingTimeout => (1011, "ping_timeout", None),
            Reason::TimeLimit => {
                let message = "Your session hit the longest duration that its key allows.";
                (1001, message, invalid("session_expired", message))
            }
            Reason::Draining => (1012, "draining", None),
            Reason::Beta => {
                let message = "The beta of the Realtime API is not served: leave out the header OpenAI-Beta: realtime=v1 and \
                               the subprotocol openai-beta.realtime-v1, and use the API as it is now.";
                let code = "beta_api_shape_disabled";
                (4000, "invalid_request_error.beta_api_shape_disabled", invalid(code, message))
            }
        };
        let flush = !matches!(reason, Reason::SlowReader | Reason::PingTimeout | Reason::Lost | Reason::Client);
        Self { reason, code, text: text.to_owned(), event, flush }
    }

    /// As the transceiver says: `code` 0 is 1000, and one that nobody may send is 1011 (RFC 6455 §7.4).
    #[must_use]
    pub fn told(code: u32, reason: &str) -> Self {
        let known = |code: u16| matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
        let code = match u16::try_from(code) {
            Ok(0) => 1000,
            Ok(code) if known(code) => code,
            _ => 1011,
        };
        if reason == "call_id_not_found" {
            return Self::of(Reason::NotFound);
        }
        Self { code, text: cut(reason).to_owned(), ..Self::of(Reason::Ended) }
    }
}

/// As much of a reason as a close frame holds.
fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(REASON_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

/// An `error` event of the edge's own.
#[must_use]
pub fn error_event(kind: &str, code: &str, message: &str) -> String {
    let error =
        json!({ "type": kind, "code": code, "message": message, "param": Value::Null, "event_id": Value::Null });
    json!({ "type": "error", "event_id": format!("event_edge_{code}"), "error": error }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transceivers_code_is_passed_on_if_it_may_be_sent() {
        for (told, sent) in [
            (0, 1000),
            (1000, 1000),
            (1001, 1001),
            (1012, 1012),
            (4000, 4000),
            (1005, 1011),
            (70_000, 1011),
            (999, 1011),
        ] {
            assert_eq!(Ending::told(told, "over").code, sent, "{told}");
        }
        assert_eq!(Ending::told(0, "call_id_not_found").code, 1008);
    }

    /// Code, text and event of each end are a row of the table that clients are promised.
    #[test]
    fn the_docs_have_a_row_for_each_end() {
        let docs = include_str!("../../../../docs/REALTIME.md");
        let rows: Vec<Vec<&str>> = docs.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        let quoted = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
        for reason in Reason::ALL {
            let Ending { code, text, event, .. } = Ending::of(reason);
            let event = event.map(|event| serde_json::from_str::<Value>(&event).unwrap());
            let told = event.as_ref().map_or("", |event| event["error"]["code"].as_str().unwrap());
            let is_row = |row: &&Vec<&str>| {
                let [_, in_code, in_text, _, in_event, _] = row[..] else { return false };
                let says = in_text.contains(&quoted(&text)) || (in_text == "the event's message" && code == 1001);
                in_code == code.to_string() && says && in_event == quoted(told)
            };
            assert!(rows.iter().any(|row| is_row(&row)), "{reason:?}: {code} {text} {told}");
        }
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let ending = Ending::told(1000, &"ä".repeat(100));
        assert_eq!(ending.text, "ä".repeat(61));
    }

    #[test]
    fn each_reason_fits_a_close_frame_and_has_its_own_label() {
        let labels: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.label()).collect();
        assert_eq!(labels.len(), Reason::ALL.len());
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert!(Ending::of(reason).text.len() <= REASON_MAX, "{reason:?}");
        }
    }
}
