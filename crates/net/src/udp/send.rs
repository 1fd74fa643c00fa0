//! A bounded queue of datagrams that leaves in batches.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;

use super::address::{Control, Name, write_packet_info};
use super::{BATCH, MAX_DATAGRAM};

/// Datagrams that a batch holds at most. One turn of a worker answers 64 received datagrams and sends 64 due
/// frames; twice that is left for what a full kernel buffer made us keep. 256 x 2 KiB = 512 KiB per worker.
const CAPACITY: usize = 256;

/// What left and what did not, since the batch was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendStats {
    /// Datagrams that the kernel took.
    pub sent: u64,
    /// Datagrams dropped, oldest first, because the batch was full.
    pub dropped: u64,
    /// Datagrams dropped for being longer than [`MAX_DATAGRAM`].
    pub oversize: u64,
    /// Datagrams that the kernel refused for their own sake: no route, filtered, an address not ours.
    pub failed: u64,
    /// Times the kernel had no room (EAGAIN, ENOBUFS), so that the rest waited for the next call.
    pub congested: u64,
}

/// Datagrams to send, in fixed memory: a ring of 256, the oldest dropped when it is full, because late media
/// is worth less than fresh media.
pub struct SendBatch {
    slots: Box<[Slot]>,
    /// Where the oldest datagram is.
    head: usize,
    len: usize,
    scratch: Box<[Scratch]>,
    stats: SendStats,
}

struct Slot {
    local: SocketAddr,
    remote: SocketAddr,
    length: usize,
    bytes: [u8; MAX_DATAGRAM],
}

/// Addresses in the kernel's layout, for the datagrams of one call.
struct Scratch {
    name: Name,
    control: Control,
}

impl SendBatch {
    /// An empty batch.
    pub fn new() -> Self {
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let slot = || Slot { local: any, remote: any, length: 0, bytes: [0; MAX_DATAGRAM] };
        Self {
            slots: (0..CAPACITY).map(|_| slot()).collect(),
            head: 0,
            len: 0,
            scratch: (0..BATCH).map(|_| Scratch { name: Name::empty(), control: Control::EMPTY }).collect(),
            stats: SendStats::default(),
        }
    }

    /// How many datagrams wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The counts so far.
    pub fn stats(&self) -> SendStats {
        self.stats
    }

    /// Queues a copy of `bytes` to leave from `local` towards `remote`.
    ///
    /// `local` matters on a socket that is bound to all addresses; its port is always the socket's, and an
    /// unspecified address lets the kernel choose.
    pub fn push(&mut self, local: SocketAddr, remote: SocketAddr, bytes: &[u8]) {
        self.push_with(local, remote, |buffer| match buffer.get_mut(..bytes.len()) {
            Some(target) => {
                target.copy_from_slice(bytes);
                bytes.len()
            }
            None => usize::MAX,
        });
    }

    /// Queues what `write` puts into the buffer of [`MAX_DATAGRAM`] bytes; it returns the length. 0 queues
    /// nothing, a length beyond the buffer is counted as oversize.
    pub fn push_with(&mut self, local: SocketAddr, remote: SocketAddr, write: impl FnOnce(&mut [u8]) -> usize) {
        if self.len == CAPACITY {
            self.pop();
            self.stats.dropped += 1;
        }
        let slot = &mut self.slots[(self.head + self.len) % CAPACITY];
        let length = write(&mut slot.bytes);
        if length > MAX_DATAGRAM {
            self.stats.oversize += 1;
        } else if length > 0 {
            (slot.local, slot.remote, slot.length) = (local, remote, length);
            self.len += 1;
        }
    }

    /// As many sendmmsg as needed until all is sent or the kernel has no room.
    pub(super) fn send(&mut self, fd: RawFd, bound: SocketAddr) -> usize {
        let mut sent = 0;
        while self.len > 0 {
            match self.send_some(fd, bound) {
                Ok(taken) => {
                    (0..taken).for_each(|_| self.pop());
                    sent += taken;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN | libc::ENOBUFS) => {
                        self.stats.congested += 1;
                        break;
                    }
                    // sendmmsg reports an error for the first datagram alone, so that one is at fault.
                    _ => {
                        self.pop();
                        self.stats.failed += 1;
                    }
                },
            }
        }
        self.stats.sent += sent as u64;
        sent
    }

    fn pop(&mut self) {
        self.head = (self.head + 1) % CAPACITY;
        self.len -= 1;
    }

    fn send_some(&mut self, fd: RawFd, bound: SocketAddr) -> io::Result<usize> {
        let count = self.len.min(BATCH);
        // SAFETY: `iovec` and `mmsghdr` are plain data, for which all zeroes is a valid value.
        let mut vectors: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        for (index, ((header, vector), scratch)) in
            headers.iter_mut().zip(&mut vectors).zip(&mut self.scratch).take(count).enumerate()
        {
            let slot = &mut self.slots[(self.head + index) % CAPACITY];
            vector.iov_base = slot.bytes.as_mut_ptr().cast();
            vector.iov_len = slot.length;
            header.msg_hdr.msg_iov = ptr::from_mut(vector);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_namelen = scratch.name.write(slot.remote, bound.is_ipv6());
            header.msg_hdr.msg_name = scratch.name.as_mut_ptr();
            if bound.ip().is_unspecified() && !slot.local.ip().is_unspecified() {
                header.msg_hdr.msg_controllen = write_packet_info(&mut scratch.control, slot.local, bound.is_ipv6());
                header.msg_hdr.msg_control = scratch.control.as_mut_ptr();
            }
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
        let room = count as libc::c_uint;
        // SAFETY: the first `room` headers lead, with true lengths, into `vectors`, `self.slots` and
        // `self.scratch`, all alive and otherwise untouched during the call.
        let taken = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), room, flags) };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }
}

impl Default for SendBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBatch").field("len", &self.len).field("stats", &self.stats).finish_non_exhaustive()
    }
}
