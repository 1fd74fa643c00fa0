//! Only nodes of one authority link up, and each knows whom it reached.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use link::identity::Role;
use link::ids::{EdgeId, TransceiverId};
use link::quic::{ConnectError, Endpoint, LinkLost, Peer};

mod support;
use support::{EDGE, LOOPBACK, Pair, TRANSCEIVER, TempDir, soon};

#[tokio::test]
async fn linked_peers_know_each_other() {
    let pair = Pair::new().await;
    assert_eq!((pair.edge.peer(), pair.transceiver.peer()), (TRANSCEIVER, EDGE));
    assert_ne!(pair.edge.id(), pair.transceiver.id());
    pair.edge.close("test over");
    let lost = soon("the end", pair.transceiver.closed()).await;
    assert_eq!(lost, LinkLost::ClosedByPeer { reason: "test over".into() });
    assert_eq!(pair.edge.close_reason(), Some(LinkLost::ClosedHere));
}

#[tokio::test]
async fn an_edge_refuses_a_transceiver_that_it_did_not_want() {
    let dir = TempDir::new();
    let server = Endpoint::server(&dir.identity(TRANSCEIVER), LOOPBACK).unwrap();
    let client = Endpoint::client(&dir.identity(EDGE)).unwrap();
    let address = server.local_addr().unwrap();
    let accepting = tokio::spawn(async move { server.accept().await });
    let error = soon("the refusal", client.connect(address, TransceiverId(8))).await.unwrap_err();
    let found = match error {
        ConnectError::WrongPeer { wanted: Peer::Transceiver(TransceiverId(8)), found } => found,
        other => panic!("{other}"),
    };
    assert_eq!(found, Some(TRANSCEIVER));
    accepting.abort();
}

#[tokio::test]
async fn an_edge_refuses_a_transceiver_of_another_authority() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let server = Endpoint::server(&other.identity(TRANSCEIVER), LOOPBACK).unwrap();
    let client = Endpoint::client(&dir.identity(EDGE)).unwrap();
    let address = server.local_addr().unwrap();
    let accepting = tokio::spawn(async move { server.accept().await });
    let error = soon("the refusal", client.connect(address, TransceiverId(7))).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Handshake(LinkLost::Failed { .. })), "{error}");
    accepting.abort();
}

#[tokio::test]
async fn an_edge_refuses_an_edge() {
    let dir = TempDir::new();
    let server = Endpoint::server(&dir.identity(Role::Edge(EdgeId(7))), LOOPBACK).unwrap();
    let client = Endpoint::client(&dir.identity(EDGE)).unwrap();
    let address = server.local_addr().unwrap();
    let accepting = tokio::spawn(async move { server.accept().await });
    let error = soon("the refusal", client.connect(address, TransceiverId(7))).await.unwrap_err();
    assert!(matches!(&error, ConnectError::WrongPeer { found: Some(Role::Edge(EdgeId(7))), .. }), "{error}");
    accepting.abort();
}

/// With TLS 1.3 a client is through before the server has seen its certificate: it learns of the refusal just after.
async fn refused(dialer: &TempDir, role: Role) -> LinkLost {
    let dir = TempDir::new();
    let server = Endpoint::server(&dir.identity(TRANSCEIVER), LOOPBACK).unwrap();
    let address = server.local_addr().unwrap();
    // The server's trust, unless the dialer brings another.
    if !dialer.path().join("ca.pem").exists() {
        for file in ["ca.pem", "ca-key.pem"] {
            std::fs::copy(dir.path().join(file), dialer.path().join(file)).unwrap();
        }
    }
    let client = Endpoint::client(&dialer.identity(role)).unwrap();
    let accepting = tokio::spawn(async move { server.accept().await });
    let lost = match soon("the refusal", client.connect(address, TransceiverId(7))).await {
        Ok(link) => soon("the refusal", link.closed()).await,
        Err(ConnectError::Handshake(lost)) => lost,
        Err(other) => panic!("{other}"),
    };
    assert!(!accepting.is_finished(), "no link was handed out");
    accepting.abort();
    lost
}

#[tokio::test]
async fn a_transceiver_refuses_a_transceiver() {
    let lost = refused(&TempDir::new(), Role::Transceiver(TransceiverId(9))).await;
    assert!(matches!(&lost, LinkLost::Refused { reason } if reason.contains("only edges")), "{lost}");
}

#[tokio::test]
async fn a_transceiver_refuses_an_edge_of_another_authority() {
    let (dialer, server) = (TempDir::new(), TempDir::new());
    // The dialer trusts the server's authority, but its own certificate is from elsewhere.
    dialer.identity(EDGE);
    let foreign = std::fs::read(dialer.path().join("edge-1.pem")).unwrap();
    let foreign_ca = std::fs::read(dialer.path().join("ca.pem")).unwrap();
    server.identity(TRANSCEIVER);
    let mut both = std::fs::read(server.path().join("ca.pem")).unwrap();
    both.extend_from_slice(&foreign_ca);
    std::fs::write(dialer.path().join("ca.pem"), both).unwrap();
    assert_eq!(std::fs::read(dialer.path().join("edge-1.pem")).unwrap(), foreign);

    let endpoint = Endpoint::server(&server.identity(TRANSCEIVER), LOOPBACK).unwrap();
    let address = endpoint.local_addr().unwrap();
    let client = Endpoint::client(&dialer.identity(EDGE)).unwrap();
    let accepting = tokio::spawn(async move { endpoint.accept().await });
    let lost = match soon("the refusal", client.connect(address, TransceiverId(7))).await {
        Ok(link) => soon("the refusal", link.closed()).await,
        Err(ConnectError::Handshake(lost)) => lost,
        Err(other) => panic!("{other}"),
    };
    assert!(matches!(&lost, LinkLost::Failed { .. }), "{lost}");
    assert!(!accepting.is_finished(), "no link was handed out");
    accepting.abort();
}

#[tokio::test]
async fn an_edge_of_the_same_authority_is_taken() {
    let dialer = TempDir::new();
    let dir = TempDir::new();
    dir.identity(TRANSCEIVER);
    for file in ["ca.pem", "ca-key.pem"] {
        std::fs::copy(dir.path().join(file), dialer.path().join(file)).unwrap();
    }
    let server = Endpoint::server(&dir.identity(TRANSCEIVER), LOOPBACK).unwrap();
    let client = Endpoint::client(&dialer.identity(Role::Edge(EdgeId(3)))).unwrap();
    let address = server.local_addr().unwrap();
    let (link, accepted) =
        soon("the link", async { tokio::join!(client.connect(address, TransceiverId(7)), server.accept()) }).await;
    link.unwrap();
    assert_eq!(accepted.unwrap().peer(), Role::Edge(EdgeId(3)));
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let dir = TempDir::new();
    let first = Endpoint::server(&dir.identity(TRANSCEIVER), LOOPBACK).unwrap();
    let address = first.local_addr().unwrap();
    let error = Endpoint::server(&dir.identity(TRANSCEIVER), address).unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn nobody_at_the_address_is_an_error_before_long() {
    let dir = TempDir::new();
    let silent = std::net::UdpSocket::bind(LOOPBACK).unwrap();
    let client = Endpoint::client(&dir.identity(EDGE)).unwrap();
    let error = soon("the error", client.connect(silent.local_addr().unwrap(), TransceiverId(7))).await.unwrap_err();
    assert!(matches!(error, ConnectError::Handshake(LinkLost::TimedOut)), "{error}");
}
