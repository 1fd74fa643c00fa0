//! A bidirectional stream as the byte stream that HTTP/2 runs over.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use quinn::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use super::Peer;

/// Who made a gRPC call, and over which link: in the extensions of each request ([`crate::grpc::caller`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectInfo {
    /// Proven by certificate.
    pub peer: Peer,
    /// [`super::Link::id`] of the link that carries the call.
    pub link: u64,
}

/// A control stream.
#[derive(Debug)]
pub struct QuicStream {
    send: SendStream,
    recv: RecvStream,
    /// Came with the stream's first byte, and is read before the rest.
    early: Bytes,
    info: ConnectInfo,
}

impl QuicStream {
    pub(super) fn new(send: SendStream, recv: RecvStream, early: Bytes, info: ConnectInfo) -> Self {
        Self { send, recv, early, info }
    }

    /// Whose stream it is.
    #[must_use]
    pub fn info(&self) -> ConnectInfo {
        self.info
    }
}

impl Connected for QuicStream {
    type ConnectInfo = ConnectInfo;

    fn connect_info(&self) -> ConnectInfo {
        self.info
    }
}

impl AsyncRead for QuicStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return AsyncRead::poll_read(Pin::new(&mut self.recv), cx, buf);
        }
        let len = self.early.len().min(buf.remaining());
        buf.put_slice(&self.early[..len]);
        self.early.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for QuicStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.send), cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.send), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(&mut self.send), cx)
    }
}
