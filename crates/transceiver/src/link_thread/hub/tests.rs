//! Leases over real links whose paths the test judges.

use std::net::Ipv4Addr;

use link::identity::{NodeIdentity, Role};
use link::ids::TransceiverId;
use link::quic::Endpoint;

use super::*;

const CONGESTED: PathState = PathState { repeat: false, congested: true, closing: false, peer_congested: false };

/// A hub with so many links of one edge, and both ends of them.
async fn hub(links: usize) -> (Hub, Vec<u64>, (Endpoint, Endpoint, Vec<Link>)) {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("fronthaul-hub-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let server = NodeIdentity::load_or_create(&dir, Role::Transceiver(TransceiverId(1))).unwrap();
    let server = Endpoint::server(&server, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let edge = NodeIdentity::load_or_create(&dir, Role::Edge(EdgeId(1))).unwrap();
    let edge = Endpoint::client(&edge).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let (mut hub, mut ids, mut dialed) = (Hub::new(5000, Models::default(), Vec::new()), Vec::new(), Vec::new());
    for _ in 0..links {
        let address = server.local_addr().unwrap();
        let (near, far) = tokio::join!(edge.connect(address, TransceiverId(1)), server.accept());
        let far = far.unwrap();
        dialed.push(near.unwrap());
        ids.push(far.id());
        hub.add_link(far).unwrap();
    }
    (hub, ids, (server, edge, dialed))
}

#[tokio::test]
async fn a_congested_control_link_takes_no_seats_and_a_congested_carrier_its_own() {
    let (mut hub, links, _ends) = hub(3).await;
    let (grants, mut granted) = mpsc::channel::<LeaseGrant>(8);
    let mut seats = move || granted.try_recv().map(|grant| grant.seats);
    hub.add_lease(EdgeId(1), links[0], grants);
    assert_eq!(seats(), Ok(2 * SESSIONS_PER_LINK));
    hub.set_path(links[0], CONGESTED);
    assert_eq!(seats(), Ok(2 * SESSIONS_PER_LINK), "a control link decides nothing");
    hub.set_path(links[1], CONGESTED);
    assert_eq!(seats(), Ok(SESSIONS_PER_LINK));
    hub.set_path(links[2], CONGESTED);
    assert_eq!(seats(), Ok(0));
    hub.set_path(links[2], PathState::default());
    assert_eq!(seats(), Ok(SESSIONS_PER_LINK));
}
