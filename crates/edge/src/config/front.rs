//! The TCP port in the config: HTTPS, WebRTC over TCP, and the ICE servers that clients are told of.

use std::net::SocketAddr;
use std::path::PathBuf;

use daemon::config::Secret;
use daemon::{Problem, Problems};
use serde::Deserialize;

use super::Config;

/// HTTPS on `http_bind`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// Where the certificate comes from. Defaults to `off`.
    pub mode: TlsMode,
    /// Mode `files`: the chain as PEM, the server's own certificate first. Defaults to empty.
    pub cert: PathBuf,
    /// Mode `files`: the private key as PEM. Defaults to empty.
    pub key: PathBuf,
    /// Names of this edge. Mode `acme` orders a certificate for them; mode `self_signed` adds them to `localhost` and the
    /// advertised addresses. Defaults to `[]`.
    pub names: Vec<String>,
    /// Mode `acme`: the authority's directory. Defaults to Let's Encrypt's.
    pub acme_directory: String,
    /// Mode `acme`: whom the authority may write to, such as `mailto:ops@example.com`. Defaults to empty.
    pub acme_contact: String,
    /// Mode `acme`: the roots by which the authority itself is known, as PEM. Defaults to Debian's bundle.
    pub acme_roots: PathBuf,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            mode: TlsMode::Off,
            cert: PathBuf::new(),
            key: PathBuf::new(),
            names: Vec::new(),
            acme_directory: "https://acme-v02.api.letsencrypt.org/directory".to_owned(),
            acme_contact: String::new(),
            acme_roots: PathBuf::from("/etc/ssl/certs/ca-certificates.crt"),
        }
    }
}

/// Where the certificate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsMode {
    /// There is none: HTTP alone.
    Off,
    /// Files that somebody else keeps fresh; a change is taken up while running.
    Files,
    /// Made here once: for development.
    SelfSigned,
    /// An authority that speaks ACME (RFC 8555), asked over the port itself (RFC 8737).
    Acme,
}

/// Whether clients may come over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IceTcp {
    /// Where `http_bind` is reached from other machines: on this one nothing blocks UDP.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// A STUN or TURN server that clients are told of.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IceServer {
    /// `turns:turn.example.com:5349?transport=tcp` (RFC 7065), `stun:...` (RFC 7064).
    pub urls: Vec<String>,
    /// The secret shared with the server, from which each call's own username and password are made: the text, or
    /// `env:NAME`. Empty: `username` and `credential` as they are. Defaults to empty.
    #[serde(default)]
    pub secret: Secret,
    /// Defaults to empty.
    #[serde(default)]
    pub username: String,
    /// Defaults to empty.
    #[serde(default)]
    pub credential: Secret,
    /// How long a call's username lives. Defaults to 12 hours.
    #[serde(default = "lifetime")]
    pub lifetime_s: u32,
}

fn lifetime() -> u32 {
    43_200
}

impl Config {
    /// Whether clients may come over TCP.
    #[must_use]
    pub fn takes_tcp(&self) -> bool {
        match self.ice_tcp {
            IceTcp::On => true,
            IceTcp::Off => false,
            IceTcp::Auto => !self.http_bind.ip().is_loopback(),
        }
    }

    /// The advertised addresses for TCP: those of [`Self::candidates`] that the listener takes. `port` is the listener's.
    #[must_use]
    pub fn tcp_candidates(&self, addresses: &[SocketAddr], port: u16) -> Vec<SocketAddr> {
        if !self.takes_tcp() {
            return Vec::new();
        }
        let port = if self.ice_tcp_port == 0 { port } else { self.ice_tcp_port };
        let bind = self.http_bind.ip();
        let reached = |address: &SocketAddr| {
            let ip = address.ip();
            (bind.is_ipv6() || ip.is_ipv4()) && (!bind.is_loopback() || ip.is_loopback())
        };
        let mut found: Vec<SocketAddr> = Vec::new();
        for address in addresses.iter().filter(|address| reached(address)) {
            let address = SocketAddr::new(address.ip(), port);
            if !found.contains(&address) {
                found.push(address);
            }
        }
        found
    }

    /// Why browsers that are not on this machine cannot use this edge as it is. Not an error: a proxy that speaks HTTPS may
    /// stand before it.
    #[must_use]
    pub fn insecure(&self) -> Option<String> {
        let open = self.tls.mode == TlsMode::Off && !self.http_bind.ip().is_loopback();
        open.then(|| {
            format!(
                "http_bind {} is reached from other machines without TLS: keys and offers cross the network in the clear, and \
                 browsers give no microphone to such a page; set tls.mode to \"files\", \"acme\" or, for a test, \
                 \"self_signed\", or bind a loopback address behind a proxy that speaks HTTPS",
                self.http_bind
            )
        })
    }

    pub(super) fn check_front(&self, problems: &mut Problems) {
        let Tls { mode, cert, key, names, acme_directory, .. } = &self.tls;
        if *mode == TlsMode::Files {
            for (name, path) in [("tls.cert", cert), ("tls.key", key)] {
                problems.require(
                    !path.as_os_str().is_empty(),
                    name,
                    "\"\"",
                    "tls.mode is \"files\", and no file is named",
                    "name a PEM file",
                );
            }
        }
        if *mode == TlsMode::Acme {
            problems.require(
                !names.is_empty() && names.iter().all(|name| is_dns_name(name)),
                "tls.names",
                format_args!("{names:?}"),
                "an authority certifies public DNS names",
                "list the names under which browsers reach this edge, such as [\"voice.example.com\"]",
            );
            problems.require(
                acme_directory.starts_with("https://"),
                "tls.acme_directory",
                format_args!("{acme_directory:?}"),
                "not an https URL",
                "write the authority's directory URL",
            );
        }
        for server in &self.ice_servers {
            self.check_ice_server(server, problems);
        }
    }

    fn check_ice_server(&self, server: &IceServer, problems: &mut Problems) {
        let known = |url: &String| {
            let scheme = url.split_once(':').map(|(scheme, _)| scheme);
            matches!(scheme, Some("stun" | "stuns" | "turn" | "turns")) && !url.contains(['"', '<', '>', ' '])
        };
        problems.require(
            !server.urls.is_empty() && server.urls.iter().all(known),
            "ice_servers.urls",
            format_args!("{:?}", server.urls),
            "each is a stun:, stuns:, turn: or turns: URL",
            "write it as in \"turns:turn.example.com:5349?transport=tcp\"",
        );
        let turn = server.urls.iter().any(|url| url.starts_with("turn"));
        let fixed = !server.username.is_empty() && !server.credential.is_empty();
        problems.require(
            !turn || fixed == server.secret.is_empty(),
            "ice_servers.secret",
            format_args!("{:?}", server.secret),
            "a TURN server asks for a username and a password",
            "write the secret that it shares with this edge, or username and credential, not both",
        );
        problems.require(
            (60..=604_800).contains(&server.lifetime_s),
            "ice_servers.lifetime_s",
            server.lifetime_s,
            "shorter than a call, or longer than a week",
            "choose 60 to 604800",
        );
        for (key, secret) in [("ice_servers.secret", &server.secret), ("ice_servers.credential", &server.credential)] {
            if let Err(name) = secret.reveal() {
                let reason = format!("the environment has no variable {name}");
                problems.push(Problem::new(key, "\"...\"", reason, "set it, or write the text itself"));
            }
        }
    }
}

fn is_dns_name(name: &str) -> bool {
    name.contains('.')
        && name.parse::<std::net::IpAddr>().is_err()
        && name.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::problems;

    fn turn(url: &str, secret: &str, username: &str, credential: &str) -> IceServer {
        let (secret, credential) = (Secret::new(secret), Secret::new(credential));
        IceServer { urls: vec![url.to_owned()], secret, username: username.to_owned(), credential, lifetime_s: 3600 }
    }

    #[test]
    fn tcp_is_advertised_where_other_machines_reach_the_listener() {
        let bound = |http: &str, ice_tcp| Config {
            media_bind: "[::]:3478".parse().unwrap(),
            public: vec!["192.0.2.1".to_owned(), "192.0.2.1:9".to_owned(), "2001:db8::1".to_owned()],
            http_bind: http.parse().unwrap(),
            ice_tcp,
            ..Config::default()
        };
        let tcp = |config: &Config| config.tcp_candidates(&config.candidates(3478).unwrap(), 443);
        let [v4, v6] = ["192.0.2.1:443", "[2001:db8::1]:443"].map(|address| address.parse().unwrap());
        assert_eq!(tcp(&bound("[::]:443", IceTcp::Auto)), [v4, v6]);
        assert_eq!(tcp(&bound("0.0.0.0:443", IceTcp::Auto)), [v4]);
        assert_eq!(tcp(&bound("[::]:443", IceTcp::Off)), []);
        assert_eq!(tcp(&bound("127.0.0.1:443", IceTcp::On)), []);
        let mapped = Config { ice_tcp_port: 8443, ..bound("0.0.0.0:443", IceTcp::Auto) };
        assert_eq!(tcp(&mapped), ["192.0.2.1:8443".parse().unwrap()]);
        assert_eq!(Config::default().tcp_candidates(&["127.0.0.1:3478".parse().unwrap()], 8080), []);
    }

    #[test]
    fn http_beyond_this_machine_is_named_insecure_and_https_is_not() {
        let open = Config { http_bind: "0.0.0.0:8080".parse().unwrap(), ..Config::default() };
        assert!(open.insecure().unwrap().contains("tls.mode"));
        let tls = Tls { mode: TlsMode::SelfSigned, ..Tls::default() };
        assert_eq!(Config { tls, ..open }.insecure(), None);
        assert_eq!(Config::default().insecure(), None);
    }

    #[test]
    fn each_mode_asks_for_what_it_needs() {
        let tls = |mode, names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Config { tls: Tls { mode, names, ..Tls::default() }, ..Config::default() }
        };
        assert_eq!(problems(&tls(TlsMode::Files, &[])).len(), 2);
        assert!(problems(&tls(TlsMode::Acme, &[]))[0].contains("tls.names"));
        assert!(problems(&tls(TlsMode::Acme, &["192.0.2.1"]))[0].contains("DNS names"));
        assert_eq!(problems(&tls(TlsMode::Acme, &["voice.example.com"])), Vec::<String>::new());
        assert_eq!(problems(&tls(TlsMode::SelfSigned, &[])), Vec::<String>::new());
    }

    #[test]
    fn an_ice_server_names_its_urls_and_one_kind_of_credential() {
        let found = |server| problems(&Config { ice_servers: vec![server], ..Config::default() });
        assert_eq!(found(turn("turns:turn.example.com:5349", "s", "", "")), Vec::<String>::new());
        assert_eq!(found(turn("turn:turn.example.com", "", "u", "p")), Vec::<String>::new());
        assert_eq!(found(turn("stun:stun.example.com", "", "", "")), Vec::<String>::new());
        assert!(found(turn("turns:turn.example.com", "", "", ""))[0].contains("ice_servers.secret"));
        assert!(found(turn("turns:turn.example.com", "s", "u", "p"))[0].contains("not both"));
        assert!(found(turn("https://turn.example.com", "s", "", ""))[0].contains("ice_servers.urls"));
        assert!(found(turn("turn:x", "env:FRONTHAUL_NO_SUCH_VARIABLE", "", ""))[0].contains("NO_SUCH_VARIABLE"));
    }

    #[test]
    fn a_secret_is_not_in_what_is_logged() {
        let config = Config { ice_servers: vec![turn("turn:x", "hush-hush", "", "")], ..Config::default() };
        let shown = format!("{config:?} {}", problems(&config).concat());
        assert!(!shown.contains("hush-hush"), "{shown}");
    }
}
