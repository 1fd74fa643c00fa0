//! The edge's config, as `deploy/edge.toml` has it.

mod auth;
mod front;
mod media;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use daemon::{Problem, Problems};
use link::identity::default_state_dir;
use link::ids::{EdgeId, TransceiverId};
use link::route::ticket::model_id;
use serde::Deserialize;

pub use auth::{AuthConfig, KeyConfig};
pub use daemon::config::Secret;
pub use front::{IceServer, IceTcp, Tls, TlsMode};
pub use media::{MediaConfig, Red};

use crate::keys::KeySource;
use crate::signaling::ECHO;
use crate::tickets::Terms;
use crate::worker::budget;

/// Everything that can be set. Each key's effect and cost stand in `deploy/edge.toml`, which equals the defaults.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// This edge among all of the deployment: 1 to 65535. Defaults to 1.
    pub id: u16,
    /// Worker threads, one socket each; 0 takes one per core. Defaults to 0.
    pub workers: usize,
    /// Time for which a worker looks for more after each batch of datagrams, before it sleeps. Costs up to a core per worker,
    /// and spares each datagram that comes in that time a wake-up. Defaults to 0.
    pub spin_us: u64,
    /// The UDP port of all media. Defaults to `127.0.0.1:3478`.
    pub media_bind: SocketAddr,
    /// Addresses that answers advertise, `IP` or `IP:port`. Defaults to `["127.0.0.1"]`.
    pub public: Vec<String>,
    /// Further addresses to advertise, for clients of the same network. Defaults to `[]`.
    pub internal: Vec<String>,
    /// Signaling, the page, and media of clients whose UDP is blocked. Defaults to `127.0.0.1:8080`.
    pub http_bind: SocketAddr,
    /// Whether answers advertise TCP on `http_bind`'s port: `auto` where other machines reach it, `on`, `off`. Defaults to
    /// `auto`.
    pub ice_tcp: IceTcp,
    /// The TCP port that answers advertise; 0 means `http_bind`'s own. Defaults to 0.
    pub ice_tcp_port: u16,
    /// Health and metrics. Defaults to `127.0.0.1:9080`.
    pub admin_bind: SocketAddr,
    /// The address from which links are dialed; its port must be 0, as each worker has a socket of its own. Defaults to
    /// `127.0.0.1:0`.
    pub link_bind: SocketAddr,
    /// Where the other edges of the PoP are heard; bound if there are any. Defaults to `127.0.0.1:3479`.
    pub peer_bind: SocketAddr,
    /// How audio comes that a model gives in real time: `stream` paces it here, `datagram` passes each frame on at once.
    /// Defaults to `stream`.
    pub downlink: Downlink,
    /// The name of `models` taken when a client asks for none, or for an unknown one. Defaults to `parrot`.
    pub default_model: String,
    /// Calls that the edge answers itself (model `echo`) at once. ~15 KiB each. Defaults to 1000.
    pub echo_seats: u32,
    /// Keys and certificates. Empty means `$XDG_STATE_HOME/fronthaul`. Defaults to empty.
    pub state_dir: PathBuf,
    /// The PoP's keys: a file, or `env:NAME`. Empty means `pop.keys` in `state_dir`. Defaults to empty.
    pub keys: String,
    /// Time from the answer to the client's first check, and from there to DTLS. Defaults to 30000.
    pub setup_timeout_ms: u64,
    /// Time without a check after which a client counts as gone. Defaults to 30000.
    pub consent_timeout_ms: u64,
    /// Time that running calls are given when the edge is told to stop. Defaults to 10000.
    pub drain_timeout_ms: u64,
    /// Names that clients may ask for, and the model that serves each; `echo` is the edge itself. Defaults to `echo`,
    /// `loopback` and `parrot`, each by its own name.
    pub models: BTreeMap<String, String>,
    /// Where calls may go. Defaults to transceiver 1 at `127.0.0.1:7443`.
    pub transceivers: Vec<TransceiverConfig>,
    /// The other edges of the PoP. Defaults to none.
    pub peers: Vec<PeerConfig>,
    /// How clients are asked to send their audio, and what the edge does about it by itself.
    pub media: MediaConfig,
    /// Tickets of instant calls.
    pub tickets: TicketConfig,
    /// Who may call.
    pub auth: AuthConfig,
    /// HTTPS on `http_bind`.
    pub tls: Tls,
    /// STUN and TURN servers that clients are told of. Defaults to none.
    pub ice_servers: Vec<IceServer>,
    /// What strangers may cost.
    pub limits: Limits,
    /// Log lines.
    pub log: daemon::log::Config,
}

/// What tickets of instant calls grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TicketConfig {
    /// From the issue of a ticket to its click. Defaults to 60000.
    pub lifetime_ms: u64,
    /// Longest duration of a call that came by a ticket, rounded up to 10 s; 0 for no limit. Defaults to 3600000.
    pub max_call_ms: u64,
}

impl Default for TicketConfig {
    fn default() -> Self {
        Self { lifetime_ms: 60_000, max_call_ms: 3_600_000 }
    }
}

/// What strangers may cost, each per second where nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Datagrams of strangers from one IPv4 address or IPv6 /64. Defaults to 5000.
    pub datagrams_per_source: u32,
    /// Datagrams of strangers on one worker. Defaults to 50000.
    pub datagrams_per_worker: u32,
    /// Requests for calls from one IPv4 address or IPv6 /64. Defaults to 2000.
    pub calls_per_source: u32,
    /// Answered calls of one IPv4 address or IPv6 /64 that no check has reached. Each holds a seat for up to `setup_timeout_ms`,
    /// so this stays below the seats of one transceiver. Defaults to 50, half of a transceiver's default seats.
    pub unclaimed_calls_per_source: u32,
    /// Media connections over TCP, held at once. Defaults to 4096.
    pub tcp_connections: u32,
    /// Of these, by one IPv4 address or IPv6 /64. Defaults to 256.
    pub tcp_connections_per_source: u32,
    /// WebSockets at once. Defaults to 4096.
    pub websockets: u32,
    /// Of these, by one IPv4 address or IPv6 /64. Defaults to 1024.
    pub websockets_per_source: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            datagrams_per_source: 5000,
            datagrams_per_worker: 50_000,
            calls_per_source: 2000,
            unclaimed_calls_per_source: 50,
            tcp_connections: 4096,
            tcp_connections_per_source: 256,
            websockets: 4096,
            websockets_per_source: 1024,
        }
    }
}

/// The way of real-time audio from a transceiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Downlink {
    /// One stream per utterance: nothing is lost, and the pacer hides the backbone's jitter.
    Stream,
    /// Datagrams, repeated on links that lose: no pacer, no retransmission.
    Datagram,
}

/// One transceiver.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransceiverConfig {
    /// Its id, which its certificate must name.
    pub id: u32,
    /// Where its link listens.
    pub address: SocketAddr,
}

/// Another edge of the PoP.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerConfig {
    /// Its id.
    pub id: u16,
    /// Its `peer_bind`, as seen from here.
    pub address: SocketAddr,
}

impl Default for Config {
    fn default() -> Self {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            id: 1,
            workers: 0,
            spin_us: 0,
            media_bind: local(3478),
            public: vec!["127.0.0.1".to_owned()],
            internal: Vec::new(),
            http_bind: local(8080),
            ice_tcp: IceTcp::Auto,
            ice_tcp_port: 0,
            admin_bind: local(9080),
            link_bind: local(0),
            peer_bind: local(3479),
            downlink: Downlink::Stream,
            default_model: "parrot".to_owned(),
            echo_seats: 1000,
            state_dir: PathBuf::new(),
            keys: String::new(),
            setup_timeout_ms: 30_000,
            consent_timeout_ms: 30_000,
            drain_timeout_ms: 10_000,
            models: ["echo", "loopback", "parrot"].map(|name| (name.to_owned(), name.to_owned())).into(),
            transceivers: vec![TransceiverConfig { id: 1, address: local(7443) }],
            peers: Vec::new(),
            tickets: TicketConfig::default(),
            auth: AuthConfig::default(),
            tls: Tls::default(),
            media: MediaConfig::default(),
            ice_servers: Vec::new(),
            limits: Limits::default(),
            log: daemon::log::Config::default(),
        }
    }
}

impl daemon::config::Checked for Config {
    fn check(&self, problems: &mut Problems) {
        problems.require(self.id != 0, "id", self.id, "0 is no edge", "choose a number from 1 to 65535");
        problems.require(
            self.workers <= 256,
            "workers",
            self.workers,
            "more workers than any machine has cores",
            "write 0 for one per core",
        );
        problems.require(
            self.spin_us <= 10_000,
            "spin_us",
            self.spin_us,
            "a worker that never sleeps gains nothing from a longer look",
            "choose 0 to 10000; 200 is twice the time between two datagrams of 100 calls",
        );
        problems.require(
            self.link_bind.port() == 0,
            "link_bind",
            format_args!("\"{}\"", self.link_bind),
            "each worker dials from a port of its own",
            "write port 0",
        );
        for (key, value) in
            [("setup_timeout_ms", self.setup_timeout_ms), ("consent_timeout_ms", self.consent_timeout_ms)]
        {
            problems.require(
                (1_000..=600_000).contains(&value),
                key,
                value,
                "a client checks each few seconds: less ends good calls, more keeps dead ones",
                "choose 1000 to 600000",
            );
        }
        problems.require(
            self.drain_timeout_ms <= 86_400_000,
            "drain_timeout_ms",
            self.drain_timeout_ms,
            "longer than a day",
            "choose 0 to 86400000",
        );
        for (key, value) in [
            ("limits.datagrams_per_source", self.limits.datagrams_per_source),
            ("limits.datagrams_per_worker", self.limits.datagrams_per_worker),
            ("limits.calls_per_source", self.limits.calls_per_source),
            ("limits.unclaimed_calls_per_source", self.limits.unclaimed_calls_per_source),
            ("limits.tcp_connections", self.limits.tcp_connections),
            ("limits.tcp_connections_per_source", self.limits.tcp_connections_per_source),
            ("limits.websockets", self.limits.websockets),
            ("limits.websockets_per_source", self.limits.websockets_per_source),
        ] {
            let reason = "nobody could set up a call";
            problems.require(value > 0, key, value, reason, "choose 1 or more; the defaults are generous");
        }
        let TicketConfig { lifetime_ms, max_call_ms } = self.tickets;
        problems.require(
            (1_000..=600_000).contains(&lifetime_ms),
            "tickets.lifetime_ms",
            lifetime_ms,
            "used tickets are remembered that long, and pages renew theirs",
            "choose 1000 to 600000",
        );
        problems.require(
            max_call_ms == 0 || (10_000..=86_400_000).contains(&max_call_ms),
            "tickets.max_call_ms",
            max_call_ms,
            "shorter than 10 s, in which tickets count, or longer than a day",
            "choose 10000 to 86400000, or 0 for no limit",
        );
        self.media.check(problems);
        self.check_models(problems);
        self.check_transceivers(problems);
        self.check_peers(problems);
        self.check_front(problems);
        self.check_auth(problems);
        if let Err(found) = self.candidates(self.media_bind.port()) {
            found.into_iter().for_each(|problem| problems.push(problem));
        }
        self.log.check(problems);
    }
}

impl Config {
    /// The id.
    #[must_use]
    pub fn edge(&self) -> EdgeId {
        EdgeId(self.id)
    }

    /// The state directory.
    ///
    /// # Errors
    /// None is named, and the environment names none either.
    pub fn state_dir(&self) -> Result<PathBuf, Problem> {
        if !self.state_dir.as_os_str().is_empty() {
            return Ok(self.state_dir.clone());
        }
        default_state_dir().ok_or_else(|| {
            let reason = "empty, and neither XDG_STATE_HOME nor HOME names a directory";
            Problem::new("state_dir", "\"\"", reason, "name a directory that this user may write")
        })
    }

    /// Where the PoP's keys are.
    ///
    /// # Errors
    /// Those of [`Self::state_dir`].
    pub fn key_source(&self) -> Result<KeySource, Problem> {
        Ok(match self.keys.strip_prefix("env:") {
            Some(name) => KeySource::Environment(name.to_owned()),
            None if self.keys.is_empty() => KeySource::StateDir(self.state_dir()?),
            None => KeySource::File(PathBuf::from(&self.keys)),
        })
    }

    /// Worker threads, with 0 resolved.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        if self.workers == 0 { net::pin::cores().len().max(1) } else { self.workers }
    }

    /// Timers of each session.
    #[must_use]
    pub fn session(&self) -> rtc::Config {
        rtc::Config {
            setup_timeout: Duration::from_millis(self.setup_timeout_ms),
            consent_timeout: Duration::from_millis(self.consent_timeout_ms),
            ..rtc::Config::default()
        }
    }

    /// What tickets grant.
    #[must_use]
    pub fn ticket_terms(&self) -> Terms {
        let in_units = |ms: u64, unit: u64| u16::try_from(ms.div_ceil(unit)).unwrap_or(u16::MAX);
        let TicketConfig { lifetime_ms, max_call_ms } = self.tickets;
        Terms { lifetime_seconds: in_units(lifetime_ms, 1000), max_call_tens: in_units(max_call_ms, 10_000) }
    }

    /// What strangers may cost each worker.
    #[must_use]
    pub fn worker_limits(&self) -> budget::Limits {
        let Limits { datagrams_per_source, datagrams_per_worker, .. } = self.limits;
        budget::Limits { per_source: datagrams_per_source, per_worker: datagrams_per_worker }
    }

    /// The advertised addresses in order of preference, public ones first; `port` is taken where none is written.
    ///
    /// # Errors
    /// Every address that no client could reach.
    pub fn candidates(&self, port: u16) -> Result<Vec<SocketAddr>, Vec<Problem>> {
        let mut found = Vec::new();
        let mut problems = Vec::new();
        for (key, list) in [("public", &self.public), ("internal", &self.internal)] {
            for text in list {
                match advertised(text, port).and_then(|address| self.reachable(address).map(|()| address)) {
                    Ok(address) if found.contains(&address) => {}
                    Ok(address) => found.push(address),
                    Err((reason, fix)) => problems.push(Problem::new(key, format_args!("{text:?}"), reason, fix)),
                }
            }
        }
        if found.is_empty() && problems.is_empty() {
            let reason = "no address is advertised, so no client can reach this edge";
            problems.push(Problem::new(
                "public",
                "[]",
                reason,
                "write the address that clients reach, such as \"192.0.2.1\"",
            ));
        }
        if problems.is_empty() { Ok(found) } else { Err(problems) }
    }

    /// Whether something listens behind an advertised address, as far as that can be told from here: behind a 1:1 NAT
    /// the address is not ours.
    fn reachable(&self, address: SocketAddr) -> Result<(), Refusal> {
        let bind = self.media_bind.ip();
        if bind.is_loopback() && !address.ip().is_loopback() {
            let fix = format!("set media_bind to \"0.0.0.0:{0}\" or \"[::]:{0}\"", self.media_bind.port());
            return Err((format!("media_bind {} takes packets of this machine only", self.media_bind), fix));
        }
        if bind.is_ipv4() && address.is_ipv6() {
            let fix = format!("set media_bind to \"[::]:{}\", which takes both", self.media_bind.port());
            return Err((format!("media_bind {} takes no IPv6", self.media_bind), fix));
        }
        Ok(())
    }

    fn check_models(&self, problems: &mut Problems) {
        problems.require(
            self.models.contains_key(&self.default_model),
            "default_model",
            format_args!("{:?}", self.default_model),
            "no such name in [models]",
            format_args!("add it there, or choose one of {:?}", self.models.keys().collect::<Vec<_>>()),
        );
        let mut ids = BTreeMap::new();
        for model in self.models.values().collect::<BTreeSet<_>>() {
            let other = ids.insert(model_id(model), model);
            problems.require(
                other.is_none(),
                "models",
                format_args!("{model:?}"),
                format_args!(
                    "tickets cannot tell it from {:?}: the hashes of both names are equal",
                    other.unwrap_or(model)
                ),
                "rename one of them",
            );
        }
        let needs_transceiver = self.models.values().any(|model| model != ECHO);
        problems.require(
            !needs_transceiver || !self.transceivers.is_empty(),
            "transceivers",
            "[]",
            "models other than echo are served by transceivers",
            "name one in [[transceivers]], or leave only echo in [models]",
        );
    }

    fn check_peers(&self, problems: &mut Problems) {
        let mut seen = BTreeSet::from([0, self.id]);
        for peer in &self.peers {
            problems.require(
                seen.insert(peer.id),
                "peers.id",
                peer.id,
                "ids are unique in a PoP, and this edge is none of its own peers",
                "give each peer the id of its own config, and leave this edge out",
            );
            problems.require(
                !peer.address.ip().is_unspecified() && peer.address.port() != 0,
                "peers.address",
                format_args!("\"{}\"", peer.address),
                "nothing can be sent there",
                "write the peer_bind of that edge, with an address that this one reaches",
            );
            let (from, to) = (self.peer_bind.ip(), peer.address.ip().to_canonical());
            problems.require(
                (!from.is_loopback() || to.is_loopback()) && (from.is_ipv6() || to.is_ipv4()),
                "peer_bind",
                format_args!("\"{}\"", self.peer_bind),
                format_args!("peer {} at {} cannot be reached from there", peer.id, peer.address),
                "bind the address at which the other edges reach this one",
            );
        }
    }

    fn check_transceivers(&self, problems: &mut Problems) {
        let mut seen = BTreeSet::new();
        for transceiver in &self.transceivers {
            let id = TransceiverId(transceiver.id);
            problems.require(
                transceiver.id != 0 && seen.insert(id),
                "transceivers.id",
                transceiver.id,
                "ids are unique, and 0 is the edge itself",
                "give each transceiver the id of its own config",
            );
        }
    }
}

/// Reason and fix.
type Refusal = (String, String);

/// Reads `IP` or `IP:port` and refuses what cannot be the address of one host that others reach.
fn advertised(text: &str, port: u16) -> Result<SocketAddr, Refusal> {
    let address = text
        .parse::<SocketAddr>()
        .or_else(|_| text.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port)))
        .map_err(|_| {
            let fix = "write an IP address, or an IP address and a port, such as \"192.0.2.1:3478\"";
            ("not an address".to_owned(), fix.to_owned())
        })?;
    let refuse = |reason: &str, fix: &str| Err((reason.to_owned(), fix.to_owned()));
    let fix = "write the address under which clients reach this host";
    match address.ip() {
        ip if ip.is_unspecified() => {
            refuse("that is every address of this machine, and a client can dial none of it", fix)
        }
        ip if ip.is_multicast() => refuse("a multicast address is no host", fix),
        IpAddr::V4(ip) if ip.is_broadcast() => refuse("a broadcast address is no host", fix),
        IpAddr::V4(ip) if ip.is_link_local() => refuse("link-local addresses reach no further than one cable", fix),
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            refuse("link-local addresses reach no further than one cable", fix)
        }
        _ => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use daemon::Source;
    use daemon::config::{Checked, load};

    use super::*;

    /// What is wrong with it, as it is told.
    pub(super) fn problems(config: &Config) -> Vec<String> {
        let mut problems = Problems::new();
        config.check(&mut problems);
        problems.into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_file_in_deploy_equals_the_defaults() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/edge.toml");
        assert_eq!(load::<Config>(&Source::file(file)).unwrap(), Config::default());
    }

    #[test]
    fn the_file_in_deploy_names_every_key() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/edge.toml");
        let text = std::fs::read_to_string(file).unwrap();
        let debug = format!("{:#?}", Config::default());
        let keys = debug.lines().filter_map(|l| l.strip_prefix("    ")?.split_once(": ")).map(|(key, _)| key.trim());
        for key in keys.filter(|key| !key.is_empty() && !key.contains(['"', ' '])) {
            assert!(text.contains(key), "{key} is missing");
        }
    }

    #[test]
    fn the_defaults_are_sound() {
        assert_eq!(problems(&Config::default()), Vec::<String>::new());
    }

    #[test]
    fn addresses_that_no_client_can_dial_are_refused() {
        for (text, reason) in [
            ("0.0.0.0", "every address"),
            ("[::]:3478", "every address"),
            ("169.254.3.4", "link-local"),
            ("fe80::1", "link-local"),
            ("224.0.0.1", "multicast"),
            ("255.255.255.255", "broadcast"),
            ("edge.example", "not an address"),
        ] {
            let config =
                Config { media_bind: "[::]:3478".parse().unwrap(), public: vec![text.to_owned()], ..Config::default() };
            let found = problems(&config);
            assert!(found.len() == 1 && found[0].contains(reason) && found[0].contains(text), "{text}: {found:?}");
        }
    }

    #[test]
    fn an_address_that_nothing_listens_on_is_refused() {
        let config = Config { public: vec!["192.0.2.1".to_owned()], ..Config::default() };
        assert!(problems(&config)[0].contains("0.0.0.0:3478"));
        let bound = Config { media_bind: "0.0.0.0:3478".parse().unwrap(), ..config };
        assert_eq!(bound.candidates(3478).unwrap(), ["192.0.2.1:3478".parse().unwrap()]);
        let six = Config { public: vec!["2001:db8::1".to_owned()], ..bound };
        assert!(problems(&six)[0].contains("IPv6"));
    }

    #[test]
    fn public_addresses_come_before_internal_ones_and_keep_their_ports() {
        let config = Config {
            media_bind: "0.0.0.0:3478".parse().unwrap(),
            public: vec!["192.0.2.1:443".to_owned()],
            internal: vec!["10.0.0.1".to_owned(), "192.0.2.1:443".to_owned()],
            ..Config::default()
        };
        let expected = ["192.0.2.1:443".parse().unwrap(), "10.0.0.1:5000".parse().unwrap()];
        assert_eq!(config.candidates(5000).unwrap(), expected);
    }

    #[test]
    fn peers_that_are_this_edge_or_out_of_reach_are_refused() {
        let peer = |id, address: &str| PeerConfig { id, address: address.parse().unwrap() };
        let bind = |text: &str| text.parse().unwrap();
        for (peer_bind, peers, reason) in [
            (bind("10.0.0.1:3479"), vec![peer(1, "10.0.0.2:3479")], "none of its own peers"),
            (bind("10.0.0.1:3479"), vec![peer(2, "10.0.0.2:1"), peer(2, "10.0.0.3:1")], "unique"),
            (bind("10.0.0.1:3479"), vec![peer(2, "0.0.0.0:3479")], "nothing can be sent"),
            (bind("127.0.0.1:3479"), vec![peer(2, "10.0.0.2:3479")], "cannot be reached"),
            (bind("10.0.0.1:3479"), vec![peer(2, "[2001:db8::2]:3479")], "cannot be reached"),
        ] {
            let found = problems(&Config { peer_bind, peers, ..Config::default() });
            assert!(found.len() == 1 && found[0].contains(reason), "{reason}: {found:?}");
        }
        let peers = vec![peer(2, "10.0.0.2:3479"), peer(3, "[2001:db8::2]:3479")];
        assert_eq!(
            problems(&Config { peer_bind: bind("[::]:3479"), peers, ..Config::default() }),
            Vec::<String>::new()
        );
    }

    #[test]
    fn models_that_tickets_cannot_tell_apart_are_refused() {
        let (one, other) = ("model-572879", "model-1086700");
        assert_eq!(model_id(one), model_id(other));
        let mut config = Config::default();
        config.models.insert("one".to_owned(), one.to_owned());
        config.models.insert("another".to_owned(), one.to_owned());
        assert_eq!(problems(&config), problems(&Config::default()), "two names of one model are fine");
        config.models.insert("other".to_owned(), other.to_owned());
        let found = problems(&config);
        assert!(found.iter().any(|problem| problem.contains(one) && problem.contains(other)), "{found:?}");
    }

    #[test]
    fn a_worker_may_spin_for_ten_milliseconds_and_no_longer() {
        let spinning = |spin_us| problems(&Config { spin_us, ..Config::default() });
        assert_eq!((spinning(0), spinning(10_000)), (vec![], vec![]));
        let found = spinning(10_001);
        assert!(found.len() == 1 && found[0].contains("spin_us") && found[0].contains("10001"), "{found:?}");
    }

    #[test]
    fn a_default_model_without_a_mapping_is_refused() {
        let config = Config { default_model: "oracle".to_owned(), ..Config::default() };
        assert!(problems(&config)[0].contains("oracle"));
    }
}
