//! TCP through the proxy: each direction's bytes leave as late as a datagram would.
//!
//! The handshake is the loopback's and costs nothing: a connection stands for one that was warm at the click.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::log::{self, Direction, Log, unix_us};

/// Chunks under way per direction, of 16 KiB: a body of 1 MiB within one delay. A full queue stops reading, as TCP does.
const UNDER_WAY: usize = 64;

/// Takes connections until the listener fails.
pub(super) async fn serve(
    listener: &TcpListener,
    to: SocketAddr,
    delay: Duration,
    log: &Option<Log>,
) -> io::Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        // An edge that is not there closes the client's connection, which drops here.
        let Ok(edge) = TcpStream::connect(to).await else { continue };
        let (Ok(()), Ok(())) = (client.set_nodelay(true), edge.set_nodelay(true)) else { continue };
        let (from_client, to_client) = client.into_split();
        let (from_edge, to_edge) = edge.into_split();
        pump(from_client, to_edge, Direction::Up, delay, log.clone());
        pump(from_edge, to_client, Direction::Down, delay, log.clone());
    }
}

/// One direction of one connection, its end included.
fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, dir: Direction, delay: Duration, log: Option<Log>) {
    let (entrance, mut passing) = mpsc::channel::<(Instant, u64, Vec<u8>)>(UNDER_WAY);
    tokio::spawn(async move {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let chunk = (Instant::now() + delay, unix_us(), buffer[..length].to_vec());
            if entrance.send(chunk).await.is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        while let Some((leaves, came_us, bytes)) = passing.recv().await {
            tokio::time::sleep_until(leaves.into()).await;
            log::http(&log, dir, bytes.len(), came_us);
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_and_the_end_of_a_connection_pass_both_ways_and_late() {
        let edge = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (to, address) = (edge.local_addr().unwrap(), proxy.local_addr().unwrap());
        let delay = Duration::from_millis(30);
        let serving = tokio::spawn(async move { serve(&proxy, to, delay, &None).await });
        let began = Instant::now();
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let (mut server, _) = edge.accept().await.unwrap();
        let mut asked = String::new();
        server.read_to_string(&mut asked).await.unwrap();
        assert!(began.elapsed() >= delay);
        server.write_all(b"answer").await.unwrap();
        drop(server);
        let mut got = String::new();
        client.read_to_string(&mut got).await.unwrap();
        assert_eq!((asked.as_str(), got.as_str()), ("question", "answer"));
        assert!(began.elapsed() >= 2 * delay);
        serving.abort();
    }
}
