//! Collectors that take spans, that come late, and that never answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use daemon::config::Secret;
use link::ids::{Epoch, SessionId};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use super::super::tests::answered;
use super::super::{CallName, Over};
use super::*;

fn told() -> Told {
    let call = CallName { session: SessionId(0xab), epoch: Epoch(1), model: "parrot".into() };
    Told { call, began: SystemTime::now(), over: Over::Turn(Arc::new(answered())) }
}

/// An exporter whose counts are its own.
fn start(address: SocketAddr) -> (Exporter, Spans, PrometheusHandle) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let counts = recorder.handle();
    let headers = [("authorization".to_owned(), Secret::new("Bearer word"))].into();
    let config = OtlpConfig { endpoint: format!("http://{address}"), headers };
    let started = metrics::with_local_recorder(&recorder, || Exporter::start(&config, 7));
    let (exporter, spans) = started.unwrap().unwrap();
    (exporter, spans, counts)
}

fn count(counts: &PrometheusHandle, result: &str) -> u64 {
    let name = format!("fronthaul_transceiver_otlp_records_total{{result=\"{result}\"}} ");
    let text = counts.render();
    text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

/// A collector that hands over what it gets, with the header.
struct Collector(mpsc::UnboundedSender<(ExportTraceServiceRequest, String)>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let header = request.metadata().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        self.0.send((request.into_inner(), header.unwrap_or_default())).unwrap();
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn collect(listener: TcpListener) -> mpsc::UnboundedReceiver<(ExportTraceServiceRequest, String)> {
    let (sender, requests) = mpsc::unbounded_channel();
    let server = tonic::transport::Server::builder().add_service(TraceServiceServer::new(Collector(sender)));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    requests
}

#[tokio::test]
async fn a_collector_gets_the_spans_of_a_record_with_who_sends_them() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (exporter, spans, counts) = start(listener.local_addr().unwrap());
    let mut requests = collect(listener);
    spans.tell(told());
    let (request, header) = requests.recv().await.unwrap();
    assert_eq!(header, "Bearer word");
    let resource = request.resource_spans[0].resource.as_ref().unwrap();
    let attribute = |name: &str| {
        let found = resource.attributes.iter().find(|attribute| attribute.key == name);
        found.and_then(|attribute| attribute.value.clone()?.value)
    };
    let text = |text: &str| Some(Value::StringValue(text.to_owned()));
    assert_eq!(attribute("service.name"), text("fronthaul-transceiver"));
    assert_eq!(attribute("service.instance.id"), text("7"));
    let got = &request.resource_spans[0].scope_spans[0].spans;
    assert_eq!(got.len(), 8);
    assert!(got.iter().all(|span| span.trace_id == u128::to_be_bytes(0xab)));
    let lasted = |name: &str| {
        let span = got.iter().find(|span| span.name == name).unwrap();
        span.end_time_unix_nano - span.start_time_unix_nano
    };
    let parts = ["uplink", "repair", "silence", "backend", "encode", "playout"].map(lasted);
    assert_eq!((parts.iter().sum::<u64>(), lasted("mouth_to_ear")), (594_000_000, 594_000_000));
    drop(spans);
    tokio::task::spawn_blocking(|| exporter.finish()).await.unwrap();
    assert_eq!(["exported", "failed", "dropped"].map(|result| count(&counts, result)), [1, 0, 0]);
}

#[tokio::test]
async fn a_collector_that_comes_late_gets_what_comes_after() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (exporter, spans, counts) = start(address);
    spans.tell(told());
    while count(&counts, "failed") == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut requests = collect(TcpListener::bind(address).await.unwrap());
    spans.tell(told());
    assert!(requests.recv().await.is_some());
    drop(spans);
    tokio::task::spawn_blocking(|| exporter.finish()).await.unwrap();
    assert_eq!(["exported", "failed", "dropped"].map(|result| count(&counts, result)), [1, 1, 0]);
}

#[test]
fn a_collector_that_never_answers_costs_what_the_queue_does_not_hold_and_no_wait() {
    // The kernel takes connections for it; nobody reads them, as of a process that was stopped.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (exporter, spans, counts) = start(listener.local_addr().unwrap());
    let many = 3 * QUEUE;
    for _ in 0..many {
        spans.tell(told());
    }
    let dropped = usize::try_from(count(&counts, "dropped")).unwrap();
    assert!((many - QUEUE - BATCH..=many - QUEUE).contains(&dropped), "{dropped}");
    assert_eq!(["exported", "failed"].map(|result| count(&counts, result)), [0, 0]);
    drop(spans);
    // It ends, too.
    exporter.finish();
}

#[test]
fn without_an_endpoint_there_is_no_thread() {
    assert!(Exporter::start(&OtlpConfig::default(), 7).unwrap().is_none());
}
