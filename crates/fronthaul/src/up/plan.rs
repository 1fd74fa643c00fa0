//! Which ports and keys the two daemons get, checked before either is started.

use std::env;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;

use daemon::bind::{self, Transport};
use daemon::{ConfigError, Problem, StartError};

use crate::cli::UpOptions;

pub(super) struct Plan {
    pub(super) edge_admin: SocketAddr,
    pub(super) transceiver_admin: SocketAddr,
    http: SocketAddr,
    media: SocketAddr,
    link: SocketAddr,
    advertise: Vec<String>,
    state_dir: PathBuf,
    edge_set: Vec<String>,
    transceiver_set: Vec<String>,
    /// Who answers beside the models that are built in, or why nobody does.
    agent: Option<Answers>,
    /// Shown by the page's address alone, where other machines reach the edge.
    key: Option<String>,
}

/// The agent that was asked for.
enum Answers {
    /// It runs there.
    At { name: String, address: SocketAddr },
    /// It could not be had.
    Not { name: String, reason: String },
}

/// The environment variable in which the edge gets it, as arguments are for everybody to read.
pub(super) const KEY_VARIABLE: &str = "FRONTHAUL_UP_KEY";

impl Plan {
    /// Takes each port for a moment, so that all that are taken are reported at once, and by this process. A port 0 stays
    /// one: the daemons say which they got.
    pub(super) fn new(options: &UpOptions) -> Result<Self, StartError> {
        let mut ports = Ports::default();
        let everywhere = everywhere(&options.advertise);
        let at = |given: Option<SocketAddr>, port| {
            given.unwrap_or_else(|| SocketAddr::new(everywhere.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), port))
        };
        let media = ports.udp("--media", at(options.media, 3478));
        let http = ports.tcp("--http", at(options.http, 8080));
        let link = ports.udp("--link", options.link);
        let edge_admin = ports.tcp("--edge-admin", options.edge_admin);
        let transceiver_admin = ports.tcp("--transceiver-admin", options.transceiver_admin);
        let state_dir = options.state_dir.clone().or_else(default_state_dir);
        if state_dir.is_none() {
            let reason = "neither XDG_STATE_HOME nor HOME names an absolute path";
            ports.problems.push(Problem::new(
                "--state-dir",
                "",
                reason,
                "name the directory for keys and certificates",
            ));
        }
        match state_dir {
            Some(state_dir) if ports.problems.is_empty() => Ok(Self {
                edge_admin,
                transceiver_admin,
                http,
                media,
                link,
                advertise: if options.advertise.is_empty() {
                    vec![media.ip().to_string()]
                } else {
                    options.advertise.clone()
                },
                state_dir,
                edge_set: options.edge_set.clone(),
                transceiver_set: options.transceiver_set.clone(),
                agent: None,
                key: needs_key(options, http).then(draw_key),
            }),
            _ => Err(ConfigError { file: None, problems: ports.problems }.into()),
        }
    }

    /// Where agents keep what they need.
    pub(super) fn agents_dir(&self) -> PathBuf {
        self.state_dir.join("agents")
    }

    /// An agent answers there, as the model of its name.
    pub(super) fn agent_listens(&mut self, name: &str, address: SocketAddr) {
        self.agent = Some(Answers::At { name: name.to_owned(), address });
    }

    /// An agent could not be had.
    pub(super) fn agent_fails(&mut self, name: &str, reason: String) {
        self.agent = Some(Answers::Not { name: name.to_owned(), reason });
    }

    /// What the transceiver announced.
    pub(super) fn transceiver_listens(&mut self, ports: &[(String, SocketAddr)]) {
        learn(ports, "link", &mut self.link);
        learn(ports, "admin", &mut self.transceiver_admin);
    }

    /// What the edge announced.
    pub(super) fn edge_listens(&mut self, ports: &[(String, SocketAddr)]) {
        learn(ports, "http", &mut self.http);
        learn(ports, "media", &mut self.media);
        learn(ports, "admin", &mut self.edge_admin);
    }

    pub(super) fn edge_arguments(&self) -> Vec<String> {
        let public: Vec<String> = self.advertise.iter().map(|address| format!("{address:?}")).collect();
        let mut keys = vec![
            format!("media_bind={}", self.media),
            format!("public=[{}]", public.join(", ")),
            format!("http_bind={}", self.http),
            format!("admin_bind={}", self.edge_admin),
            format!("transceivers=[{{ id = 1, address = \"{}\" }}]", self.link),
            format!("state_dir={}", self.state_dir.display()),
        ];
        if self.key.is_some() {
            keys.push(format!("auth.keys=[{{ id = \"page\", key = \"env:{KEY_VARIABLE}\" }}]"));
        }
        if let Some(Answers::At { name, .. }) = &self.agent {
            keys.extend([format!("models.{name}=\"{name}\""), format!("default_model=\"{name}\"")]);
        }
        keys.extend(self.edge_set.iter().cloned());
        assignments(keys)
    }

    /// What the edge alone is to know.
    pub(super) fn edge_environment(&self) -> Option<(&'static str, &str)> {
        self.key.as_deref().map(|key| (KEY_VARIABLE, key))
    }

    pub(super) fn transceiver_arguments(&self) -> Vec<String> {
        let mut keys = vec![
            format!("link_bind={}", self.link),
            format!("admin_bind={}", self.transceiver_admin),
            format!("state_dir={}", self.state_dir.display()),
        ];
        if let Some(Answers::At { name, address }) = &self.agent {
            keys.extend([
                format!("models.{name}.kind=\"grpc\""),
                format!("models.{name}.url=\"http://{address}\""),
                format!("models.{name}.fallback=[\"parrot\"]"),
            ]);
        }
        keys.extend(self.transceiver_set.iter().cloned());
        assignments(keys)
    }

    /// The page's address for a browser: the first advertised one, unless HTTP is bound to an address of its own.
    fn page(&self) -> SocketAddr {
        let bound = self.http.ip();
        let advertised = self.advertise.first().and_then(|address| parse_advertised(address));
        let host = advertised.filter(|_| bound.is_unspecified()).unwrap_or(bound);
        SocketAddr::new(host, self.http.port())
    }
}

fn learn(ports: &[(String, SocketAddr)], name: &str, address: &mut SocketAddr) {
    if let Some((_, found)) = ports.iter().find(|(other, _)| other == name) {
        *address = *found;
    }
}

/// Whoever says nothing about keys gets one as soon as others reach the edge.
fn needs_key(options: &UpOptions, http: SocketAddr) -> bool {
    !http.ip().is_loopback() && !options.edge_set.iter().any(|set| set.trim_start().starts_with("auth."))
}

/// 24 characters of 6 bits, for an address. It is a new one with each start.
fn draw_key() -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bytes: [u8; 24] = rand::random();
    bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 64)])).collect()
}

/// What is printed once both are ready.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Fronthaul is up.\n")?;
        match &self.key {
            Some(key) => writeln!(f, "  page   http://{}/#key={key}", self.page())?,
            None => writeln!(f, "  page   http://{}/", self.page())?,
        }
        writeln!(f, "  media  UDP {}, advertised as {}", self.media, self.advertise.join(", "))?;
        writeln!(f, "  link   UDP {} between edge and transceiver", self.link)?;
        writeln!(f, "  admin  http://{}/metrics (edge)", self.edge_admin)?;
        writeln!(f, "         http://{}/metrics (transceiver)", self.transceiver_admin)?;
        match &self.agent {
            Some(Answers::At { name, address }) => writeln!(f, "  agent  {name} at {address}")?,
            Some(Answers::Not { name, reason }) => {
                writeln!(f, "  agent  parrot answers instead of {name}: {reason}")?;
            }
            None => {}
        }
        writeln!(f, "  state  {} (keys and certificates)", self.state_dir.display())?;
        write!(f, "\nCtrl-C stops both.")
    }
}

/// Ports that were free, held until all are checked, and what is wrong with the others.
#[derive(Default)]
struct Ports {
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
    problems: Vec<Problem>,
}

impl Ports {
    fn tcp(&mut self, option: &str, address: SocketAddr) -> SocketAddr {
        let bound = TcpListener::bind(address).map(|listener| self.tcp.push(listener));
        self.note(option, address, Transport::Tcp, bound)
    }

    fn udp(&mut self, option: &str, address: SocketAddr) -> SocketAddr {
        let bound = UdpSocket::bind(address).map(|socket| self.udp.push(socket));
        self.note(option, address, Transport::Udp, bound)
    }

    /// The address, and what is wrong with it.
    fn note(&mut self, option: &str, address: SocketAddr, transport: Transport, bound: io::Result<()>) -> SocketAddr {
        if let Err(error) = bound {
            self.problems.push(bind::refused(option, address, transport, &error));
        }
        address
    }
}

/// All interfaces, in the family that serves every advertised address; none when nothing is advertised.
fn everywhere(advertise: &[String]) -> Option<IpAddr> {
    // What is no address is reported by the edge, which knows more ways to be wrong.
    let ipv6 = advertise.iter().filter_map(|address| parse_advertised(address)).any(|ip| ip.is_ipv6());
    let any = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    (!advertise.is_empty()).then_some(any)
}

fn parse_advertised(address: &str) -> Option<IpAddr> {
    let with_port = address.parse::<SocketAddr>().map(|address| address.ip());
    with_port.ok().or_else(|| address.trim_matches(['[', ']']).parse().ok())
}

/// The directory that the daemons themselves take by default; named here so that the banner can say it.
fn default_state_dir() -> Option<PathBuf> {
    let absolute = |variable| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("fronthaul"))
}

fn assignments(keys: Vec<String>) -> Vec<String> {
    keys.into_iter().flat_map(|key| ["--set".to_owned(), key]).collect()
}
