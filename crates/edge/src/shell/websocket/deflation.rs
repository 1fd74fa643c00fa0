//! permessage-deflate around a WebSocket library that has none: what is read passes [`Rsv1`] on its way to the library, what it
//! hands out is inflated, and what is deflated leaves as a frame that is made here.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{Frame, FrameHeader};

use super::session::Heard;
use crate::websocket::{DEFLATE_MIN, Deflater, Kind, Refused, Rsv1};

/// What one connection needs whose client asked for the extension. The deflater is the thread's.
#[derive(Clone)]
pub(super) struct Deflation {
    deflater: Rc<RefCell<Deflater>>,
    rsv1: Rc<RefCell<Rsv1>>,
}

impl Deflation {
    pub(super) fn new(deflater: Rc<RefCell<Deflater>>) -> Self {
        Self { deflater, rsv1: Rc::default() }
    }

    /// What is read from here on is thrown away.
    pub(super) fn end(&self) {
        self.rsv1.borrow_mut().end();
    }

    /// An event on its way out, deflated where that pays.
    pub(super) fn outgoing(&self, event: String) -> Message {
        let deflated = (event.len() >= DEFLATE_MIN).then(|| self.deflater.borrow_mut().deflate(event.as_bytes()));
        match deflated.flatten() {
            None => Message::text(event),
            Some(deflated) => {
                let opcode = OpCode::Data(Data::Text);
                let header = FrameHeader { rsv1: true, opcode, ..FrameHeader::default() };
                Message::Frame(Frame::from_payload(header, deflated.into()))
            }
        }
    }

    /// A message as the client meant it.
    pub(super) fn incoming(&self, message: Message) -> Result<Message, Refused> {
        let kind = match message {
            Message::Text(_) | Message::Binary(_) => self.rsv1.borrow_mut().take(),
            _ => Kind::Plain,
        };
        match (kind, message) {
            (Kind::Plain, message) => Ok(message),
            (kind, message) => {
                let message = message.into_data();
                let mut deflater = self.deflater.borrow_mut();
                let inflated = deflater.inflate(&message)?;
                match kind {
                    Kind::Text => str::from_utf8(inflated).map(Message::text).map_err(|_| Refused::Broken),
                    _ => Ok(Message::binary(inflated.to_vec())),
                }
            }
        }
    }
}

/// A connection, which notes when bytes come. Without the extension they are as they are, and deflated messages are a protocol error.
pub(super) struct Connection<S> {
    inner: S,
    heard: Heard,
    rsv1: Option<Rc<RefCell<Rsv1>>>,
}

impl<S> Connection<S> {
    pub(super) fn new(inner: S, heard: Heard, deflation: Option<&Deflation>) -> Self {
        Self { inner, heard, rsv1: deflation.map(|deflation| Rc::clone(&deflation.rsv1)) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.heard.set(Instant::now());
        }
        if let Some(rsv1) = &self.rsv1 {
            rsv1.borrow_mut().pass(&mut buffer.filled_mut()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use link::proto::{ChannelMessage, EdgeMessage, TransceiverMessage, edge_message, transceiver_message};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::sync::mpsc;

    use super::super::session::{Bridge, EVENTS, Socket, converse};
    use super::*;
    use crate::websocket::{MESSAGE_MAX, Reason, WebSockets};

    const FIN: u8 = 0x80;
    const RSV1: u8 = 0x40;
    const TEXT: u8 = 1;
    const CLOSE: u8 = 8;
    const PING: u8 = 9;
    const PONG: u8 = 10;

    /// A client by hand, which shares no code with the session but the deflater.
    struct Rig {
        client: DuplexStream,
        deflater: Deflater,
        from_client: mpsc::Receiver<EdgeMessage>,
        to_client: mpsc::Sender<TransceiverMessage>,
        over: tokio::task::JoinHandle<Reason>,
        sockets: &'static WebSockets,
    }

    impl Rig {
        async fn new(asked: bool) -> Self {
            let sockets: &'static WebSockets = Box::leak(Box::new(WebSockets::new(10, 10)));
            let (client, far) = tokio::io::duplex(1 << 16);
            let (to_call, from_client) = mpsc::channel(1);
            let (to_client, from_call) = mpsc::channel(16);
            let deflation = asked.then(|| Deflation::new(Rc::default()));
            let over = tokio::task::spawn_local(async move {
                let socket = Socket::new(far, deflation).await;
                converse(sockets, socket, Bridge::new(to_call, from_call), 0).await
            });
            Self { client, deflater: Deflater::default(), from_client, to_client, over, sockets }
        }

        /// Masked with zeros.
        async fn send(&mut self, first: u8, payload: &[u8]) {
            let mut frame = vec![first];
            match u8::try_from(payload.len()) {
                Ok(length @ 0..126) => frame.push(0x80 | length),
                _ => {
                    frame.push(0x80 | 127);
                    frame.extend((payload.len() as u64).to_be_bytes());
                }
            }
            frame.extend([0; 4]);
            frame.extend(payload);
            self.client.write_all(&frame).await.unwrap();
        }

        async fn frame(&mut self) -> (u8, Vec<u8>) {
            let mut head = [0; 2];
            self.client.read_exact(&mut head).await.unwrap();
            let length = match head[1] {
                126 => self.client.read_u16().await.unwrap().into(),
                127 => self.client.read_u64().await.unwrap(),
                length => length.into(),
            };
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.client.read_exact(&mut payload).await.unwrap();
            (head[0], payload)
        }

        async fn heard(&mut self) -> Vec<u8> {
            match self.from_client.recv().await.unwrap().kind {
                Some(edge_message::Kind::ChannelMessage(message)) => message.data,
                other => panic!("{other:?}"),
            }
        }

        async fn say(&mut self, text: &str) {
            let message = ChannelMessage { channel: EVENTS, binary: false, data: text.as_bytes().to_vec() };
            let kind = Some(transceiver_message::Kind::ChannelMessage(message));
            self.to_client.send(TransceiverMessage { kind }).await.unwrap();
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn events_leave_deflated_where_it_pays_and_else_as_they_are() {
        run(async {
            let mut rig = Rig::new(true).await;
            let (short, long) = ("x".repeat(DEFLATE_MIN - 1), "x".repeat(DEFLATE_MIN));
            rig.say(&short).await;
            rig.say(&long).await;
            assert_eq!(rig.frame().await, (FIN | TEXT, short.into_bytes()));
            let (first, payload) = rig.frame().await;
            assert_eq!(first, FIN | RSV1 | TEXT);
            assert!(payload.len() < 20, "{}", payload.len());
            assert_eq!(rig.deflater.inflate(&payload), Ok(long.as_bytes()));
        });
    }

    #[test]
    fn messages_arrive_deflated_plain_and_in_parts_with_a_ping_between() {
        run(async {
            let mut rig = Rig::new(true).await;
            let text = "{\"type\":\"session.update\"}".repeat(100);
            let deflated = rig.deflater.deflate(text.as_bytes()).unwrap();
            let (half, other) = deflated.split_at(deflated.len() / 2);
            rig.send(FIN | RSV1 | TEXT, &deflated).await;
            rig.send(FIN | TEXT, b"plain").await;
            rig.send(RSV1 | TEXT, half).await;
            rig.send(FIN | PING, b"?").await;
            rig.send(FIN, other).await;
            for wanted in [text.as_bytes(), b"plain", text.as_bytes()] {
                assert_eq!(rig.heard().await, wanted);
            }
            assert_eq!(rig.frame().await, (FIN | PONG, b"?".to_vec()));
        });
    }

    #[test]
    fn a_bomb_is_answered_with_an_event_and_1009_and_counted() {
        run(async {
            let mut rig = Rig::new(true).await;
            let bomb = rig.deflater.deflate(&vec![b'x'; MESSAGE_MAX + 1]).unwrap();
            assert!(bomb.len() < 16 << 10, "{}", bomb.len());
            rig.send(FIN | RSV1 | TEXT, &bomb).await;
            let (first, event) = rig.frame().await;
            assert!(String::from_utf8_lossy(&event).contains("message_too_large"), "{first:x} {event:?}");
            let (first, close) = rig.frame().await;
            assert_eq!((first, &close[..2]), (FIN | CLOSE, &1009u16.to_be_bytes()[..]));
            let Rig { client, mut from_client, over, sockets, .. } = rig;
            drop(client);
            assert_eq!(over.await.unwrap(), Reason::TooLarge);
            assert_eq!(sockets.refused(), [1, 0]);
            assert!(from_client.recv().await.is_none());
        });
    }

    #[test]
    fn a_client_is_read_at_the_pace_of_what_its_messages_become() {
        run(async {
            let mut rig = Rig::new(true).await;
            let deflated = rig.deflater.deflate(&vec![b'x'; 1_000_000]).unwrap();
            let began = Instant::now();
            for _ in 0..40 {
                rig.send(FIN | RSV1 | TEXT, &deflated).await;
                assert_eq!(rig.heard().await.len(), 1_000_000);
            }
            let lasted = began.elapsed().as_secs_f64();
            assert!((7.0..8.0).contains(&lasted), "40 MB at 4 MiB a second, less 2 s: {lasted}");
        });
    }

    #[test]
    fn what_is_no_deflate_and_deflated_text_that_is_no_text_end_with_1002_and_are_counted() {
        run(async {
            let no_text = Deflater::default().deflate(&[0xff; 600]).unwrap();
            for payload in [&[0xff, 0xff][..], &no_text] {
                let mut rig = Rig::new(true).await;
                rig.send(FIN | RSV1 | TEXT, payload).await;
                let (first, close) = rig.frame().await;
                assert_eq!((first, &close[..2]), (FIN | CLOSE, &1002u16.to_be_bytes()[..]));
                assert_eq!(rig.sockets.refused(), [0, 1]);
            }
        });
    }

    #[test]
    fn a_client_that_did_not_ask_gets_nothing_deflated_and_may_send_nothing_deflated() {
        run(async {
            let mut rig = Rig::new(false).await;
            let long = "x".repeat(4096);
            rig.say(&long).await;
            assert_eq!(rig.frame().await, (FIN | TEXT, long.clone().into_bytes()));
            let deflated = rig.deflater.deflate(long.as_bytes()).unwrap();
            rig.send(FIN | RSV1 | TEXT, &deflated).await;
            let (first, close) = rig.frame().await;
            assert_eq!((first, &close[..2]), (FIN | CLOSE, &1002u16.to_be_bytes()[..]));
            assert_eq!(rig.sockets.refused(), [0, 0]);
        });
    }
}
