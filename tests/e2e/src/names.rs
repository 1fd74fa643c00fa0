//! What actors and events are called in the log.

use std::fmt::{self, Display};

use ::link::proto::{EdgeMessage, TransceiverMessage, edge_message, playout_effect, transceiver_message};
use serde_json::Value;

pub(crate) fn actor(kind: &str, number: usize) -> String {
    format!("{kind}{number}")
}

pub(crate) fn event_name(event: &Value) -> &str {
    event["type"].as_str().unwrap_or("untyped")
}

/// The ids in an event.
pub(crate) struct EventIds<'a>(pub(crate) &'a Value);

impl Display for EventIds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = self.0;
        let places = [&event["event_id"], &event["item_id"], &event["response_id"], &event["item"]["id"]];
        let ids = places.into_iter().chain([&event["response"]["id"], &event["session"]["id"]]);
        for (index, id) in ids.filter_map(Value::as_str).enumerate() {
            write!(f, "{}{id}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

pub(crate) fn edge_message_name(message: &EdgeMessage) -> &'static str {
    match &message.kind {
        Some(edge_message::Kind::Connected(_)) => "connected",
        Some(edge_message::Kind::ChannelOpened(_)) => "channel_opened",
        Some(edge_message::Kind::ChannelMessage(_)) => "channel_message",
        Some(edge_message::Kind::ChannelClosed(_)) => "channel_closed",
        Some(edge_message::Kind::OversizeFrame(_)) => "oversize_frame",
        Some(edge_message::Kind::Closed(_)) => "client_closed",
        Some(edge_message::Kind::Reflex(_)) => "reflex",
        Some(edge_message::Kind::Playout(effect)) => match effect.kind() {
            playout_effect::Kind::Unspecified => "unspecified",
            playout_effect::Kind::Started => "playout_started",
            playout_effect::Kind::Paused => "playout_paused",
            playout_effect::Kind::Resumed => "playout_resumed",
            playout_effect::Kind::Flushed => "playout_flushed",
            playout_effect::Kind::Finished => "playout_finished",
            playout_effect::Kind::Underrun => "playout_underrun",
        },
        None => "empty",
    }
}

pub(crate) fn transceiver_message_name(message: &TransceiverMessage) -> &'static str {
    match &message.kind {
        Some(transceiver_message::Kind::ChannelMessage(_)) => "channel_message",
        Some(transceiver_message::Kind::Pause(_)) => "pause",
        Some(transceiver_message::Kind::Resume(_)) => "resume",
        Some(transceiver_message::Kind::Flush(_)) => "flush",
        Some(transceiver_message::Kind::Close(_)) => "close",
        Some(transceiver_message::Kind::Reflex(_)) => "reflex_settings",
        Some(transceiver_message::Kind::Clip(_)) => "clip",
        None => "empty",
    }
}
