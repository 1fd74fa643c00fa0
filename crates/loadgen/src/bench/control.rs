//! The controls: UDP echo servers without WebRTC, which show what the kernel and the machine cost.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use net::{BoundSocket, RecvBatch, Reuse, SendBatch};

/// How a control reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EchoKind {
    /// One blocking `recvfrom` and one `sendto` per datagram: the control that ratios are against.
    Plain,
    /// `recvmmsg` and `sendmmsg` on the loop that the edge has.
    Batched,
}

impl EchoKind {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Batched => "batched",
        }
    }
}

/// Prints the address of a free loopback port and echoes there until the process is ended.
///
/// # Errors
/// No port could be opened, or the socket broke.
pub fn echo(kind: EchoKind) -> anyhow::Result<()> {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    match kind {
        EchoKind::Plain => {
            let socket: UdpSocket = BoundSocket::bind(local, Reuse::Exclusive)?.into_blocking()?;
            announce(socket.local_addr()?)?;
            let mut datagram = [0; net::MAX_DATAGRAM];
            loop {
                let (length, source) = socket.recv_from(&mut datagram)?;
                socket.send_to(&datagram[..length], source)?;
            }
        }
        EchoKind::Batched => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let socket = BoundSocket::bind(local, Reuse::Exclusive)?.register()?;
                announce(socket.local_addr())?;
                let (mut incoming, mut outgoing) = (RecvBatch::new(), SendBatch::new());
                loop {
                    socket.recv_batch(&mut incoming).await?;
                    for datagram in incoming.iter_mut() {
                        outgoing.push(datagram.local, datagram.remote, datagram.bytes);
                    }
                    socket.send_batch(&mut outgoing);
                }
            })
        }
    }
}

fn announce(address: SocketAddr) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{address}")?;
    stdout.flush()
}
