//! The admin port over real HTTP. One test, because the metrics registry belongs to the process.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::SocketAddr;

use daemon::{Lifecycle, Metrics, Phase, admin, bind};

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut response = agent.get(format!("http://{address}{path}")).call().unwrap();
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{metrics}")).parse().unwrap()
}

#[test]
fn health_readiness_and_metrics_follow_the_daemon() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    let metrics = Metrics::install().unwrap();
    metrics.register_runtime(handle.clone());
    let life = Lifecycle::new();
    let link = life.condition("link to transceiver 1");
    let listener = bind::tcp("admin_bind", SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    handle.spawn(admin::serve(listener, metrics, life.clone()));

    assert_eq!(get(address, "/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(get(address, "/readyz"), (503, "starting\n".to_owned()));
    life.advance(Phase::Ready);
    assert_eq!(get(address, "/readyz"), (503, "link to transceiver 1: not yet\n".to_owned()));
    link.met();
    assert_eq!(get(address, "/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(get(address, "/elsewhere").0, 404);

    metrics::counter!("fronthaul_test_total", "reason" => "fact").increment(3);
    let (status, before) = get(address, "/metrics");
    assert_eq!(status, 200);
    assert!(before.contains("fronthaul_test_total{reason=\"fact\"} 3\n"), "{before}");
    assert!(value(&before, "process_open_fds") >= 3.0);
    assert!(value(&before, "process_resident_memory_bytes") > 1e6);
    assert!(value(&before, "fronthaul_log_lines_dropped_total") == 0.0);

    let files: Vec<_> = (0..5).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    let tasks: Vec<_> = (0..7).map(|_| handle.spawn(std::future::pending::<()>())).collect();
    let (_, during) = get(address, "/metrics");
    assert_eq!(value(&during, "process_open_fds") - value(&before, "process_open_fds"), 5.0);
    assert_eq!(value(&during, "fronthaul_tokio_tasks") - value(&before, "fronthaul_tokio_tasks"), 7.0);
    drop(files);
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}
