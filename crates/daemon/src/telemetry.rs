//! The metrics of this process and their rendering for Prometheus.
//!
//! Hot paths count in plain integers of their own; shells copy them into `metrics` a few times per second.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::StartError;
use crate::log;

/// The registry behind `metrics::counter!` and its siblings; clones are the same.
#[derive(Clone)]
pub struct Metrics {
    prometheus: PrometheusHandle,
    /// Runtimes whose tasks are counted.
    runtimes: Arc<Mutex<Vec<Handle>>>,
}

impl Metrics {
    /// Makes a registry and installs it for the whole process.
    ///
    /// # Errors
    ///
    /// When the process has one already.
    pub fn install() -> Result<Self, StartError> {
        let recorder = PrometheusBuilder::new().build_recorder();
        let prometheus = recorder.handle();
        metrics::set_global_recorder(recorder)
            .map_err(|error| StartError::failed("installing the metrics registry", error))?;
        describe_gauge!("process_open_fds", "Open file descriptors of this process");
        describe_gauge!("process_resident_memory_bytes", "Resident memory of this process");
        describe_gauge!("fronthaul_tokio_tasks", "Tasks that are alive, summed over all runtimes of this process");
        describe_counter!("fronthaul_log_lines_dropped_total", "Log lines dropped because nobody took them in time");
        Ok(Self { prometheus, runtimes: Arc::default() })
    }

    /// Counts the tasks of the runtime in `fronthaul_tokio_tasks`.
    pub fn register_runtime(&self, runtime: Handle) {
        self.runtimes.lock().unwrap_or_else(PoisonError::into_inner).push(runtime);
    }

    /// All metrics in Prometheus' text format, with those of the process read at this moment.
    pub fn render(&self) -> String {
        self.read_process();
        self.prometheus.run_upkeep();
        self.prometheus.render()
    }

    fn read_process(&self) {
        let runtimes = self.runtimes.lock().unwrap_or_else(PoisonError::into_inner);
        let tasks: usize = runtimes.iter().map(|runtime| runtime.metrics().num_alive_tasks()).sum();
        let tasks = tasks + LOCAL_TASKS.load(Ordering::Relaxed);
        gauge!("fronthaul_tokio_tasks").set(float(tasks));
        counter!("fronthaul_log_lines_dropped_total").absolute(log::dropped());
        if let Some(open) = open_descriptors() {
            gauge!("process_open_fds").set(float(open));
        }
        if let Some(bytes) = resident_bytes() {
            gauge!("process_resident_memory_bytes").set(float(bytes));
        }
    }
}

/// Tasks of `LocalSet`s: no runtime's metrics know them.
static LOCAL_TASKS: AtomicUsize = AtomicUsize::new(0);

struct Alive;

impl Drop for Alive {
    fn drop(&mut self) {
        LOCAL_TASKS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a task of a `LocalSet` in `fronthaul_tokio_tasks`, from now until it ended or was dropped.
pub fn counted<F: Future>(task: F) -> impl Future<Output = F::Output> {
    LOCAL_TASKS.fetch_add(1, Ordering::Relaxed);
    let alive = Alive;
    async move {
        let _alive = alive;
        task.await
    }
}

/// [`tokio::task::spawn_local`], counted.
pub fn spawn_local<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    tokio::task::spawn_local(counted(task))
}

fn open_descriptors() -> Option<usize> {
    // The one that lists the others is not counted.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1))
}

fn resident_bytes() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: usize = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

fn float(count: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
    let float = count as f64;
    float
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
