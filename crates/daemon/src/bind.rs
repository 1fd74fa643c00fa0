//! Binding ports, and saying who has them when it fails.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;

use crate::problem::Problem;

/// The kind of port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// HTTP.
    Tcp,
    /// Media and the link.
    Udp,
}

/// Binds a TCP port for a listener on tokio (nonblocking).
///
/// # Errors
///
/// A [`Problem`] that names `key`.
pub fn tcp(key: &str, address: SocketAddr) -> Result<TcpListener, Problem> {
    let bind = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    bind().map_err(|error| refused(key, address, Transport::Tcp, &error))
}

/// What to report when binding `address` failed; `key` is where the address was configured.
pub fn refused(key: &str, address: SocketAddr, transport: Transport, error: &io::Error) -> Problem {
    let name = match transport {
        Transport::Tcp => "TCP",
        Transport::Udp => "UDP",
    };
    let (reason, fix) = match error.kind() {
        io::ErrorKind::AddrInUse => {
            let by = holder(address, transport).map_or_else(String::new, |holder| format!(" by {holder}"));
            (
                format!("address in use{by}: {name} port {} is taken", address.port()),
                "stop that process, or choose another port".to_owned(),
            )
        }
        io::ErrorKind::AddrNotAvailable => (
            format!("no interface of this machine has the address {}", address.ip()),
            "bind an address that `ip address` lists, or 0.0.0.0 or [::] for all of them".to_owned(),
        ),
        io::ErrorKind::PermissionDenied => (
            format!("{name} port {} is reserved for root", address.port()),
            "choose a port above 1023, or grant CAP_NET_BIND_SERVICE".to_owned(),
        ),
        _ => (format!("{name}: {error}"), "choose another address".to_owned()),
    };
    Problem::new(key, format_args!("\"{address}\""), reason, fix)
}

/// Which process holds the port, as far as `/proc` shows it to us: those of this user, all of them to root.
fn holder(address: SocketAddr, transport: Transport) -> Option<String> {
    let tables: [&str; 2] = match transport {
        Transport::Tcp => ["/proc/net/tcp", "/proc/net/tcp6"],
        Transport::Udp => ["/proc/net/udp", "/proc/net/udp6"],
    };
    let inodes: Vec<String> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| table.lines().skip(1).filter_map(|line| inode(line, address, transport)).collect::<Vec<_>>())
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    fs::read_dir("/proc").ok()?.filter_map(Result::ok).find_map(|process| {
        // Everything else in /proc is no process, or is this one under another name.
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        if !holds(&process.path().join("fd"), &inodes) {
            return None;
        }
        let name = fs::read_to_string(process.path().join("comm")).ok()?;
        Some(format!("process {pid} ({})", name.trim()))
    })
}

fn holds(descriptors: &Path, inodes: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(descriptors) else { return false };
    descriptors
        .filter_map(Result::ok)
        .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
        .any(|target| target.to_str().is_some_and(|target| inodes.iter().any(|inode| inode == target)))
}

/// The inode of a line of `/proc/net/{tcp,udp}` whose socket keeps us from `address`.
///
/// `  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 12345 ...`
fn inode(line: &str, address: SocketAddr, transport: Transport) -> Option<String> {
    const LISTENING: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    let (ip, port) = local.split_once(':')?;
    if u16::from_str_radix(port, 16).ok()? != address.port() || (transport == Transport::Tcp && *state != LISTENING) {
        return None;
    }
    let ip = parse_ip(ip)?.to_canonical();
    let conflicts = ip.is_unspecified() || address.ip().is_unspecified() || ip == address.ip().to_canonical();
    conflicts.then(|| (*inode).to_owned())
}

/// Words of 4 bytes in the byte order of the machine, in hexadecimal.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(text.get(8 * at..8 * at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut octets = [0; 16];
            for (at, target) in octets.chunks_exact_mut(4).enumerate() {
                target.copy_from_slice(&word(at)?);
            }
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_taken_tcp_port_names_key_value_holder_and_fix() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let problem = tcp("http_bind", address).unwrap_err();
        assert_eq!((problem.key.as_str(), problem.value), ("http_bind", format!("\"{address}\"")));
        let holder = format!("address in use by process {} (", std::process::id());
        assert!(problem.reason.starts_with(&holder), "{}", problem.reason);
        assert!(problem.fix.contains("another port"), "{}", problem.fix);
    }

    #[test]
    fn a_taken_udp_port_names_its_holder() {
        let taken = UdpSocket::bind("[::1]:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = UdpSocket::bind(address).unwrap_err();
        let problem = refused("media_bind", address, Transport::Udp, &error);
        let holder = format!("address in use by process {} (", std::process::id());
        assert!(problem.reason.starts_with(&holder), "{}", problem.reason);
        assert!(problem.reason.contains("UDP"));
    }

    #[test]
    fn an_address_of_nobody_here_is_named() {
        let problem = tcp("http_bind", SocketAddr::from(([192, 0, 2, 1], 8080))).unwrap_err();
        assert!(problem.reason.contains("no interface of this machine has the address 192.0.2.1"), "{problem}");
    }

    #[test]
    fn a_connection_from_a_port_does_not_hold_it() {
        let connected = "   1: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000  0  0 77 1";
        let listening = "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 78 1";
        let address = SocketAddr::from(([127, 0, 0, 1], 8080));
        assert_eq!(inode(connected, address, Transport::Tcp), None);
        assert_eq!(inode(listening, address, Transport::Tcp), Some("78".to_owned()));
        assert_eq!(inode(listening, SocketAddr::from(([127, 0, 0, 2], 8080)), Transport::Tcp), None);
        assert_eq!(inode("", address, Transport::Tcp), None);
    }
}
