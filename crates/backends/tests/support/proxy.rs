//! Something between transceiver and backend that ends connections as servers, load balancers and firewalls do.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Bytes of a frame's head (RFC 9113 section 4.1).
const HEAD: usize = 9;

/// What happens to a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// A GOAWAY frame comes in (RFC 9113 section 6.8): streams up to 99 are finished.
    GoAway { reason: u32 },
    /// It is gone, without a word.
    Reset,
    /// TCP goes on, and nothing is forwarded any more.
    Swallow,
}

/// NO_ERROR.
pub(crate) const PLAIN: u32 = 0;

/// ENHANCE_YOUR_CALM: what gRPC servers say with `too_many_pings`.
pub(crate) const CALM: u32 = 0xb;

/// A proxy.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<Vec<mpsc::UnboundedSender<Event>>>>,
}

impl Proxy {
    /// To that server.
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let known = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (events, happens) = mpsc::unbounded_channel();
                known.lock().unwrap().push(events);
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(carry(client, server, happens));
            }
        });
        Self { address, connections }
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }

    /// Something happens to the latest connection.
    pub(crate) fn happens(&self, event: Event) {
        self.connections.lock().unwrap().last().unwrap().send(event).unwrap();
    }
}

async fn carry(client: TcpStream, server: TcpStream, mut happens: mpsc::UnboundedReceiver<Event>) {
    let (from_client, mut to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let swallows = Arc::new(AtomicBool::new(false));
    let (to_frames, mut frames) = mpsc::channel(1);
    let readers =
        [tokio::spawn(up(from_client, to_server, Arc::clone(&swallows))), tokio::spawn(down(from_server, to_frames))];
    loop {
        tokio::select! {
            frame = frames.recv() => {
                let Some(frame) = frame else { break };
                if !swallows.load(Ordering::Relaxed) && to_client.write_all(&frame).await.is_err() {
                    break;
                }
            }
            event = happens.recv() => match event {
                Some(Event::GoAway { reason }) => {
                    let frame = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 99];
                    let frame = [&frame[..], &reason.to_be_bytes()].concat();
                    to_client.write_all(&frame).await.unwrap();
                }
                Some(Event::Swallow) => swallows.store(true, Ordering::Relaxed),
                Some(Event::Reset) | None => break,
            }
        }
    }
    // With both halves gone, and what was not read, the client gets a reset.
    for reader in readers {
        reader.abort();
    }
}

async fn up(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, swallows: Arc<AtomicBool>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if !swallows.load(Ordering::Relaxed) && to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

/// Whole frames, so that one can be put between them.
async fn down(mut from: OwnedReadHalf, to: mpsc::Sender<Vec<u8>>) {
    let mut head = [0; HEAD];
    while from.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut frame = vec![0; HEAD + usize::try_from(length).unwrap()];
        frame[..HEAD].copy_from_slice(&head);
        if from.read_exact(&mut frame[HEAD..]).await.is_err() || to.send(frame).await.is_err() {
            return;
        }
    }
}
