//! Takes records to a collector of OpenTelemetry spans (OTLP over gRPC).
//!
//! Run loop: workers hand over what is over ([`Spans::tell`]), which never waits; a thread of its own takes what is there,
//! at most [`BATCH`] at once, sends it and waits for the answer, at most [`PATIENCE`].
//!
//! Invariant: a collector that is slow, stopped or gone costs spans, which are counted, and nothing else: what finds the
//! queue full is dropped, what a request could not deliver is not sent again.

use std::thread::JoinHandle;
use std::time::Duration;

use daemon::StartError;
use metrics::{Counter, counter, describe_counter};
use opentelemetry::KeyValue;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::sync::{mpsc, oneshot};
use tonic::transport::Endpoint;

use super::spans::Told;
use crate::config::OtlpConfig;

/// Records that wait: 1024 calls with a turn each 6 s fill it in 6 s. At 1 KiB usually 1 MiB; each of them with 64
/// decisions of 56 bytes and a reason of 800 bytes, 5 MiB.
const QUEUE: usize = 1024;

/// Records of one request: 8 spans and some 6 events of 500 bytes each, about 0.5 MiB; collectors take 4 MiB. The rest of
/// the queue comes at once behind it.
const BATCH: usize = 64;

/// For one request, connecting included.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection whose other end does not answer is given up after both, while a request waits.
const PROBE: Duration = Duration::from_secs(10);

/// For what is still queued when the calls are over.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The workers' end.
#[derive(Clone)]
pub(crate) struct Spans {
    queue: mpsc::Sender<Told>,
    dropped: Counter,
}

impl Spans {
    /// Hands over what is over; dropped when the queue is full.
    pub(crate) fn tell(&self, told: Told) {
        if self.queue.try_send(told).is_err() {
            self.dropped.increment(1);
        }
    }
}

/// The thread.
pub(crate) struct Exporter {
    thread: JoinHandle<()>,
    finish: oneshot::Sender<()>,
}

impl Exporter {
    /// Starts it, if there is a collector. Whether that answers is seen with the first record.
    ///
    /// # Errors
    /// An endpoint or headers that cannot be, a thread that cannot be started.
    pub(crate) fn start(config: &OtlpConfig, transceiver: u32) -> Result<Option<(Self, Spans)>, StartError> {
        if config.endpoint.is_empty() {
            return Ok(None);
        }
        let failed = |error: &dyn std::fmt::Display| StartError::failed("starting the export of spans", error);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
        let exporter = {
            // The channel's task needs a runtime.
            let _entered = runtime.enter();
            exporter(config, transceiver)?
        };
        let (queue, records) = mpsc::channel(QUEUE);
        let (finish, finished) = oneshot::channel();
        let counts = Counts::new();
        let spans = Spans { queue, dropped: counts.dropped.clone() };
        let sending = Sending { exporter, records, endpoint: config.endpoint.clone(), counts, failing: false };
        let thread = std::thread::Builder::new()
            .name("spans".to_owned())
            .spawn(move || runtime.block_on(sending.run(finished)))
            .map_err(|error| failed(&error))?;
        Ok(Some((Self { thread, finish }, spans)))
    }

    /// Nothing more comes: waits until the rest is sent, at most two seconds.
    pub(crate) fn finish(self) {
        // Errors: the thread has ended, and said so itself if it panicked.
        let _ = self.finish.send(());
        let _ = self.thread.join();
    }
}

fn exporter(config: &OtlpConfig, transceiver: u32) -> Result<SpanExporter, StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::failed("starting the export of spans", error);
    let metadata = config.metadata().map_err(|problems| {
        problems.into_iter().next().map_or_else(|| failed(&"headers cannot be sent"), StartError::from)
    })?;
    let endpoint = Endpoint::from_shared(config.endpoint.clone()).map_err(|error| failed(&error))?;
    let channel = endpoint
        .connect_timeout(PATIENCE)
        .timeout(PATIENCE)
        .http2_keep_alive_interval(PROBE)
        .keep_alive_timeout(PROBE)
        .connect_lazy();
    let mut exporter = SpanExporter::builder()
        .with_tonic()
        .with_channel(channel)
        .with_metadata(metadata)
        .with_timeout(PATIENCE)
        .build()
        .map_err(|error| failed(&error))?;
    let resource = Resource::builder_empty()
        .with_detector(Box::new(EnvResourceDetector::new()))
        .with_service_name("fronthaul-transceiver")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("service.instance.id", transceiver.to_string()))
        .build();
    exporter.set_resource(&resource);
    Ok(exporter)
}

/// `fronthaul_transceiver_otlp_records_total` by its results.
struct Counts {
    exported: Counter,
    failed: Counter,
    dropped: Counter,
}

impl Counts {
    fn new() -> Self {
        describe_counter!("fronthaul_transceiver_otlp_records_total", "Records for the collector of spans, by result");
        let of = |result: &'static str| {
            let counter = counter!("fronthaul_transceiver_otlp_records_total", "result" => result);
            counter.increment(0);
            counter
        };
        Self { exported: of("exported"), failed: of("failed"), dropped: of("dropped") }
    }
}

struct Sending {
    exporter: SpanExporter,
    records: mpsc::Receiver<Told>,
    endpoint: String,
    counts: Counts,
    /// The last request was in vain: said once.
    failing: bool,
}

impl Sending {
    async fn run(mut self, finished: oneshot::Receiver<()>) {
        let ending = async {
            // An error is an owner that is gone.
            let _ = finished.await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        tokio::select! {
            () = self.send_all() => {}
            () = ending => {}
        }
    }

    async fn send_all(&mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        while self.records.recv_many(&mut batch, BATCH).await > 0 {
            let mut spans = Vec::new();
            for told in &batch {
                told.spans(&mut spans);
            }
            let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
            batch.clear();
            let sent = tokio::time::timeout(PATIENCE, self.exporter.export(spans)).await;
            let reason = match sent {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("no answer within {} s", PATIENCE.as_secs())),
            };
            match &reason {
                None => self.counts.exported.increment(count),
                Some(_) => self.counts.failed.increment(count),
            }
            self.say(reason.as_deref());
        }
    }

    /// One line when it begins to fail, one when it works again.
    fn say(&mut self, reason: Option<&str>) {
        let endpoint = &self.endpoint;
        match (reason, std::mem::replace(&mut self.failing, reason.is_some())) {
            (Some(reason), false) => {
                tracing::warn!(endpoint, reason, "spans are lost: the collector does not take them")
            }
            (None, true) => tracing::info!(endpoint, "the collector takes spans again"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
