//! HTTPS on real sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall say where")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::live::{StateDir, agent, config, eventually, metric, metrics};
use edge::config::{IceServer, Secret, Tls, TlsMode};
use edge::{Config, Edge};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

fn start(state: &StateDir, tls: Tls) -> Edge {
    let config = Config {
        tls,
        ice_servers: vec![IceServer {
            urls: vec!["turns:turn.example.com:5349?transport=tcp".to_owned()],
            secret: Secret::new("north"),
            username: String::new(),
            credential: Secret::default(),
            lifetime_s: 3600,
        }],
        ..config(state, 1)
    };
    Edge::start(config, metrics()).unwrap()
}

fn trusting(pem: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

fn connect(edge: &Edge, config: &Arc<ClientConfig>, alpn: &[u8]) -> StreamOwned<ClientConnection, TcpStream> {
    let mut config = ClientConfig::clone(config);
    config.alpn_protocols = vec![alpn.to_vec()];
    let stream = TcpStream::connect(edge.http_addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    stream
}

fn get(stream: &mut (impl Read + Write)) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: edge.example\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn https_speaks_both_versions_and_http_is_left_to_this_machine() {
    let state = StateDir::new("https");
    let edge = start(&state, Tls { mode: TlsMode::SelfSigned, ..Tls::default() });
    let config = trusting(&state.0.join("tls-self-signed.pem"));

    let mut one = connect(&edge, &config, b"http/1.1");
    assert!(get(&mut one).starts_with("HTTP/1.1 200"));

    let mut two = connect(&edge, &config, b"h2");
    assert_eq!(two.conn.alpn_protocol(), Some(&b"h2"[..]));
    // The preface and an empty SETTINGS (RFC 9113 §3.4); the answer begins with the server's SETTINGS.
    two.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut head = [0; 9];
    two.read_exact(&mut head).unwrap();
    assert_eq!(head[3], 4, "no SETTINGS: {head:?}");

    let mut plain = TcpStream::connect(edge.http_addr()).unwrap();
    assert!(get(&mut plain).starts_with("HTTP/1.1 200"));
    edge.drain();
    edge.wait().unwrap();
}

#[test]
fn a_replaced_certificate_is_shown_and_a_broken_one_is_not() {
    let state = StateDir::new("reload");
    std::fs::create_dir_all(&state.0).unwrap();
    let (cert, key) = (state.0.join("edge.crt"), state.0.join("edge.key"));
    let renew = || {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&cert, pair.cert.pem()).unwrap();
        std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        trusting(&cert)
    };
    let shown = |edge: &Edge, config: &Arc<ClientConfig>| {
        let stream = TcpStream::connect(edge.http_addr()).unwrap();
        let mut connection = ClientConnection::new(Arc::clone(config), "localhost".try_into().unwrap()).unwrap();
        let mut stream = stream;
        while connection.is_handshaking() {
            if connection.complete_io(&mut stream).is_err() {
                return false;
            }
        }
        true
    };
    let first = renew();
    let edge = start(&state, Tls { mode: TlsMode::Files, cert: cert.clone(), key: key.clone(), ..Tls::default() });
    assert!(shown(&edge, &first));

    let second = renew();
    eventually("the second certificate", || shown(&edge, &second));
    std::fs::write(&key, "not a key").unwrap();
    std::thread::sleep(Duration::from_secs(5));
    assert!(shown(&edge, &second), "a broken file took the certificate away");
    let third = renew();
    eventually("the third certificate", || shown(&edge, &third));
    edge.drain();
    edge.wait().unwrap();
}

#[test]
fn handshakes_that_fail_are_counted_and_end() {
    let state = StateDir::new("garbage");
    let edge = start(&state, Tls { mode: TlsMode::SelfSigned, ..Tls::default() });
    let refused = || metric(&edge, "fronthaul_edge_connections_refused_total{reason=\"tls\"}");
    eventually("metrics", || refused() == 0.0);
    // Garbage, a record that says to be long and stops, a record alone.
    for bytes in [vec![0x16; 600], vec![0x16, 3, 1, 0x40, 0, 1], vec![0x16]] {
        let before = refused();
        let mut stream = TcpStream::connect(edge.http_addr()).unwrap();
        stream.write_all(&bytes).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(12))).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 20, "{answer:?}");
        eventually("counted", || refused() > before);
    }
    edge.drain();
    edge.wait().unwrap();
}

#[test]
fn an_answer_names_ice_servers_with_credentials_of_its_own() {
    let state = StateDir::new("links");
    let edge = start(&state, Tls::default());
    let offer = common::Client::new(std::time::Instant::now(), "127.0.0.1:9".parse().unwrap()).offer();
    let url = format!("http://{}/v1/realtime/calls?model=echo", edge.http_addr());
    let link = || {
        let response = agent().post(&url).content_type("application/sdp").send(&offer).unwrap();
        assert_eq!(response.status(), 201);
        response.headers()["link"].to_str().unwrap().to_owned()
    };
    let (first, second) = (link(), link());
    assert!(
        first.starts_with("<turns:turn.example.com:5349?transport=tcp>; rel=\"ice-server\"; username=\""),
        "{first}"
    );
    assert!(first.ends_with("credential-type=\"password\"") && first != second);
    edge.drain();
    edge.wait().unwrap();
}

#[test]
fn a_call_that_no_check_reaches_is_counted_while_it_waits_and_one_that_is_reached_is_not() {
    let state = StateDir::new("unreached");
    let edge = start(&state, Tls::default());
    let unreached = || metric(&edge, "fronthaul_edge_unreached_calls_total");
    eventually("metrics", || unreached() == 0.0);
    let offer = common::Client::new(std::time::Instant::now(), "127.0.0.1:9".parse().unwrap()).offer();
    let url = format!("http://{}/v1/realtime/calls?model=echo", edge.http_addr());
    assert_eq!(agent().post(&url).content_type("application/sdp").send(&offer).unwrap().status(), 201);
    let mut caller = common::live::Caller::dial(&edge, "echo");
    caller.connect();
    // How soon is told in virtual time, beside what counts them.
    eventually("the call that nobody took up", || unreached() == 1.0);
    assert_eq!(metric(&edge, "fronthaul_edge_pending_sessions"), 1.0, "it is not given up yet");
    edge.drain();
    edge.wait().unwrap();
}
