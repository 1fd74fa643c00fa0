//! TURN over TLS (RFC 8656): an allocation with the credentials that the answer's `Link` headers give.

use std::io;
use std::time::{Duration, Instant};

use md5::{Digest as _, Md5};
use rand::Rng as _;

use super::http::{self, Client, Wire};
use super::report::Finding;
use super::stun::{self, Message, Writer};

/// One TURN server reached over TLS, as a `Link` header names it (RFC 9725 §4.6). Without `Debug`: the credential is a secret.
#[derive(PartialEq, Eq)]
struct Server {
    host: String,
    port: u16,
    username: String,
    credential: String,
}

/// Asks the first TURN server over TLS for an allocation.
pub(super) fn examine(links: &[&str], client: &Client, patience: Duration) -> Finding {
    let Some(server) = links.iter().find_map(|link| read(link)) else {
        return Finding::Absent("the answer names no TURN server over TLS".to_owned());
    };
    let place = format!("{}:{}", server.host, server.port);
    let Some(trust) = client.trust() else {
        return Finding::Absent(format!("{place} is asked when the edge itself is reached by https"));
    };
    let connected = http::connect(&server.host, server.port, Some(trust), patience);
    let mut wire = match connected {
        Ok(wire) => wire,
        Err(why) => return Finding::Failed(why),
    };
    match allocate(&mut *wire, &server) {
        Ok(rtt) => Finding::Works { detail: format!("{place}, allocated"), rtt: Some(rtt) },
        Err(why) => Finding::Failed(format!("{place}: {why}")),
    }
}

/// RFC 8656 §7.1 with long-term credentials (RFC 8489 §9.2); the allocation is given back.
fn allocate(wire: &mut dyn Wire, server: &Server) -> Result<Duration, String> {
    // UDP, in the first of four bytes.
    const UDP: [u8; 4] = [17, 0, 0, 0];
    let began = Instant::now();
    let asked = exchange(wire, |transaction| {
        Writer::new(stun::ALLOCATE, transaction).attribute(stun::REQUESTED_TRANSPORT, &UDP).finish()
    })?;
    let rtt = began.elapsed();
    let refused = Message::read(&asked).ok_or("what answers is no TURN server")?;
    let (Some(realm), Some(nonce)) = (refused.attribute(stun::REALM), refused.attribute(stun::NONCE)) else {
        return Err("the server asks for no credentials: it relays for everybody".to_owned());
    };
    let key = Md5::new()
        .chain_update(&server.username)
        .chain_update(":")
        .chain_update(realm)
        .chain_update(":")
        .chain_update(&server.credential)
        .finalize();
    let authorized = |kind, transaction, attribute, value: &[u8]| {
        Writer::new(kind, transaction)
            .attribute(attribute, value)
            .attribute(stun::USERNAME, server.username.as_bytes())
            .attribute(stun::REALM, realm)
            .attribute(stun::NONCE, nonce)
            .integrity(&key)
            .finish()
    };
    let answer =
        exchange(wire, |transaction| authorized(stun::ALLOCATE, transaction, stun::REQUESTED_TRANSPORT, &UDP))?;
    let message = Message::read(&answer).ok_or("what answers is no TURN server")?;
    if message.kind == stun::ALLOCATE_ERROR {
        let code = message.attribute(stun::ERROR_CODE).and_then(|value| value.get(2..4));
        let code = code.map_or(0, |code| u16::from(code[0] & 7) * 100 + u16::from(code[1]));
        return Err(match code {
            401 | 441 => "it refuses the credentials: its secret is not the edge's, or a clock is wrong".to_owned(),
            486 | 508 => format!("it has no room ({code})"),
            _ => format!("it refuses an allocation ({code})"),
        });
    }
    if message.kind != stun::ALLOCATE_SUCCESS || !message.is_authentic(&key) {
        return Err("its answer is not authentic".to_owned());
    }
    let _ = exchange(wire, |transaction| authorized(stun::REFRESH, transaction, stun::LIFETIME, &[0; 4]));
    Ok(rtt)
}

fn exchange(wire: &mut dyn Wire, request: impl FnOnce([u8; 12]) -> Vec<u8>) -> Result<Vec<u8>, String> {
    let mut transaction = [0; 12];
    rand::rng().fill_bytes(&mut transaction);
    let bytes = request(transaction);
    send(wire, &bytes).and_then(|()| receive(wire)).map_err(|error| error.to_string())
}

fn send(wire: &mut dyn Wire, bytes: &[u8]) -> io::Result<()> {
    wire.write_all(bytes)?;
    wire.flush()
}

/// On a stream each message stands behind the other (RFC 8656 §3.1: its own length frames it).
fn receive(wire: &mut dyn Wire) -> io::Result<Vec<u8>> {
    let mut message = vec![0; 20];
    wire.read_exact(&mut message)?;
    let length = usize::from(u16::from_be_bytes([message[2], message[3]]));
    message.resize(20 + length, 0);
    wire.read_exact(&mut message[20..])?;
    Ok(message)
}

/// `<turns:host:port?transport=tcp>; rel="ice-server"; username="..."; credential="..."`.
fn read(link: &str) -> Option<Server> {
    let (url, parameters) = link.strip_prefix('<')?.split_once('>')?;
    let place = url.strip_prefix("turns:")?.split('?').next()?;
    let (host, port) = http::split(place, 5349)?;
    let parameter = |name: &str| {
        let begin = parameters.split_once(&format!("{name}=\""))?.1;
        let mut value = String::new();
        let mut escaped = false;
        for letter in begin.chars() {
            match letter {
                '"' if !escaped => return Some(value),
                '\\' if !escaped => escaped = true,
                _ => {
                    value.push(letter);
                    escaped = false;
                }
            }
        }
        None
    };
    if !parameters.contains("rel=\"ice-server\"") {
        return None;
    }
    Some(Server { host, port, username: parameter("username")?, credential: parameter("credential")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_names_server_and_credentials() {
        let server = read(
            "<turns:turn.example.com:5349?transport=tcp>; rel=\"ice-server\"; username=\"17:a \\\"b\\\"\"; \
             credential=\"x+/=\"; credential-type=\"password\"",
        );
        let expected = Server {
            host: "turn.example.com".to_owned(),
            port: 5349,
            username: "17:a \"b\"".to_owned(),
            credential: "x+/=".to_owned(),
        };
        assert!(server == Some(expected));
        for link in ["<turn:turn.example.com>; rel=\"ice-server\"", "<turns:t>; rel=\"next\"", "turns:t", ""] {
            assert!(read(link).is_none(), "{link}");
        }
    }
}
