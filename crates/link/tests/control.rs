//! gRPC over the link: calls, streams, deadlines and who called.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::pin::Pin;
use std::time::Duration;

use link::grpc;
use link::proto::transceiver_server::Transceiver;
use link::proto::{
    HelloRequest, HelloResponse, LeaseGrant, LeaseRequest, OpenRequest, OpenResponse, ReleaseRequest, ReleaseResponse,
};
use link::quic::{Incoming, Link};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Code, Request, Response, Status};

mod support;
use support::{EDGE, Pair, soon};

/// Answers with what it saw.
struct Mirror;

#[tonic::async_trait]
impl Transceiver for Mirror {
    type LeaseStream = Pin<Box<dyn Stream<Item = Result<LeaseGrant, Status>> + Send>>;

    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloResponse>, Status> {
        let caller = grpc::caller(&request).ok_or_else(|| Status::internal("no caller"))?;
        Ok(Response::new(HelloResponse {
            transceiver: 7,
            software: format!("{} over link {}", caller.peer, caller.link),
            models: vec!["parrot".into()],
        }))
    }

    async fn lease(&self, _: Request<LeaseRequest>) -> Result<Response<Self::LeaseStream>, Status> {
        let grants = (1..=3).map(|seats| Ok(LeaseGrant { seats, draining: seats == 3 }));
        Ok(Response::new(Box::pin(tokio_stream::iter(grants))))
    }

    async fn open(&self, request: Request<OpenRequest>) -> Result<Response<OpenResponse>, Status> {
        match request.get_ref().model.as_str() {
            "parrot" => Ok(Response::new(OpenResponse { slot: 5 })),
            "slow" => {
                tokio::time::sleep(Duration::from_secs(60)).await;
                Ok(Response::new(OpenResponse { slot: 6 }))
            }
            other => Err(Status::resource_exhausted(format!("no seat for {other}"))),
        }
    }

    async fn release(&self, _: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        Ok(Response::new(ReleaseResponse {}))
    }
}

/// A transceiver's accept loop, as far as control goes.
fn serve(link: Link) {
    let (streams, incoming) = mpsc::channel(8);
    tokio::spawn(async move {
        while let Ok(incoming) = link.accept().await {
            if let Incoming::Control(stream) = incoming {
                streams.send(stream).await.unwrap();
            }
        }
    });
    tokio::spawn(grpc::serve(Mirror, ReceiverStream::new(incoming)));
}

#[tokio::test]
async fn calls_streams_and_refusals_cross_the_link() {
    let pair = Pair::new().await;
    let link_id = pair.transceiver.id();
    serve(pair.transceiver.clone());
    let mut control = pair.edge.control();

    let hello = soon("Hello", control.hello(HelloRequest { edge: 1, software: "test".into() })).await.unwrap();
    assert_eq!(hello.get_ref().software, format!("{EDGE} over link {link_id}"));
    assert_eq!(hello.get_ref().models, ["parrot"]);

    let lease = soon("Lease", control.lease(LeaseRequest { edge: 1 })).await.unwrap();
    let grants: Vec<_> = soon("grants", lease.into_inner().map(Result::unwrap).collect()).await;
    assert_eq!(
        grants.iter().map(|grant| (grant.seats, grant.draining)).collect::<Vec<_>>(),
        [(1, false), (2, false), (3, true)]
    );

    let open = |model: &str| OpenRequest { session: 1, epoch: 1, model: model.into(), ..Default::default() };
    assert_eq!(soon("Open", control.open(open("parrot"))).await.unwrap().get_ref().slot, 5);
    let refused = soon("Open", control.open(open("gpt"))).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, "no seat for gpt"));

    let release = ReleaseRequest { session: 1, epoch: 1, reason: "done".into() };
    soon("Release", control.release(release)).await.unwrap();
}

#[tokio::test]
async fn clients_of_one_link_share_its_stream_and_their_calls_run_side_by_side() {
    let pair = Pair::new().await;
    serve(pair.transceiver.clone());
    let mut slow = pair.edge.control();
    let stuck = tokio::spawn(async move {
        let mut request = Request::new(OpenRequest { model: "slow".into(), ..Default::default() });
        request.set_timeout(Duration::from_millis(500));
        slow.open(request).await
    });
    let mut control = pair.edge.control();
    for _ in 0..20 {
        soon("Hello", control.hello(HelloRequest::default())).await.unwrap();
    }
    let late = soon("the deadline", stuck).await.unwrap().unwrap_err();
    assert!(matches!(late.code(), Code::Cancelled | Code::DeadlineExceeded), "{late}");
}

#[tokio::test]
async fn calls_fail_with_the_link() {
    let pair = Pair::new().await;
    serve(pair.transceiver.clone());
    let mut control = pair.edge.control();
    soon("Hello", control.hello(HelloRequest::default())).await.unwrap();
    let mut waiting = control.clone();
    let waiting =
        tokio::spawn(async move { waiting.open(OpenRequest { model: "slow".into(), ..Default::default() }).await });
    tokio::task::yield_now().await;
    pair.transceiver.close("gone");
    assert!(soon("the waiting call", waiting).await.unwrap().is_err());
    assert!(soon("a later call", control.hello(HelloRequest::default())).await.is_err());
}
