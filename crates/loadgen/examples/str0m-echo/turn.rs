//! A TURN client (RFC 8656) that knows one peer: one allocation, one channel bound to the caller's address. It refreshes
//! nothing: what it makes lasts ten minutes, longer than a run.
//!
//! ```text
//! STUN:        | type 2 | length 2 | cookie 4 | transaction 12 | attributes: type 2, length 2, value, padding to 4 |
//! ChannelData: | channel 2 | length 2 | application data |
//! ```

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::net::UdpSocket;

const COOKIE: u32 = 0x2112_a442;
const STUN_HEADER: usize = 20;
const ALLOCATE: u16 = 0x0003;
const CHANNEL_BIND: u16 = 0x0009;
/// Set in the type of a success response.
const SUCCESS: u16 = 0x0100;
const CHANNEL_NUMBER: u16 = 0x000c;
const XOR_PEER_ADDRESS: u16 = 0x0012;
const XOR_RELAYED_ADDRESS: u16 = 0x0016;
const REQUESTED_TRANSPORT: u16 = 0x0019;
/// The first number that a channel may have, and the only one here.
const CHANNEL: u16 = 0x4000;
/// Of a request; everything is on one machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// An allocation with a channel to one peer.
pub(crate) struct Relay {
    socket: UdpSocket,
    /// Where the peer sends to.
    pub(crate) relayed: SocketAddr,
    /// Whom the channel leads to.
    pub(crate) peer: SocketAddr,
}

impl Relay {
    pub(crate) async fn new(server: SocketAddr, peer: SocketAddrV4) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        socket.connect(server).await?;
        const UDP: [u8; 4] = [17, 0, 0, 0];
        let allocated = request(&socket, ALLOCATE, &[(REQUESTED_TRANSPORT, &UDP)]).await.context("allocating")?;
        let relayed = relayed_address(&allocated).context("an allocation without an address")?;
        let number = [CHANNEL.to_be_bytes(), [0, 0]].concat();
        let attributes = [(CHANNEL_NUMBER, number.as_slice()), (XOR_PEER_ADDRESS, &xored(peer))];
        request(&socket, CHANNEL_BIND, &attributes).await.context("binding a channel")?;
        Ok(Self { socket, relayed, peer: peer.into() })
    }

    /// Sends to the peer; a full socket buffer is loss, like any other.
    pub(crate) fn send(&self, datagram: &[u8]) {
        let Ok(length) = u16::try_from(datagram.len()) else { return };
        let framed = [&CHANNEL.to_be_bytes(), &length.to_be_bytes(), datagram].concat();
        drop(self.socket.try_send(&framed));
    }

    /// The next datagram of the peer.
    pub(crate) async fn receive(&self) -> std::io::Result<Vec<u8>> {
        let mut buffer = [0; 2048];
        loop {
            let length = self.socket.recv(&mut buffer).await?;
            if let Some((&[a, b, c, d], data)) = buffer[..length].split_first_chunk()
                && [a, b] == CHANNEL.to_be_bytes()
                && let Some(data) = data.get(..usize::from(u16::from_be_bytes([c, d])))
            {
                return Ok(data.to_vec());
            }
        }
    }
}

/// Asks once: nothing gets lost on the way to a server on the same machine.
async fn request(socket: &UdpSocket, method: u16, attributes: &[(u16, &[u8])]) -> anyhow::Result<Vec<u8>> {
    let body: Vec<u8> = attributes
        .iter()
        .flat_map(|(name, value)| {
            let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
            [&name.to_be_bytes(), &length.to_be_bytes(), *value].concat()
        })
        .collect();
    let length = u16::try_from(body.len())?;
    let transaction: [u8; 12] = rand::random();
    let header = [&method.to_be_bytes()[..], &length.to_be_bytes(), &COOKIE.to_be_bytes(), &transaction].concat();
    socket.send(&[header, body].concat()).await?;
    let mut response = vec![0; 2048];
    loop {
        let length = tokio::time::timeout(PATIENCE, socket.recv(&mut response)).await??;
        if response[..length].get(8..STUN_HEADER) == Some(&transaction) {
            response.truncate(length);
            break;
        }
    }
    if response[..2] != (method | SUCCESS).to_be_bytes() {
        bail!("the TURN server refuses: {response:02x?}");
    }
    Ok(response)
}

/// Addresses are masked with the cookie (RFC 8489 §14.2).
fn xored(address: SocketAddrV4) -> [u8; 8] {
    const IPV4: [u8; 2] = [0, 1];
    let [a, b] = (address.port() ^ 0x2112).to_be_bytes();
    let [c, d, e, f] = (address.ip().to_bits() ^ COOKIE).to_be_bytes();
    [IPV4[0], IPV4[1], a, b, c, d, e, f]
}

fn relayed_address(response: &[u8]) -> Option<SocketAddr> {
    let mut attributes = response.get(STUN_HEADER..)?;
    loop {
        let length = usize::from(u16::from_be_bytes([*attributes.get(2)?, *attributes.get(3)?]));
        let value = attributes.get(4..4 + length)?;
        if attributes[..2] == XOR_RELAYED_ADDRESS.to_be_bytes() {
            let [_, _, a, b, c, d, e, f] = *value else { return None };
            let ip = Ipv4Addr::from_bits(u32::from_be_bytes([c, d, e, f]) ^ COOKIE);
            return Some(SocketAddr::from((ip, u16::from_be_bytes([a, b]) ^ 0x2112)));
        }
        attributes = attributes.get(4 + length.next_multiple_of(4)..)?;
    }
}
