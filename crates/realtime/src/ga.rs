//! The Realtime API in its general-availability form: JSON events, one per message, both ways.
//!
//! Invariant: whatever the order of inputs, at most one response is being made; each `response.created` is followed by one
//! `response.done` at most, and by exactly one once the call told of its end; every item that was added is done; and the
//! events of one response keep the order created, item added, part added, deltas, dones, item done, `response.done`, playout stopped or cleared.
//! Playout starts anywhere between part added and its end: a model that is faster than speech is done before the first packet leaves.
//! What is held is bounded ([`limits`](crate::limits)).
//!
//! | part | what |
//! |---|---|
//! | `client`, `error` | reading client events, and what is wrong with them |
//! | `session` | the machine, and which part answers what |
//! | `effective` | the session object of a session that did not begin |
//! | `settings`, `patch`, `check`, `vad` | the session object and `session.update` |
//! | `buffer` | `input_audio_buffer.*` and the user's words |
//! | `items`, `item`, `conversation`, `truncation` | `conversation.item.*` |
//! | `request`, `response`, `making`, `calls` | `response.*`, `output_audio_buffer.*` and `rate_limits.updated` |
//!
//! Not implemented: MCP (its items are kept as they are, its events are never sent), `conversation.created` and the
//! `conversation.item.created` of the beta, transcripts with segments and log probabilities, and more than one response at a time
//! (`conversation: "none"` is taken, one after the other).

mod behind;
mod buffer;
mod calls;
mod check;
mod client;
mod conversation;
mod effective;
mod error;
mod item;
mod items;
mod making;
mod patch;
mod request;
mod response;
mod session;
mod settings;
mod truncation;
mod vad;

pub use effective::{Unfit, effective_session};
pub use session::Session;
