//! Up to 64 datagrams per system call, into memory that is allocated once.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;

use super::address::{Control, Name, read_packet_info};
use super::{BATCH, MAX_DATAGRAM};

/// What came in and what did not, since the batch was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvStats {
    /// Datagrams handed out.
    pub received: u64,
    /// Datagrams dropped for being longer than [`MAX_DATAGRAM`].
    pub oversize: u64,
    /// Datagrams dropped because the kernel reported no usable address.
    pub unaddressed: u64,
    /// Errors that the network caused, such as ECONNREFUSED after a send.
    pub errors: u64,
}

/// One received datagram, borrowed from its [`RecvBatch`]; the bytes may be decrypted in place.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// The address of ours that it came to, also on a socket bound to all addresses.
    pub local: SocketAddr,
    /// Who sent it.
    pub remote: SocketAddr,
    /// Its payload.
    pub bytes: &'a mut [u8],
}

/// Room for [`BATCH`] datagrams: 64 x 2 KiB and their addresses, ~136 KiB, allocated once per worker.
pub struct RecvBatch {
    slots: Box<[Slot]>,
    /// Which slots hold a datagram, in the order of arrival.
    arrived: Vec<Arrived>,
    stats: RecvStats,
}

struct Slot {
    name: Name,
    control: Control,
    bytes: [u8; MAX_DATAGRAM],
}

#[derive(Clone, Copy)]
struct Arrived {
    slot: usize,
    length: usize,
    local: SocketAddr,
    remote: SocketAddr,
}

impl RecvBatch {
    /// An empty batch.
    pub fn new() -> Self {
        let slot = || Slot { name: Name::empty(), control: Control::EMPTY, bytes: [0; MAX_DATAGRAM] };
        Self {
            slots: (0..BATCH).map(|_| slot()).collect(),
            arrived: Vec::with_capacity(BATCH),
            stats: RecvStats::default(),
        }
    }

    /// How many datagrams it holds.
    pub fn len(&self) -> usize {
        self.arrived.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// The datagrams in the order of arrival.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = Datagram<'_>> {
        let mut slots = self.slots.iter_mut().enumerate();
        self.arrived.iter().filter_map(move |arrived| {
            let (_, slot) = slots.by_ref().find(|(index, _)| *index == arrived.slot)?;
            Some(Datagram {
                local: arrived.local,
                remote: arrived.remote,
                bytes: slot.bytes.get_mut(..arrived.length)?,
            })
        })
    }

    /// One datagram by its place in the order of arrival.
    pub fn get_mut(&mut self, index: usize) -> Option<Datagram<'_>> {
        let arrived = *self.arrived.get(index)?;
        let bytes = self.slots.get_mut(arrived.slot)?.bytes.get_mut(..arrived.length)?;
        Some(Datagram { local: arrived.local, remote: arrived.remote, bytes })
    }

    /// The counts so far.
    pub fn stats(&self) -> RecvStats {
        self.stats
    }

    /// Counts an error that the network caused; false when it is another one.
    pub(super) fn count(&mut self, error: &io::Error) -> bool {
        let network = matches!(
            error.raw_os_error(),
            Some(
                libc::ECONNREFUSED
                    | libc::ECONNRESET
                    | libc::EHOSTUNREACH
                    | libc::ENETUNREACH
                    | libc::ENETDOWN
                    | libc::EHOSTDOWN
                    | libc::ENOBUFS
                    | libc::ENOMEM
                    | libc::EMSGSIZE
                    | libc::EPROTO
                    | libc::ENOPROTOOPT
                    | libc::EINTR
            )
        );
        self.stats.errors += u64::from(network);
        network
    }

    /// One recvmmsg. Returns how many messages the kernel gave, of which oversize ones are not kept.
    pub(super) fn receive(&mut self, fd: RawFd, bound: SocketAddr) -> io::Result<usize> {
        self.arrived.clear();
        // SAFETY: `iovec` and `mmsghdr` are plain data, for which all zeroes is a valid value.
        let mut vectors: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        // Only a socket that is bound to all addresses was told to report where a datagram came to.
        let wants_local = bound.ip().is_unspecified();
        for ((header, vector), slot) in headers.iter_mut().zip(&mut vectors).zip(&mut self.slots) {
            vector.iov_base = slot.bytes.as_mut_ptr().cast();
            vector.iov_len = MAX_DATAGRAM;
            header.msg_hdr.msg_iov = ptr::from_mut(vector);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = slot.name.as_mut_ptr();
            header.msg_hdr.msg_namelen = Name::capacity();
            if wants_local {
                header.msg_hdr.msg_control = slot.control.as_mut_ptr();
                header.msg_hdr.msg_controllen = Control::capacity();
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "64")]
        let room = BATCH as libc::c_uint;
        // SAFETY: `headers` holds `room` headers whose pointers lead, with true lengths, into `vectors` and
        // `self.slots`, all alive and otherwise untouched during the call. A null timeout is allowed.
        let taken = unsafe { libc::recvmmsg(fd, headers.as_mut_ptr(), room, libc::MSG_DONTWAIT, ptr::null_mut()) };
        let Ok(taken) = usize::try_from(taken) else {
            return Err(io::Error::last_os_error());
        };
        for (index, (header, slot)) in headers.iter().zip(&self.slots).take(taken).enumerate() {
            let length = header.msg_len as usize;
            if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 || length > MAX_DATAGRAM {
                self.stats.oversize += 1;
                continue;
            }
            let local = if wants_local { read_packet_info(&header.msg_hdr, bound.port()) } else { Some(bound) };
            let (Some(local), Some(remote)) = (local, slot.name.read(header.msg_hdr.msg_namelen)) else {
                self.stats.unaddressed += 1;
                continue;
            };
            self.stats.received += 1;
            self.arrived.push(Arrived { slot: index, length, local, remote });
        }
        Ok(taken)
    }
}

impl Default for RecvBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvBatch").field("len", &self.len()).field("stats", &self.stats).finish_non_exhaustive()
    }
}
