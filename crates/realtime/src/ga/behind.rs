//! What stands behind requests that wait in the call.
//!
//! Over WebSocket a client sends faster than real time: its commit waits until the audio before it was heard. What it writes behind the
//! commit means the conversation after it, so it waits here, as it came, and is read when the requests before it had their turn.
//!
//! Invariant: requests stand in the order of the call's [`Waited`](crate::Waited), and nothing is read before what stood ahead of it.

use std::collections::VecDeque;

use super::client::ClientEvent;
use super::request::Terms;
use crate::limits::{MAX_WAITING, MAX_WAITING_BYTES};

#[derive(Debug)]
pub(super) enum Behind {
    /// A request that waits in the call: its `event_id`, and the terms of a response.
    Request(Option<String>, Option<Terms>),
    /// A client's event.
    Event(String),
    /// What was appended and not committed is forgotten.
    Cleared,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: VecDeque<Behind>,
    /// Of events.
    bytes: usize,
}

impl Queue {
    /// Whether an event has to wait: a new item behind a request, and behind such an item whatever may speak of it.
    pub(super) fn holds_back(&self, event: &ClientEvent) -> bool {
        match event {
            ClientEvent::ItemCreate { previous: None, .. } => !self.entries.is_empty(),
            ClientEvent::ItemCreate { .. }
            | ClientEvent::ItemRetrieve { .. }
            | ClientEvent::ItemTruncate { .. }
            | ClientEvent::ItemDelete { .. }
            | ClientEvent::SessionUpdate(_) => self.entries.iter().any(|entry| matches!(entry, Behind::Event(_))),
            // The call has an order of its own for these, or they mean now.
            ClientEvent::InputAppend { .. }
            | ClientEvent::InputCommit
            | ClientEvent::InputClear
            | ClientEvent::ResponseCreate(_)
            | ClientEvent::ResponseCancel { .. }
            | ClientEvent::OutputClear
            | ClientEvent::PlayoutDelay { .. }
            | ClientEvent::Unknown(_) => false,
        }
    }

    /// Something stands here.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// `false`: there is no room. The call lets [`MAX_WAITING`] requests wait.
    pub(super) fn push(&mut self, entry: Behind) -> bool {
        let bytes = size(&entry);
        let fits = self.entries.len() < 2 * MAX_WAITING && self.bytes + bytes <= MAX_WAITING_BYTES;
        if fits {
            self.bytes += bytes;
            self.entries.push_back(entry);
        }
        fits
    }

    /// The request that stands first.
    pub(super) fn request(&mut self) -> (Option<String>, Option<Terms>) {
        match self.entries.pop_front() {
            Some(Behind::Request(cause, terms)) => (cause, terms),
            other => {
                // Requests stand first: what stood behind the one before was read.
                self.entries.extend(other);
                (None, None)
            }
        }
    }

    /// What stands first and is no request.
    pub(super) fn next(&mut self) -> Option<Behind> {
        let entry = self.entries.pop_front_if(|entry| !matches!(entry, Behind::Request(..)))?;
        self.bytes -= size(&entry);
        Some(entry)
    }

    /// Bytes of what is kept here.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn size(entry: &Behind) -> usize {
    if let Behind::Event(text) = entry { text.len() } else { 0 }
}
