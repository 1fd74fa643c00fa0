//! Socket addresses and packet information in the kernel's layout.
//!
//! ```text
//! control buffer, 8-byte aligned:
//!  0        8        12       16
//!  +--------+--------+--------+--------------------------------------------+
//!  | len    | level  | type   | in_pktinfo (12) or in6_pktinfo (20), padded |
//!  +--------+--------+--------+--------------------------------------------+
//! ```

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::RawFd;
use std::ptr;

use super::{canonical, is_link_local, to_family};

/// Room for one control message: 16 bytes of header and 24 of `in6_pktinfo` padded to 8.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control([u8; 40]);

impl Control {
    pub(super) const EMPTY: Self = Self([0; 40]);

    pub(super) const fn capacity() -> usize {
        size_of::<Self>()
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.0.as_mut_ptr().cast()
    }
}

/// A socket address of either family.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union Name {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Name {
    pub(super) const fn empty() -> Self {
        // SAFETY: all variants are plain integers, for which all zeroes is a valid value.
        unsafe { mem::zeroed() }
    }

    pub(super) const fn capacity() -> libc::socklen_t {
        #[expect(clippy::cast_possible_truncation, reason = "28 bytes")]
        let capacity = size_of::<Self>() as libc::socklen_t;
        capacity
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        ptr::from_mut(self).cast()
    }

    /// Writes an address in the family of the socket and returns its length.
    pub(super) fn write(&mut self, address: SocketAddr, ipv6_socket: bool) -> libc::socklen_t {
        match to_family(address, ipv6_socket) {
            SocketAddr::V4(v4) => {
                self.v4 = libc::sockaddr_in {
                    sin_family: family(libc::AF_INET),
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                length_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                self.v6 = libc::sockaddr_in6 {
                    sin6_family: family(libc::AF_INET6),
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                length_of::<libc::sockaddr_in6>()
            }
        }
    }

    /// The address that the kernel wrote in `length` bytes.
    pub(super) fn read(&self, length: libc::socklen_t) -> Option<SocketAddr> {
        if length < length_of::<libc::sa_family_t>() {
            return None;
        }
        // SAFETY: every variant begins with the family, and every byte of the union is initialized.
        let found = unsafe { self.family };
        if found == family(libc::AF_INET) && length >= length_of::<libc::sockaddr_in>() {
            // SAFETY: the family says that this variant was written, in full by its length.
            let v4 = unsafe { self.v4 };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        } else if found == family(libc::AF_INET6) && length >= length_of::<libc::sockaddr_in6>() {
            // SAFETY: the family says that this variant was written, in full by its length.
            let v6 = unsafe { self.v6 };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(canonical(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into()))
        } else {
            None
        }
    }
}

/// Asks the kernel to report the address that each datagram came to.
pub(super) fn want_packet_info(fd: RawFd, ipv6: bool) -> io::Result<()> {
    let (level, option) =
        if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) } else { (libc::IPPROTO_IP, libc::IP_PKTINFO) };
    let on: libc::c_int = 1;
    // SAFETY: the pointer and the length describe `on`, which outlives the call.
    let result = unsafe { libc::setsockopt(fd, level, option, ptr::from_ref(&on).cast(), length_of::<libc::c_int>()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The local address in the control messages of a received datagram.
pub(super) fn read_packet_info(header: &libc::msghdr, port: u16) -> Option<SocketAddr> {
    // SAFETY: `header` is what recvmmsg left of a header whose control pointer and length describe a live,
    // aligned buffer; the macro checks the length.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: the macros yield null or a pointer to a whole header inside the control buffer.
    while let Some(head) = unsafe { message.as_ref() } {
        match (head.cmsg_level, head.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // SAFETY: the kernel writes an `in_pktinfo` behind a header of this type; the read does
                // not rely on its alignment.
                let info: libc::in_pktinfo = unsafe { ptr::read_unaligned(libc::CMSG_DATA(message).cast()) };
                // `ipi_spec_dst` is the address of ours to answer from, also when the datagram was sent to
                // a broadcast address.
                let ip = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
                return Some(SocketAddrV4::new(ip, port).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // SAFETY: the kernel writes an `in6_pktinfo` behind a header of this type; the read does
                // not rely on its alignment.
                let info: libc::in6_pktinfo = unsafe { ptr::read_unaligned(libc::CMSG_DATA(message).cast()) };
                let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                return Some(canonical(SocketAddrV6::new(ip, port, 0, info.ipi6_ifindex).into()));
            }
            // SAFETY: `message` is the non-null header that the macro before yielded for `header`.
            _ => message = unsafe { libc::CMSG_NXTHDR(header, message) },
        }
    }
    None
}

/// Writes the packet information that makes a datagram leave from `local`, and returns its length.
pub(super) fn write_packet_info(control: &mut Control, local: SocketAddr, ipv6_socket: bool) -> usize {
    match to_family(local, ipv6_socket).ip() {
        IpAddr::V4(ip) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            write_control(control, libc::IPPROTO_IP, libc::IP_PKTINFO, info)
        }
        IpAddr::V6(ip) => {
            let scope = match local {
                SocketAddr::V6(v6) if is_link_local(&ip) => v6.scope_id(),
                _ => 0,
            };
            let info = libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: ip.octets() }, ipi6_ifindex: scope };
            write_control(control, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info)
        }
    }
}

fn write_control<T>(control: &mut Control, level: libc::c_int, kind: libc::c_int, value: T) -> usize {
    let value_length = length_of::<T>();
    // SAFETY: `CMSG_LEN` and `CMSG_SPACE` are arithmetic.
    let (length, space) = unsafe { (libc::CMSG_LEN(value_length), libc::CMSG_SPACE(value_length)) };
    assert!(space as usize <= Control::capacity(), "the control buffer is sized for its two messages");
    let head = control.as_mut_ptr().cast::<libc::cmsghdr>();
    // SAFETY: the buffer is aligned as a header and, as checked, has room for header and value, which do
    // not overlap.
    unsafe {
        head.write(libc::cmsghdr { cmsg_len: length as usize, cmsg_level: level, cmsg_type: kind });
        libc::CMSG_DATA(head).cast::<T>().write_unaligned(value);
    }
    space as usize
}

fn family(value: libc::c_int) -> libc::sa_family_t {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "AF_INET and AF_INET6 are 2 and 10")]
    let family = value as libc::sa_family_t;
    family
}

const fn length_of<T>() -> libc::socklen_t {
    #[expect(clippy::cast_possible_truncation, reason = "structures of a few bytes")]
    let length = size_of::<T>() as libc::socklen_t;
    length
}
