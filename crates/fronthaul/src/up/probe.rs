//! Asks an admin port whether its daemon is ready.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Why it is not ready, or does not answer.
pub(super) async fn ready(admin: SocketAddr) -> Result<(), String> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let answer = match timeout(PATIENCE, get(admin)).await {
        Ok(answer) => answer.map_err(|error| error.to_string())?,
        Err(_) => return Err("its admin port does not answer".to_owned()),
    };
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.split_ascii_whitespace().nth(1) == Some("200") { Ok(()) } else { Err(body.to_owned()) }
}

async fn get(admin: SocketAddr) -> io::Result<String> {
    /// Far above what the admin port answers; it bounds what a foreign service on that port makes us read.
    const MOST: u64 = 16 * 1024;
    let mut stream = TcpStream::connect(admin).await?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
