//! gRPC over one QUIC stream: HTTP/2 runs on a control stream as it would on a TCP connection.

use std::io;

use hyper_util::rt::TokioIo;
use quinn::Connection;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Request;
use tonic::transport::{Channel, Endpoint, Server, Uri};

use crate::proto::transceiver_server::{Transceiver, TransceiverServer};
use crate::quic::{ConnectInfo, QuicStream, open_control};

/// The message of an Open that is refused since its ticket brought a call before: nobody else is to be asked.
pub const TICKET_USED: &str = "ticket_used";

/// Serves the control streams of a process, those that [`crate::quic::Link::accept`] gave, until `incoming` ends.
///
/// # Errors
/// What tonic says of a service that cannot be served.
pub async fn serve(
    service: impl Transceiver,
    incoming: impl Stream<Item = QuicStream>,
) -> Result<(), tonic::transport::Error> {
    Server::builder()
        .add_service(TransceiverServer::new(service))
        .serve_with_incoming(incoming.map(Ok::<_, io::Error>))
        .await
}

/// Who calls, and over which link. `None`: not over a link.
#[must_use]
pub fn caller<T>(request: &Request<T>) -> Option<ConnectInfo> {
    request.extensions().get().copied()
}

/// A channel that opens its stream with the first call. It opens another one if that stream ends before the connection
/// does; after that, every call fails.
pub(crate) fn channel(connection: Connection, info: ConnectInfo) -> Channel {
    let connector = tower::service_fn(move |_: Uri| {
        let connection = connection.clone();
        async move { open_control(connection, info).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://transceiver.fronthaul.internal").connect_with_connector_lazy(connector)
}
