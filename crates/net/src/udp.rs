//! The public UDP port: sockets of a reuseport group, read and written in batches.

mod address;
mod receive;
mod send;

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use receive::{Datagram, RecvBatch, RecvStats};
pub use send::{SendBatch, SendStats};

/// Datagrams per system call. 64 of them are ~100-150 us of kernel work, well inside the ~500 us that one
/// turn of a worker may take.
pub const BATCH: usize = 64;

/// The longest datagram taken or sent. WebRTC peers keep to 1200-1500 bytes; a longer one is counted and
/// dropped.
pub const MAX_DATAGRAM: usize = 2048;

/// Wanted size of each kernel buffer. A worker that is away for 50 ms at 80,000 datagrams of 100 bytes per
/// second needs 4000 of them, and the kernel charges ~768 bytes for each: 3 MiB.
const KERNEL_BUFFER_BYTES: usize = 4 << 20;

/// Whether other sockets may share the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// The port is this socket's alone.
    Exclusive,
    /// SO_REUSEPORT: the kernel spreads flows over all sockets of this user that bind the port so. Prefer
    /// [`BoundSocket::group`], which keeps other processes out.
    Group,
}

/// What the kernel gave of the 4 MiB asked for, in bytes of payload and bookkeeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Receive buffer; limited by `net.core.rmem_max`.
    pub receive_bytes: usize,
    /// Send buffer; limited by `net.core.wmem_max`.
    pub send_bytes: usize,
}

impl Buffers {
    /// What each of the two should be.
    pub const WANTED_BYTES: usize = KERNEL_BUFFER_BYTES;

    /// Whether the kernel gave less than was asked for, which a daemon should warn about.
    pub fn short(&self) -> bool {
        self.receive_bytes < Self::WANTED_BYTES || self.send_bytes < Self::WANTED_BYTES
    }
}

/// A bound socket that no runtime knows yet, so that all sockets of a port are opened at start by one
/// thread and each is then moved to its worker.
#[derive(Debug)]
pub struct BoundSocket {
    socket: Socket,
    local: SocketAddr,
    buffers: Buffers,
}

impl BoundSocket {
    /// Binds one socket. Port 0 takes a free one; `[::]` takes IPv4 too.
    ///
    /// # Errors
    ///
    /// The kernel's reason; `AddrInUse` when somebody else has the port.
    pub fn bind(address: SocketAddr, reuse: Reuse) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(!address.ip().is_unspecified())?;
        }
        if reuse == Reuse::Group {
            socket.set_reuse_port(true)?;
        }
        socket.set_recv_buffer_size(KERNEL_BUFFER_BYTES)?;
        socket.set_send_buffer_size(KERNEL_BUFFER_BYTES)?;
        if address.ip().is_unspecified() {
            address::want_packet_info(socket.as_raw_fd(), address.is_ipv6())?;
        }
        socket.bind(&address.into())?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        // The kernel doubles what is asked for, to pay for its bookkeeping, and reports the double.
        let buffers =
            Buffers { receive_bytes: socket.recv_buffer_size()? / 2, send_bytes: socket.send_buffer_size()? / 2 };
        Ok(Self { socket, local, buffers })
    }

    /// Binds the `members` sockets of one port, which share it among themselves and with nobody else.
    ///
    /// The first is bound alone, so that another process on the port is an error rather than a silent
    /// partner (SO_REUSEPORT admits any process of the same user); only then is the port opened for the
    /// others. The group stays as it is for the life of the process: one more socket would move half of
    /// the flows.
    ///
    /// # Errors
    ///
    /// The kernel's reason; `AddrInUse` when somebody else has the port; `InvalidInput` without members.
    pub fn group(address: SocketAddr, members: usize) -> io::Result<Vec<Self>> {
        if members == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a group needs a member"));
        }
        let first = Self::bind(address, Reuse::Exclusive)?;
        first.socket.set_reuse_port(true)?;
        let address = first.local;
        let mut group = vec![first];
        for _ in 1..members {
            group.push(Self::bind(address, Reuse::Group)?);
        }
        Ok(group)
    }

    /// The bound address, with the port that the kernel chose when 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The kernel's buffers.
    pub fn buffers(&self) -> Buffers {
        self.buffers
    }

    /// The socket for a thread that blocks in it.
    ///
    /// # Errors
    ///
    /// The kernel's reason.
    pub fn into_blocking(self) -> io::Result<std::net::UdpSocket> {
        self.socket.set_nonblocking(false)?;
        Ok(self.socket.into())
    }

    /// Hands the socket to the current tokio runtime.
    ///
    /// # Errors
    ///
    /// When the runtime's poller refuses it.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn register(self) -> io::Result<UdpSocket> {
        // Readable alone: with interest in writability the kernel would wake the worker for each datagram
        // that leaves its send buffer.
        // SAFETY: a `Socket` yields one and the same open descriptor for as long as it lives.
        let io = unsafe { AsyncFd::register_with_interest(self.socket, Interest::READABLE) }?;
        Ok(UdpSocket { io, local: self.local, buffers: self.buffers })
    }
}

/// A UDP socket on the current tokio runtime.
#[derive(Debug)]
pub struct UdpSocket {
    io: AsyncFd<Socket>,
    local: SocketAddr,
    buffers: Buffers,
}

impl UdpSocket {
    /// [`BoundSocket::bind`] and [`BoundSocket::register`] in one.
    ///
    /// # Errors
    ///
    /// Those of the two.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn bind(address: SocketAddr, reuse: Reuse) -> io::Result<Self> {
        BoundSocket::bind(address, reuse)?.register()
    }

    /// The bound address, with the port that the kernel chose when 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The kernel's buffers.
    pub fn buffers(&self) -> Buffers {
        self.buffers
    }

    /// Waits for datagrams and takes up to [`BATCH`] of them, replacing what `batch` held.
    ///
    /// Returns how many the batch holds, which may be 0 when all of them were oversize. Cancel safe.
    ///
    /// # Errors
    ///
    /// Only when the runtime shuts down or the descriptor is broken: errors that the network caused are
    /// counted in [`RecvBatch::stats`] and receiving goes on.
    pub async fn recv_batch(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        loop {
            let mut ready = self.io.readable().await?;
            match batch.receive(self.io.get_ref().as_raw_fd(), self.local) {
                Ok(taken) => {
                    // Less than asked for means that the queue is empty. Whatever arrives later is
                    // reported anew, so the call that would only return EAGAIN is saved.
                    if taken < BATCH {
                        ready.clear_ready();
                    }
                    return Ok(batch.len());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) if batch.count(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes what is there without waiting: `Ok(0)` when nothing is.
    ///
    /// # Errors
    ///
    /// Those of [`recv_batch`](Self::recv_batch).
    pub fn try_recv_batch(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        match batch.receive(self.io.get_ref().as_raw_fd(), self.local) {
            Ok(_) => Ok(batch.len()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || batch.count(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Sends what `batch` holds, as far as the kernel takes it, and returns how many datagrams left.
    ///
    /// Never waits. What the kernel has no room for stays in the batch for the next call; a datagram that
    /// it refuses for its own sake (no route, too long) is dropped and counted in [`SendBatch::stats`].
    pub fn send_batch(&self, batch: &mut SendBatch) -> usize {
        batch.send(self.io.get_ref().as_raw_fd(), self.local)
    }
}

/// The address as the socket's family writes it: an IPv6 socket speaks IPv4 in mapped form.
fn to_family(address: SocketAddr, ipv6: bool) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if ipv6 => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into(),
        other => other,
    }
}

/// The address as the rest of the program writes it: IPv4 is never in mapped form.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddrV4::new(v4, v6.port()).into(),
            None => {
                // The kernel reports a scope for every address; it belongs to link-local ones alone, and
                // the same peer must compare equal wherever its address was learned.
                let scope = if is_link_local(v6.ip()) { v6.scope_id() } else { 0 };
                SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope).into()
            }
        },
        v4 => v4,
    }
}

fn is_link_local(ip: &Ipv6Addr) -> bool {
    ip.segments()[0] & 0xffc0 == 0xfe80
}
