//! The few events that the edge itself says on the client's channel, when there is no transceiver to say them.

use serde_json::json;

/// The label of the channel that carries events, as OpenAI's clients open it.
pub(crate) const CHANNEL_LABEL: &str = "oai-events";

/// `session.created` of a session that the edge answers itself.
pub(crate) fn session_created(session: u64, model: &str) -> String {
    json!({
        "type": "session.created",
        "event_id": format!("event_{session:016x}_1"),
        "session": {
            "type": "realtime",
            "object": "realtime.session",
            "id": format!("sess_{session:016x}"),
            "model": model,
            "output_modalities": ["audio"],
        },
    })
    .to_string()
}

/// `error`, the last event before the edge ends a call.
pub(crate) fn error(session: u64, code: &str, message: &str) -> String {
    json!({
        "type": "error",
        "event_id": format!("event_{session:016x}_0"),
        "error": {
            "type": "server_error",
            "code": code,
            "message": message,
            "param": null,
            "event_id": null,
        },
    })
    .to_string()
}
