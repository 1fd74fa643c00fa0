//! A running transceiver: its threads, started and ended in order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use backends::BackendThread;
use daemon::bind::{self, Transport};
use daemon::{ConfigError, Problem, StartError};
use link::identity::{NodeIdentity, Role, default_state_dir};
use link::ids::TransceiverId;
use link::quic::{Endpoint, EndpointError};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::LocalSet;

use crate::backend::Models;
use crate::call::CallConfig;
use crate::config::{Config, load_models};
use crate::judge::JudgeThread;
use crate::link_thread::{self, Parts, Stop, WorkerEnds};
use crate::record::Records;
use crate::record::otlp::Exporter;
use crate::worker::thread as worker_thread;

/// One transceiver. Dropped without [`Transceiver::stop`], it ends its calls at once.
#[derive(Debug)]
pub struct Transceiver {
    link_addr: SocketAddr,
    runtime: tokio::runtime::Handle,
    records: Records,
    stop: watch::Sender<Stop>,
    ended: Option<oneshot::Receiver<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Transceiver {
    /// Loads the node's identity, binds the link's port and starts the threads.
    ///
    /// # Errors
    /// State that cannot be used, a port that cannot be had, threads that cannot be started.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        let identity = identity(config)?;
        let (started, start) = std::sync::mpsc::channel();
        let (stop, stopping) = watch::channel(Stop::No);
        let (ending, ended) = oneshot::channel();
        let config = config.clone();
        let thread = std::thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || {
                match bring_up(&config, &identity) {
                    Ok(up) => {
                        // The caller waits for exactly this.
                        let _ = started.send(Ok((up.link_addr, up.runtime.handle().clone(), up.records.clone())));
                        up.run(&config, stopping);
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
                let _ = ending.send(());
            })
            .map_err(|error| StartError::failed("starting the link thread", error))?;
        let (link_addr, runtime, records) =
            start.recv().map_err(|_| StartError::failed("starting the link thread", "it ended"))??;
        Ok(Self { link_addr, runtime, records, stop, ended: Some(ended), thread: Some(thread) })
    }

    /// Where edges dial.
    #[must_use]
    pub fn link_addr(&self) -> SocketAddr {
        self.link_addr
    }

    /// The link thread's runtime, for counting its tasks.
    #[must_use]
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// What happened in the calls that go on and those that ended lately.
    #[must_use]
    pub fn records(&self) -> Records {
        self.records.clone()
    }

    /// Takes no more calls, tells the edges, and ends the calls that are still here after `grace`.
    pub fn stop(&self, grace: Duration) {
        let now = Instant::now();
        self.stop.send_replace(Stop::By(now.checked_add(grace).unwrap_or(now)));
    }

    /// Waits until all threads ended. Cancel safe.
    pub async fn ended(&mut self) {
        if let Some(ended) = &mut self.ended {
            // An error is the thread's panic: it ended too.
            let _ = ended.await;
            self.ended = None;
        }
    }
}

impl Drop for Transceiver {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// All that may fail, done.
struct Up {
    runtime: Runtime,
    endpoint: Endpoint,
    link_addr: SocketAddr,
    workers: Vec<WorkerEnds>,
    threads: Vec<JoinHandle<()>>,
    records: Records,
    models: Models,
    exporter: Option<Exporter>,
    judge: Option<JudgeThread>,
    backends: Option<BackendThread>,
}

fn bring_up(config: &Config, identity: &NodeIdentity) -> Result<Up, StartError> {
    let failed = |error| StartError::failed("starting the link's runtime", error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let endpoint = {
        let _entered = runtime.enter();
        Endpoint::server(identity, config.link_bind).map_err(refused)?
    };
    let link_addr = endpoint.local_addr().map_err(failed)?;
    let models = load_models(&config.models, config.voice.backend_rate_hz)
        .map_err(|problems| ConfigError { file: None, problems })?;
    let judge = JudgeThread::start(&config.voice.turn_end)?;
    let backends = models.any_remote().then(BackendThread::start).transpose();
    let backends = backends.map_err(|error| StartError::failed("starting the thread of backends", error))?;
    let calls = CallConfig {
        models: models.clone(),
        backends: backends.as_ref().map(BackendThread::backends),
        judge: judge.as_ref().map(JudgeThread::judges),
        ..CallConfig::from(&config.voice)
    };
    let (exporter, spans) = Exporter::start(&config.otlp, config.id)?.unzip();
    let mut up = Up {
        runtime,
        endpoint,
        link_addr,
        workers: Vec::new(),
        threads: Vec::new(),
        records: Records::default(),
        models,
        exporter,
        judge,
        backends,
    };
    let cores = net::pin::cores();
    let count = if config.workers == 0 { cores.len().max(1) } else { config.workers };
    for index in 0..count {
        // Pinned one per core when they are as many as the cores; fewer or more are the scheduler's business.
        let core = if count == cores.len() { cores.get(index).copied() } else { None };
        let outputs_ready = Arc::new(Notify::new());
        // On failure the workers started before end by themselves: their rings are abandoned.
        let worker = worker_thread::start(index, core, calls.clone(), Arc::clone(&outputs_ready), spans.clone())
            .map_err(|error| StartError::failed("starting a worker", error))?;
        up.workers.push(WorkerEnds { to_worker: worker.to_worker, from_worker: worker.from_worker, outputs_ready });
        up.records.add(worker.asks, worker.thread.thread().clone());
        up.threads.push(worker.thread);
    }
    Ok(up)
}

impl Up {
    fn run(self, config: &Config, stop: watch::Receiver<Stop>) {
        let Self { runtime, endpoint, workers, threads, models, exporter, judge, backends, .. } = self;
        let parts = Parts { id: config.id, seats: config.seats, models, endpoint, workers, stop };
        let tasks = LocalSet::new();
        runtime.block_on(tasks.run_until(link_thread::run(parts)));
        drop(tasks);
        for thread in threads {
            // A panic was reported by the thread itself.
            let _ = thread.join();
        }
        drop(judge);
        drop(backends);
        if let Some(exporter) = exporter {
            exporter.finish();
        }
    }
}

fn identity(config: &Config) -> Result<NodeIdentity, StartError> {
    let state_dir = if config.state_dir.is_empty() {
        default_state_dir().ok_or_else(|| {
            let fix = "set state_dir, or HOME or XDG_STATE_HOME in the environment";
            Problem::new("state_dir", "\"\"", "there is no home directory to put it in", fix)
        })?
    } else {
        PathBuf::from(&config.state_dir)
    };
    NodeIdentity::load_or_create(&state_dir, Role::Transceiver(TransceiverId(config.id))).map_err(|error| {
        Problem::new("state_dir", format_args!("\"{}\"", state_dir.display()), error.reason(), error.fix()).into()
    })
}

fn refused(error: EndpointError) -> StartError {
    match error {
        EndpointError::Socket { address, source } => {
            bind::refused("link_bind", address, Transport::Udp, &source).into()
        }
        other => StartError::failed("making the link's endpoint", other),
    }
}
