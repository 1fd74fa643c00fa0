//! The UDP socket of an endpoint: segmentation offload and ECN for as long as the machine takes them.
//!
//! Some network cards accept the option for segments (UDP_SEGMENT) and fail each send that uses it, with EIO or EINVAL;
//! some kernels refuse ECN marks alike. quinn's own socket then drops what it was sending. Here that datagram is sent
//! again at once, segment by segment and unmarked. What was at fault, as it goes without, is not asked of the socket again;
//! a send that fails either way says nothing of them.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::io::Interest;

/// EIO and EINVAL are the same numbers on every Linux.
const EIO: i32 = 5;
const EINVAL: i32 = 22;
/// A probe for a larger packet that does not fit: that is the answer, not an error.
const EMSGSIZE: i32 = 90;

/// What sends one datagram, or one segmented one: the kernel.
pub(super) trait Send: fmt::Debug + std::marker::Send + Sync + 'static {
    /// One system call.
    fn send(&self, socket: &tokio::net::UdpSocket, transmit: &Transmit<'_>) -> io::Result<()>;
}

impl Send for UdpSocketState {
    fn send(&self, socket: &tokio::net::UdpSocket, transmit: &Transmit<'_>) -> io::Result<()> {
        self.try_send(socket.into(), transmit)
    }
}

/// A socket that loses no datagram to a feature that is not there.
#[derive(Debug)]
pub(super) struct LinkSocket {
    io: tokio::net::UdpSocket,
    state: UdpSocketState,
    /// `None`: `state` sends.
    kernel: Option<Box<dyn Send>>,
    segments: AtomicBool,
    ecn: AtomicBool,
    /// Datagrams that the kernel did not take.
    failed: AtomicU64,
}

impl LinkSocket {
    /// Of a bound socket, on the current runtime.
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        let io = tokio::net::UdpSocket::from_std(socket)?;
        let (segments, ecn) = (AtomicBool::new(true), AtomicBool::new(true));
        Ok(Self { io, state, kernel: None, segments, ecn, failed: AtomicU64::new(0) })
    }

    /// With another kernel.
    #[cfg(test)]
    pub(super) fn with_kernel(socket: UdpSocket, kernel: impl Send) -> io::Result<Self> {
        Ok(Self { kernel: Some(Box::new(kernel)), ..Self::new(socket)? })
    }

    fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let kernel: &dyn Send = match &self.kernel {
            Some(kernel) => &**kernel,
            None => &self.state,
        };
        let ecn = transmit.ecn.filter(|_| self.ecn.load(Ordering::Relaxed));
        let whole = Transmit {
            destination: transmit.destination,
            ecn,
            contents: transmit.contents,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let segmented = whole.segment_size.is_some_and(|size| size < whole.contents.len());
        if !segmented || self.segments.load(Ordering::Relaxed) {
            match kernel.send(&self.io, &whole) {
                Err(error) if refused(&error) && (segmented || ecn.is_some()) => {}
                sent => return sent,
            }
        }
        self.send_plainly(kernel, &whole, segmented)
    }

    /// Segment by segment; with the marks first, then without, so that only what fails is given up.
    fn send_plainly(&self, kernel: &dyn Send, whole: &Transmit<'_>, segmented: bool) -> io::Result<()> {
        let size = whole.segment_size.unwrap_or(whole.contents.len()).max(1);
        let (mut ecn, mut any) = (whole.ecn, false);
        for contents in whole.contents.chunks(size) {
            let one = |ecn| Transmit {
                destination: whole.destination,
                ecn,
                contents,
                segment_size: None,
                src_ip: whole.src_ip,
            };
            let mut sent = kernel.send(&self.io, &one(ecn));
            if ecn.is_some() && sent.as_ref().is_err_and(refused) {
                sent = kernel.send(&self.io, &one(None));
                if sent.is_ok() {
                    ecn = None;
                    self.ecn.store(false, Ordering::Relaxed);
                    tracing::warn!("no ECN on this socket: the system refused it");
                }
            }
            any |= sent.is_ok();
            // What comes after a full socket buffer is lost as on a full path: the call cannot be repeated in part.
            if sent.is_err() {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        if segmented && any && self.segments.swap(false, Ordering::Relaxed) {
            tracing::warn!("no segmentation offload on this socket: the system refused it");
        }
        Ok(())
    }
}

/// The system has something against how it was to be sent.
fn refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EIO | EINVAL))
}

impl AsyncUdpSocket for LinkSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable { socket: self, waiting: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self.io.try_io(Interest::WRITABLE, || self.send(transmit)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            Err(error) if error.raw_os_error() == Some(EMSGSIZE) => Ok(()),
            // Unreachable, filtered, out of memory: lost, as on any path; the link's timers judge.
            Err(_) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_recv_ready(cx))?;
            let received = self.io.try_io(Interest::READABLE, || self.state.recv((&self.io).into(), bufs, meta));
            if let Ok(received) = received {
                return Poll::Ready(Ok(received));
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    fn max_transmit_segments(&self) -> usize {
        if self.segments.load(Ordering::Relaxed) { self.state.max_gso_segments() } else { 1 }
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }
}

/// One connection's wait for room in the socket's buffer: tokio keeps a single waker for those that poll a socket itself.
struct Writable {
    socket: Arc<LinkSocket>,
    waiting: Option<Pin<Box<dyn Future<Output = io::Result<()>> + std::marker::Send + Sync>>>,
}

impl UdpPoller for Writable {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting.is_none() && self.socket.io.try_io(Interest::WRITABLE, || Ok(())).is_ok() {
            return Poll::Ready(Ok(()));
        }
        let socket = Arc::clone(&self.socket);
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(async move { socket.io.writable().await }));
        let ready = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(ready)
    }
}

impl fmt::Debug for Writable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writable").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
