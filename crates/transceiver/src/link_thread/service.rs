//! The gRPC service: checks who calls, hands the request to the link thread's loop and waits for its word.

use std::pin::Pin;

use link::grpc::caller;
use link::ids::{EdgeId, Slot};
use link::proto::transceiver_server::Transceiver;
use link::proto::{
    HelloRequest, HelloResponse, LeaseGrant, LeaseRequest, OpenRequest, OpenResponse, ReleaseRequest, ReleaseResponse,
};
use link::quic::Peer;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use crate::admission::Refusal;

/// Requests that wait for the loop, which takes them in turn with everything else.
pub(super) const COMMANDS: usize = 256;

/// Grants that wait for an edge: one per second, so an edge that is this far behind reads nothing.
const GRANTS: usize = 4;

/// What the service asks of the link thread's loop.
pub(super) enum Command {
    Open { link: u64, request: OpenRequest, reply: oneshot::Sender<Result<Slot, Refusal>> },
    Release { request: ReleaseRequest, reply: oneshot::Sender<()> },
    Lease { edge: EdgeId, link: u64, grants: mpsc::Sender<LeaseGrant> },
}

pub(super) struct Service {
    id: u32,
    models: Vec<String>,
    commands: mpsc::Sender<Command>,
}

impl Service {
    pub(super) fn new(id: u32, models: Vec<String>, commands: mpsc::Sender<Command>) -> Self {
        Self { id, models, commands }
    }

    async fn command(&self, command: Command) -> Result<(), Status> {
        self.commands.send(command).await.map_err(|_| stopping())
    }
}

#[tonic::async_trait]
impl Transceiver for Service {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloResponse>, Status> {
        let edge = edge(&request)?;
        tracing::info!(edge = edge.0, software = request.get_ref().software, "hello");
        Ok(Response::new(HelloResponse {
            transceiver: self.id,
            software: concat!("fronthaul/", env!("CARGO_PKG_VERSION")).to_owned(),
            models: self.models.clone(),
        }))
    }

    type LeaseStream = Pin<Box<dyn Stream<Item = Result<LeaseGrant, Status>> + Send>>;

    async fn lease(&self, request: Request<LeaseRequest>) -> Result<Response<Self::LeaseStream>, Status> {
        let edge = edge(&request)?;
        let link = caller(&request).map_or(0, |caller| caller.link);
        let (grants, stream) = mpsc::channel(GRANTS);
        self.command(Command::Lease { edge, link, grants }).await?;
        let stream = tokio_stream::StreamExt::map(ReceiverStream::new(stream), Ok);
        Ok(Response::new(Box::pin(stream)))
    }

    async fn open(&self, request: Request<OpenRequest>) -> Result<Response<OpenResponse>, Status> {
        edge(&request)?;
        let link = caller(&request).map_or(0, |caller| caller.link);
        let (reply, opened) = oneshot::channel();
        self.command(Command::Open { link, request: request.into_inner(), reply }).await?;
        let slot = opened.await.map_err(|_| stopping())?.map_err(refused)?;
        Ok(Response::new(OpenResponse { slot: slot.0 }))
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        edge(&request)?;
        let (reply, released) = oneshot::channel();
        self.command(Command::Release { request: request.into_inner(), reply }).await?;
        released.await.map_err(|_| stopping())?;
        Ok(Response::new(ReleaseResponse {}))
    }
}

/// The edge that calls, as its certificate says: what requests say of themselves does not count.
fn edge<T>(request: &Request<T>) -> Result<EdgeId, Status> {
    match caller(request).map(|caller| caller.peer) {
        Some(Peer::Edge(edge)) => Ok(edge),
        _ => Err(Status::permission_denied("only edges, over a link")),
    }
}

fn refused(refusal: Refusal) -> Status {
    let code = match refusal {
        Refusal::NoSeat => Code::ResourceExhausted,
        Refusal::Draining | Refusal::Overloaded | Refusal::Congested => Code::Unavailable,
        Refusal::Model => Code::NotFound,
        Refusal::StaleEpoch | Refusal::TicketUsed => Code::FailedPrecondition,
        Refusal::Malformed => Code::InvalidArgument,
    };
    Status::new(code, refusal.label())
}

fn stopping() -> Status {
    Status::unavailable("stopping")
}
