//! `proto/fronthaul/backend/v1` over gRPC: docs/BACKENDS.md.
//!
//! Each call is one stream ([`Conversing`]); all calls of a target share its connection ([`Endpoint`]).

mod endpoint;
pub mod proto;
mod words;

use std::collections::VecDeque;
use std::error::Error as _;
use std::pin::Pin;

use futures_util::{Sink, Stream, StreamExt as _};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::PollSender;
use tonic::{Code, Status, Streaming};
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
    let start = machine.poll_up();
    let opened = match converse(endpoint, start.clone()).await {
        // The connection is of no use any more, which is known once it is used.
        Err(status) if status.source().is_some() => converse(endpoint, start).await,
        opened => opened,
    };
    let (up, outputs) = opened.map_err(|status| lost(&status))?;
    let outputs = outputs.map(|output| output.map_err(|status| lost(&status)));
    Ok((machine, Box::pin(PollSender::new(up)), Box::pin(outputs)))
}

/// A stream that begins with this, as some servers answer only when they have read something.
async fn converse(
    endpoint: &Endpoint,
    start: Option<proto::Input>,
) -> Result<(mpsc::Sender<proto::Input>, Streaming<proto::Output>), Status> {
    let (up, inputs) = mpsc::channel(SENDING);
    if let Some(start) = start {
        // It is the first of several that there is room for.
        let _ = up.try_send(start);
    }
    let asked = endpoint.request(ReceiverStream::new(inputs));
    let answered = endpoint.client().converse(asked).await?;
    Ok((up, answered.into_inner()))
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

    fn handle_input(&mut self, input: BackendInput) {
        self.ups.push_back(words::input(input));
    }

    fn handle_down(&mut self, down: proto::Output) -> Result<(), Lost> {
        match words::output(down, &mut self.rate) {
            // Nothing that it says could be played.
            Err("rate") => return Err(Lost::new("protocol", "capabilities.rate is neither 0 nor 8000 to 48000 Hz")),
            Err(odd) => self.told.push_back(Told::Odd(odd)),
            Ok(told) => self.told.push_back(told),
        }
        Ok(())
    }

    fn poll_up(&mut self) -> Option<proto::Input> {
        self.ups.pop_front()
    }

    fn poll_output(&mut self) -> Option<Told> {
        self.told.pop_front()
    }
}
