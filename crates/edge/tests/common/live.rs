//! A whole edge on loopback sockets, and callers on a foreign stack.

use std::net::{SocketAddr, UdpSocket};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use daemon::Metrics;
use edge::{Config, Edge};

use super::Client;

pub(crate) fn metrics() -> Metrics {
    static METRICS: OnceLock<Metrics> = OnceLock::new();
    METRICS.get_or_init(|| Metrics::install().unwrap()).clone()
}

/// A state directory that goes with the test.
pub(crate) struct StateDir(pub(crate) std::path::PathBuf);

impl StateDir {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fronthaul-edge-{name}-{}", std::process::id()));
        Self(path)
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Of an edge on free ports that answers everything itself.
pub(crate) fn config(state: &StateDir, workers: usize) -> Config {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    Config {
        workers,
        media_bind: any,
        http_bind: any,
        admin_bind: any,
        default_model: "echo".to_owned(),
        models: [("echo".to_owned(), "echo".to_owned())].into(),
        transceivers: vec![],
        state_dir: state.0.clone(),
        drain_timeout_ms: 500,
        ..Config::default()
    }
}

pub(crate) fn start(name: &str, workers: usize) -> (Edge, StateDir) {
    let state = StateDir::new(name);
    (Edge::start(config(&state, workers), metrics()).unwrap(), state)
}

/// A client of HTTP to which no status is an error.
pub(crate) fn agent() -> ureq::Agent {
    ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build())
}

pub(crate) struct Caller {
    pub(crate) client: Client,
    /// More than one: a client whose network changes, as the kernel of the edge sees it.
    sockets: Vec<UdpSocket>,
    pub(crate) sending: usize,
    pub(crate) location: String,
    pub(crate) url: String,
}

impl Caller {
    pub(crate) fn dial(edge: &Edge, model: &str) -> Self {
        Self::dial_from(edge, model, vec![UdpSocket::bind("127.0.0.1:0").unwrap()])
    }

    pub(crate) fn dial_from(edge: &Edge, model: &str, sockets: Vec<UdpSocket>) -> Self {
        for socket in &sockets {
            socket.set_nonblocking(true).unwrap();
        }
        let mut client = Client::new(Instant::now(), sockets[0].local_addr().unwrap());
        let url = format!("http://{}", edge.http_addr());
        let mut response = ureq::post(format!("{url}/v1/realtime/calls?model={model}"))
            .content_type("application/sdp")
            .send(client.offer())
            .unwrap();
        assert_eq!(response.status(), 201);
        let location = response.headers()["location"].to_str().unwrap().to_owned();
        client.accept(&response.body_mut().read_to_string().unwrap());
        Self { client, sockets, sending: 0, location, url }
    }

    /// One round: send, receive, time.
    pub(crate) fn turn(&mut self) {
        let now = Instant::now();
        self.client.drain(now);
        while let Some((to, datagram)) = self.client.outbox.pop_front() {
            self.sockets[self.sending].send_to(&datagram, to).unwrap();
        }
        let mut buffer = [0; 2048];
        let mut idle = true;
        for socket in &self.sockets {
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                idle = false;
                self.client.receive(Instant::now(), from, &buffer[..length]);
            }
        }
        if self.client.timeout <= Instant::now() {
            self.client.tick(Instant::now());
        } else if idle {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&Client) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds(&self.client) {
            assert!(Instant::now() < deadline, "not within 20 s: {what}");
            self.turn();
        }
    }

    pub(crate) fn connect(&mut self) {
        self.until("session.created", |client| client.connected && !client.messages.is_empty());
    }
}

pub(crate) fn admin(edge: &Edge, path: &str) -> (u16, String) {
    let url = format!("http://{}{path}", edge.admin_addr());
    let mut response = agent().get(url).call().unwrap();
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

pub(crate) fn metric(edge: &Edge, name: &str) -> f64 {
    let text = admin(edge, "/metrics").1;
    let line = text.lines().find(|line| line.split_once(' ').is_some_and(|(key, _)| key == name));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit(' ').next().unwrap().parse().unwrap()
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
