//! WebRTC connections on the thread of their worker: one task each, that reads; sending never waits.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rtc::Path;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::shell::doors::Doors;
use crate::shell::worker::Shell;
use crate::tcp::{Arrival, Deframer, Oversize, SendQueue};

/// A connection on which nothing was to be sent for so long has no session: each of the client's checks is answered, and
/// 30 s without a check end a session.
const SILENCE: Duration = Duration::from_secs(30);

/// How often workers may pass a connection on: a session has one owner, so twice is already strange.
const MOVES_MAX: u8 = 8;

/// The connections of one worker.
pub(in crate::shell) struct Connections {
    open: HashMap<Path, Rc<Connection>>,
    doors: Arc<Doors>,
}

struct Connection {
    stream: TcpStream,
    out: RefCell<Outgoing>,
    /// Something is to be written, or to be given up.
    wake: Notify,
}

struct Outgoing {
    queue: SendQueue,
    /// When something was to be sent last.
    used_at: Instant,
    broken: bool,
    moving: Option<Moving>,
}

/// The connection's session is another worker's.
struct Moving {
    worker: u32,
    /// What it is to be given, framed.
    frames: Vec<u8>,
}

impl Connections {
    pub(in crate::shell) fn new(doors: Arc<Doors>) -> Self {
        Self { open: HashMap::new(), doors }
    }

    /// Sends a datagram, now or as soon as the client reads; never waits.
    pub(in crate::shell) fn send(&self, path: &Path, datagram: &[u8]) {
        match self.open.get(path) {
            Some(connection) => connection.send(Instant::now(), datagram),
            // The client closed it; its session finds another path, or ends.
            None => drop(self.doors.frames_dropped.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Notes that the session of a connection is another worker's, which is to have this datagram. `false`: there is no such
    /// connection here.
    pub(in crate::shell) fn pass_on(&self, path: &Path, worker: u32, datagram: &[u8]) -> bool {
        let Some(connection) = self.open.get(path) else { return false };
        let mut out = connection.out.borrow_mut();
        let moving = out.moving.get_or_insert_with(|| Moving { worker, frames: Vec::new() });
        if let Ok(length) = u16::try_from(datagram.len()) {
            moving.frames.extend_from_slice(&length.to_be_bytes());
            moving.frames.extend_from_slice(datagram);
        }
        connection.wake.notify_one();
        true
    }

    fn close(&mut self, path: &Path, connection: &Rc<Connection>) {
        // The same 4-tuple may have been dialed again.
        if self.open.get(path).is_some_and(|open| Rc::ptr_eq(open, connection)) {
            self.open.remove(path);
        }
    }
}

impl Connection {
    fn send(&self, now: Instant, datagram: &[u8]) {
        let mut out = self.out.borrow_mut();
        out.used_at = now;
        let Ok(length) = u16::try_from(datagram.len()) else { return };
        if !out.queue.is_empty() {
            return out.queue.push(datagram);
        }
        let head = length.to_be_bytes();
        match self.stream.try_write_vectored(&[IoSlice::new(&head), IoSlice::new(datagram)]) {
            Ok(written) if written == head.len() + datagram.len() => return,
            Ok(written) => out.queue.push_begun(datagram, written),
            Err(error) if error.kind() == ErrorKind::WouldBlock => out.queue.push(datagram),
            Err(_) => out.broken = true,
        }
        self.wake.notify_one();
    }

    /// Sends what waits, as far as the kernel takes it.
    fn flush(&self) -> io::Result<()> {
        let mut out = self.out.borrow_mut();
        while let Some(front) = out.queue.front() {
            match self.stream.try_write(front) {
                Ok(written) => out.queue.wrote(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Serves a connection until it closes, falls silent or goes to another worker.
pub(in crate::shell) async fn serve(shell: Rc<Shell>, arrival: Arrival) {
    let Arrival { stream, path, received, unsent, moves, place } = arrival;
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    let out = Outgoing { queue: unsent, used_at: Instant::now(), broken: false, moving: None };
    let connection = Rc::new(Connection { stream, out: RefCell::new(out), wake: Notify::new() });
    let doors = shell.with_connections(|connections| {
        connections.open.insert(path, Rc::clone(&connection));
        Arc::clone(&connections.doors)
    });
    let mut deframer = Deframer::with(&received);
    let moving = run(&shell, &doors, &connection, path, &mut deframer).await;
    shell.with_connections(|connections| connections.close(&path, &connection));
    let Some(Connection { stream, out, .. }) = Rc::into_inner(connection) else { return };
    let Outgoing { queue: mut unsent, .. } = out.into_inner();
    doors.frames_dropped.fetch_add(unsent.take_dropped(), Ordering::Relaxed);
    if let Some(Moving { worker, frames: mut received }) = moving
        && moves < MOVES_MAX
        && let Ok(stream) = stream.into_std()
    {
        received.extend_from_slice(deframer.rest());
        shell.leave(worker, Arrival { stream, path, received, unsent, moves: moves + 1, place });
    }
}

/// The connection's life. Returns where it goes, if it goes on.
async fn run(
    shell: &Rc<Shell>,
    doors: &Doors,
    connection: &Connection,
    path: Path,
    deframer: &mut Deframer,
) -> Option<Moving> {
    loop {
        deliver(shell, path, deframer).ok()?;
        let moving = connection.out.borrow_mut().moving.take();
        if moving.is_some() {
            return moving;
        }
        connection.flush().ok()?;
        let (interest, silent_at) = {
            let mut out = connection.out.borrow_mut();
            doors.frames_dropped.fetch_add(out.queue.take_dropped(), Ordering::Relaxed);
            if out.broken {
                return None;
            }
            let interest =
                if out.queue.is_empty() { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
            (interest, out.used_at + SILENCE)
        };
        tokio::select! {
            ready = connection.stream.ready(interest) => {
                if ready.ok()?.is_readable() {
                    match connection.stream.try_read(deframer.space()) {
                        Ok(0) => return None,
                        Ok(count) => deframer.filled(count),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        Err(_) => return None,
                    }
                }
            }
            () = connection.wake.notified() => {}
            () = tokio::time::sleep_until(silent_at.into()) => {
                if connection.out.borrow().used_at + SILENCE <= Instant::now() {
                    return None;
                }
            }
        }
        // A client that sends without end makes way for the others after each read.
        if connection.out.borrow().queue.is_empty() {
            yield_now().await;
        }
    }
}

/// Gives all whole frames to the core, in one turn.
fn deliver(shell: &Rc<Shell>, path: Path, deframer: &mut Deframer) -> Result<(), Oversize> {
    if deframer.first()?.is_none() {
        return Ok(());
    }
    let unix_seconds = net::clock::unix_seconds();
    let mut delivered = Ok(());
    shell.turn(|core, now| {
        delivered = loop {
            match deframer.next() {
                Ok(Some(frame)) => core.handle_datagram(now, unix_seconds, path, frame),
                Ok(None) => break Ok(()),
                Err(oversize) => break Err(oversize),
            }
        }
    });
    delivered
}
