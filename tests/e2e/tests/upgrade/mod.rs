//! A client's side of a WebSocket, before the library takes over.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocket};

/// Asks for a WebSocket at `/v1/realtime`. `headers`: more of them, each with its line's end.
///
/// # Errors
/// Status and body of a refusal.
pub(crate) fn upgrade(stream: TcpStream, query: &str, headers: &str) -> Result<WebSocket<TcpStream>, (u16, Value)> {
    let request = format!(
        "GET /v1/realtime{query} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    );
    (&stream).write_all(request.as_bytes()).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        (&stream).read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    if status == 101 {
        return Ok(WebSocket::from_raw_socket(stream, Role::Client, None));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    (&stream).read_exact(&mut body).unwrap();
    Err((status, serde_json::from_slice(&body).unwrap()))
}
