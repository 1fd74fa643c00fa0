//! `proto/fronthaul/backend/v1` over gRPC: docs/BACKENDS.md.
//!
//! Each call is one stream ([`Conversing`]); all calls of a target share its connection ([`Endpoint`]).

mod endpoint;
pub mod proto;
mod words;

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Instant;

use futures_util::{Sink, Stream, StreamExt as _};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::PollSender;
use tonic::{Code, Status};
use voice::BackendInput;

use crate::driver::Beginning;
use crate::{Lost, Machine, Told};
pub use endpoint::{BadEndpoint, Endpoint};

/// Inputs on their way into the connection: what HTTP/2 has no room for waits in the driver, which drops the oldest audio there.
const SENDING: usize = 8;

/// Where inputs go.
pub type Up = Pin<Box<dyn Sink<proto::Input, Error = tokio_util::sync::PollSendError<proto::Input>> + Send>>;

/// Where outputs come from.
pub type Down = Pin<Box<dyn Stream<Item = Result<proto::Output, Lost>> + Send>>;

/// Opens a stream.
///
/// # Errors
/// There is none to be had.
pub async fn open(endpoint: &Endpoint, beginning: Beginning) -> Result<(Conversing, Up, Down), Lost> {
    let mut machine = Conversing::new(beginning);
    let (to_stream, inputs) = tokio::sync::mpsc::channel(SENDING);
    // Some servers answer only when they have read something.
    while let Some(input) = machine.poll_up() {
        let _ = to_stream.try_send(input);
    }
    let asked = endpoint.request(ReceiverStream::new(inputs));
    let answered = endpoint.client().converse(asked).await.map_err(|status| lost(&status))?;
    let outputs = answered.into_inner().map(|output| output.map_err(|status| lost(&status)));
    Ok((machine, Box::pin(PollSender::new(to_stream)), Box::pin(outputs)))
}

fn lost(status: &Status) -> Lost {
    let reason = match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => "refused",
        Code::Unimplemented | Code::NotFound => "unknown",
        Code::OutOfRange | Code::Internal | Code::InvalidArgument => "protocol",
        Code::ResourceExhausted => "overloaded",
        _ => "closed",
    };
    let is_final = matches!(reason, "refused" | "unknown");
    Lost { reason, detail: format!("{:?}: {}", status.code(), status.message()), is_final }
}

/// One stream, without I/O.
#[derive(Debug)]
pub struct Conversing {
    /// Of the backend's PCM, in Hz.
    rate: u32,
    ups: VecDeque<proto::Input>,
    told: VecDeque<Told>,
}

impl Conversing {
    /// A stream that begins so.
    #[must_use]
    pub fn new(beginning: Beginning) -> Self {
        let rate = beginning.session.rate;
        Self { rate, ups: VecDeque::from([words::start(beginning)]), told: VecDeque::new() }
    }
}

impl Machine for Conversing {
    type Up = proto::Input;
    type Down = proto::Output;

    fn handle_input(&mut self, _: Instant, input: BackendInput) {
        self.ups.push_back(words::input(input));
    }

    fn handle_down(&mut self, _: Instant, down: proto::Output) -> Result<(), Lost> {
        let heard = words::output(down, &mut self.rate);
        self.told.extend(heard.map_or_else(|odd| vec![Told::Odd(odd)], |told| vec![told]));
        Ok(())
    }

    fn handle_timeout(&mut self, _: Instant) -> Result<(), Lost> {
        Ok(())
    }

    fn poll_up(&mut self) -> Option<proto::Input> {
        self.ups.pop_front()
    }

    fn poll_output(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
