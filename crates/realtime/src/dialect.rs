//! The boundary between a call and the language of its client.

use std::time::Instant;

use crate::audio::AudioFormat;
use crate::call::{Close, Command, Input, ModelSettings};
use crate::turn::TurnDetection;

/// What was counted of one client, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Client messages that came.
    pub client_events: u64,
    /// Of these, what came too fast and was not read.
    pub flooded: u64,
    /// `error` events sent.
    pub errors: u64,
    /// Inputs about responses and turns not known (any more).
    pub stale_inputs: u64,
    /// Words and tool calls of the model's beyond what is kept.
    pub overflows: u64,
}

/// One client's session in one dialect. Four kinds of methods:
///
/// * inputs: [`handle_client`](Self::handle_client), [`handle_client_binary`](Self::handle_client_binary),
///   [`handle`](Self::handle), [`handle_timeout`](Self::handle_timeout);
/// * outputs, polled until all are empty after every input: [`poll_command`](Self::poll_command), then
///   [`poll_event`](Self::poll_event), then [`closing`](Self::closing);
/// * the timer: [`poll_timeout`](Self::poll_timeout);
/// * what the call asks: settings and names as they are now.
///
/// A command that could not be done is answered with the `...Refused` [`Input`] before the next client message, so that the
/// error names the message that caused it. Time never goes back.
pub trait Dialect {
    /// One text message of the client's.
    fn handle_client(&mut self, now: Instant, text: &str);
    /// One binary message of the client's: events are text.
    fn handle_client_binary(&mut self, now: Instant);
    /// What happened in the call.
    fn handle(&mut self, input: Input);
    /// What is due.
    fn handle_timeout(&mut self, now: Instant);
    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    fn poll_timeout(&self) -> Option<Instant>;
    /// The next wish for the call.
    fn poll_command(&mut self) -> Option<Command>;
    /// The next event for the client, as text, at most [`MAX_EVENT_BYTES`](crate::MAX_EVENT_BYTES).
    fn poll_event(&mut self) -> Option<String>;
    /// The session is over: close the connection behind the last event. Inputs do nothing any more.
    fn closing(&self) -> Option<&Close>;
    /// How turns are to be found.
    fn turn_detection(&self) -> TurnDetection;
    /// What the model is told.
    fn model_settings(&self) -> ModelSettings;
    /// How audio for the client is coded inside events.
    fn output_format(&self) -> AudioFormat;
    /// The id of the item that carries a response, once it has one.
    fn item_id(&self, response: u64) -> Option<&str>;
    /// What was counted so far.
    fn counters(&self) -> Counters;
}
