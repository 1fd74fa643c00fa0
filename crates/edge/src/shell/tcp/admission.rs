//! The first frame of a connection says whose it is, or it is over.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rtc::Path;
use rtc::stun::{Check, IntegrityKey};
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::directory::Owner;
use crate::shell::doors::{Doors, Refused};
use crate::signaling::Shared;
use crate::tcp::{Arrival, Deframer, SendQueue};

/// What the kernel may hold unsent before it asks for patience: 0.8 s of audio at 40 kbit/s. More would be a queue that
/// drops nothing.
const UNSENT_MAX: u32 = 4096;

/// Lets WebRTC connections in.
pub(in crate::shell) struct Admission {
    shared: Arc<Shared>,
}

impl Admission {
    pub(in crate::shell) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Reads the first check and leaves the connection at the worker of its session. Nothing is answered here.
    pub(in crate::shell) async fn admit(
        &self,
        doors: &Doors,
        stream: TcpStream,
        from: SocketAddr,
    ) -> Result<(), Refused> {
        let place = doors.places.take(from.ip()).ok_or(Refused::Crowded)?;
        let local = stream.local_addr().map_err(|_| Refused::Silent)?;
        let path = Path::tcp(canonical(local), canonical(from));
        let mut deframer = Deframer::default();
        let worker = loop {
            match deframer.first() {
                Ok(Some(frame)) => break self.place(&path, frame)?,
                Ok(None) => {}
                Err(_) => return Err(Refused::Unknown),
            }
            stream.readable().await.map_err(|_| Refused::Silent)?;
            match stream.try_read(deframer.space()) {
                Ok(0) => return Err(Refused::Silent),
                Ok(count) => deframer.filled(count),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(Refused::Silent),
            }
        };
        // Without it audio waits longer for a slow reader, and all the rest is the same.
        let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_MAX);
        let stream = stream.into_std().map_err(|_| Refused::Unplaced)?;
        let received = deframer.rest().to_vec();
        let arrival = Arrival { stream, path, received, unsent: SendQueue::default(), moves: 0, place };
        let mailbox = self.shared.directory.mailbox(worker).ok_or(Refused::Unplaced)?;
        if !mailbox.arrive(arrival) {
            return Err(Refused::Unplaced);
        }
        doors.taken.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The worker of the session that a check names. Its password follows from its ufrag, so that nothing is looked up for a
    /// check that is not authentic.
    fn place(&self, path: &Path, frame: &[u8]) -> Result<u32, Refused> {
        let Shared { edge, keys, directory, .. } = &*self.shared;
        let check = Check::parse(frame).map_err(|_| Refused::Forged)?;
        let keys = keys.current();
        let ufrag = check.local_ufrag();
        let route = keys.route().open(ufrag).ok_or(Refused::Forged)?;
        let password = keys.route().password(ufrag).ok_or(Refused::Forged)?;
        if !check.verify(&IntegrityKey::new(&password)) {
            return Err(Refused::Forged);
        }
        if route.edge != *edge {
            // The worker that takes what this peer sends for an unknown 4-tuple (worker::peers::Gate::worker_for).
            let known = directory.pop.peers.contains(&route.edge);
            return if known { Ok(u32::from(path.remote.port()) % directory.workers()) } else { Err(Refused::Forged) };
        }
        match directory.get(route.session).map(|entry| entry.owner()) {
            Some(Owner::Worker(worker)) => Ok(worker),
            Some(Owner::Gone) => Err(Refused::Unplaced),
            Some(Owner::Unclaimed) | None => {
                Ok(u32::try_from(route.session.0 % u64::from(directory.workers())).unwrap_or_default())
            }
        }
    }
}

/// An IPv4 address as such, also where the socket takes both.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
