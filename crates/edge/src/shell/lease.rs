//! The control runtime's own link to each transceiver: which models it serves, and how many seats it leases.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use link::ids::{EdgeId, TransceiverId};
use link::proto::LeaseRequest;
use link::quic::{Endpoint, Link, LinkLost};
use tokio::time::{sleep, timeout};

use super::links::hello;
use crate::seats::Seats;

/// Before a lost or refused link is dialed again: doubled with each failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LAST_BACKOFF: Duration = Duration::from_secs(2);

/// A lease is renewed each second; without five renewals it is over. A transceiver that is gone is noticed sooner, by its
/// link; this is for one that lives and lends no longer, and must not hit one that is merely busy.
const LEASE_LIFE: Duration = Duration::from_secs(5);

/// Keeps the lease of one transceiver, until the runtime ends.
pub(super) async fn keep(
    endpoint: Endpoint,
    edge: EdgeId,
    transceiver: TransceiverId,
    address: SocketAddr,
    seats: Arc<Seats>,
) {
    let mut backoff = FIRST_BACKOFF;
    let mut told = false;
    loop {
        let reason = match endpoint.connect(address, transceiver).await {
            Ok(link) => {
                backoff = FIRST_BACKOFF;
                told = false;
                let reason = tokio::select! {
                    Err(reason) = hold(&link, edge, transceiver, &seats) => reason,
                    lost = read(&link) => lost.to_string(),
                };
                seats.lapse(transceiver);
                reason
            }
            Err(error) => error.to_string(),
        };
        // Once per outage: a transceiver that is down for an hour is one line.
        if !told {
            told = true;
            tracing::warn!(transceiver = transceiver.0, %address, %reason, "no lease; trying again");
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(LAST_BACKOFF);
    }
}

/// Reads the datagrams of a link that carries no calls: its heartbeats, which end in the link.
async fn read(link: &Link) -> LinkLost {
    loop {
        if let Err(lost) = link.read_datagram().await {
            return lost;
        }
    }
}

/// Renews the lease until that fails, and says why.
async fn hold(
    link: &Link,
    edge: EdgeId,
    transceiver: TransceiverId,
    seats: &Seats,
) -> Result<std::convert::Infallible, String> {
    let mut control = link.control();
    let hello = timeout(LEASE_LIFE, control.hello(hello(edge)))
        .await
        .map_err(|_| "no answer to Hello".to_owned())?
        .map_err(|status| status.to_string())?
        .into_inner();
    seats.hello(transceiver, hello.models.clone());
    let mut grants = timeout(LEASE_LIFE, control.lease(LeaseRequest { edge: u32::from(edge.0) }))
        .await
        .map_err(|_| "no answer to Lease".to_owned())?
        .map_err(|status| status.to_string())?
        .into_inner();
    tracing::info!(transceiver = transceiver.0, software = %hello.software, models = ?hello.models, "leasing seats");
    loop {
        let grant = timeout(LEASE_LIFE, grants.message())
            .await
            .map_err(|_| "the lease was not renewed".to_owned())?
            .map_err(|status| status.to_string())?
            .ok_or("the lease ended")?;
        seats.grant(transceiver, grant.seats, grant.draining);
    }
}
