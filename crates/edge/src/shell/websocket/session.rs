//! One WebSocket and its session: frames to messages and back, until one of the two ends.
//!
//! Invariant: what waits for the client is at most [`OUTBOX_MAX`] and [`WRITE_MAX`], whatever it sends without reading, and nothing of the client's
//! waits at all: the next message is read when the call has taken the one before, and its [`Pace`] allows it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use link::proto::{ChannelMessage, EdgeMessage, TransceiverMessage, edge_message, transceiver_message};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::deflation::{Connection, Deflation};
#[cfg(doc)]
use crate::websocket::OUTBOX_MAX;
use crate::websocket::{Ending, FAIR, MESSAGE_MAX, Outbox, Reason, Refused, WebSockets};
use crate::worker::session_created;

/// The channel of the events.
pub(super) const EVENTS: u32 = 0;

/// Between two pings.
const PING: Duration = Duration::from_secs(15);

/// Without a frame of the client's, whose answer to a ping is one.
const DEAD: Duration = Duration::from_secs(30);

/// The transceiver tells of the key's longest duration by itself; this is for one that does not.
const GRACE: Duration = Duration::from_secs(2);

/// For what is sent at the end, and for the client's own close.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What is read and thrown away of a client that sends on after the end: it would not read our last words otherwise.
const DRAINED_MAX: u64 = 4 << 20;

/// Buffers of a connection: an event of audio is some KiB.
const BUFFER: usize = 8 << 10;

/// What waits in the connection: one event of the largest, and answers to pings.
const WRITE_MAX: usize = (1 << 20) + (128 << 10);

/// A message that counts like one of this many bytes beside its own: 2000 small ones a second are read.
const MESSAGE_COST: usize = 2048;

/// What is read of a client in a second: 64 times the speed of speech, and twice what a session takes ([`realtime`]); the call refuses what is beyond its
/// own bounds with a word, and this keeps the rest off the link.
const PACE: usize = 4 << 20;

/// What may come at once.
const PACE_BURST: Duration = Duration::from_secs(2);

/// Where messages go to and come from.
pub(super) struct Bridge {
    to_call: mpsc::Sender<EdgeMessage>,
    from_call: mpsc::Receiver<TransceiverMessage>,
}

impl Bridge {
    pub(super) fn new(to_call: mpsc::Sender<EdgeMessage>, from_call: mpsc::Receiver<TransceiverMessage>) -> Self {
        Self { to_call, from_call }
    }

    /// A session that the edge answers itself: messages come back as they are.
    pub(super) fn echo(session: u64) -> Self {
        let (to_call, mut outgoing) = mpsc::channel::<EdgeMessage>(1);
        let (incoming, from_call) = mpsc::channel(1);
        daemon::spawn_local(async move {
            let created = session_created(session, crate::signaling::ECHO).into_bytes();
            let mut next = Some(ChannelMessage { channel: EVENTS, binary: false, data: created });
            loop {
                if let Some(message) = next.take() {
                    let kind = Some(transceiver_message::Kind::ChannelMessage(message));
                    if incoming.send(TransceiverMessage { kind }).await.is_err() {
                        return;
                    }
                }
                match outgoing.recv().await {
                    Some(EdgeMessage { kind: Some(edge_message::Kind::ChannelMessage(message)) }) => {
                        next = Some(message)
                    }
                    Some(_) => {}
                    None => return,
                }
            }
        });
        Self { to_call, from_call }
    }
}

/// A connection that was upgraded.
pub(super) struct Socket<S> {
    sink: SplitSink<WebSocketStream<Connection<S>>, Message>,
    stream: SplitStream<WebSocketStream<Connection<S>>>,
    heard: Heard,
    deflation: Option<Deflation>,
}

/// When bytes came of a client.
pub(super) type Heard = Rc<Cell<Instant>>;

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub(super) async fn new(connection: S, deflation: Option<Deflation>) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER)
            .write_buffer_size(0)
            .max_write_buffer_size(WRITE_MAX)
            .max_message_size(Some(MESSAGE_MAX))
            .max_frame_size(Some(MESSAGE_MAX));
        let heard = Heard::new(Cell::new(Instant::now()));
        let connection = Connection::new(connection, Rc::clone(&heard), deflation.as_ref());
        let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
        let (sink, stream) = socket.split();
        Self { sink, stream, heard, deflation }
    }
}

/// What the parts of a session share.
struct Talk<'a> {
    sockets: &'a WebSockets,
    outbox: RefCell<Outbox>,
    filled: Notify,
    ping: Cell<bool>,
    /// When bytes of the client's came, and whether more are read at all.
    heard: Heard,
    reading: Cell<bool>,
    deflation: Option<Deflation>,
}

impl Talk<'_> {
    fn push(&self, event: String) -> Result<(), Ending> {
        let mut outbox = self.outbox.borrow_mut();
        let before = outbox.bytes();
        let length = event.len();
        // Where all together hold a lot, whoever holds more than others is the first to go.
        let crowds = self.sockets.is_crowded() && before + length > FAIR;
        if crowds {
            self.sockets.drop_events(1, length);
            return Err(Ending::of(Reason::SlowReader));
        }
        outbox.push(event).map_err(|_| {
            self.sockets.drop_events(1, length);
            Ending::of(Reason::SlowReader)
        })?;
        self.sockets.queued_more(outbox.bytes() - before);
        self.filled.notify_one();
        Ok(())
    }

    fn pop(&self) -> Option<String> {
        let mut outbox = self.outbox.borrow_mut();
        let before = outbox.bytes();
        let event = outbox.pop()?;
        self.sockets.queued_less(before - outbox.bytes());
        Some(event)
    }

    /// Does something while nothing is read of the client.
    async fn unheard<T>(&self, doing: impl Future<Output = T>) -> T {
        self.reading.set(false);
        let done = doing.await;
        self.heard.set(Instant::now());
        self.reading.set(true);
        done
    }

    fn outgoing(&self, event: String) -> Message {
        match &self.deflation {
            Some(deflation) => deflation.outgoing(event),
            None => Message::text(event),
        }
    }

    fn incoming(&self, message: Message) -> Result<Message, Ending> {
        let Some(deflation) = &self.deflation else { return Ok(message) };
        deflation.incoming(message).map_err(|refused| {
            self.sockets.refuse(refused);
            Ending::of(match refused {
                Refused::TooLarge => Reason::TooLarge,
                Refused::Broken => Reason::Protocol,
            })
        })
    }
}

impl Drop for Talk<'_> {
    fn drop(&mut self) {
        let outbox = self.outbox.get_mut();
        self.sockets.queued_less(outbox.bytes());
        self.sockets.drop_events(outbox.len(), outbox.bytes());
    }
}

/// When the next message of a client's is read: a virtual queue that empties at a rate (GCRA).
#[derive(Default)]
struct Pace {
    empty: Option<Instant>,
}

impl Pace {
    /// How long is waited for after a message of so many bytes. `None`: not at all.
    fn wait(&mut self, now: Instant, bytes: usize) -> Option<Duration> {
        let cost = u32::try_from(bytes + MESSAGE_COST).unwrap_or(u32::MAX);
        let begin = self.empty.map_or(now, |empty| empty.max(now));
        let empty = begin + Duration::from_secs(1) * cost / u32::try_from(PACE).unwrap_or(u32::MAX);
        self.empty = Some(empty);
        (empty - now).checked_sub(PACE_BURST).filter(|wait| !wait.is_zero())
    }
}

/// Lets client and call talk until one of them ends it, and says why. `max_seconds`: 0 for no limit.
pub(super) async fn converse<S>(sockets: &WebSockets, socket: Socket<S>, bridge: Bridge, max_seconds: u32) -> Reason
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Socket { mut sink, mut stream, heard, deflation } = socket;
    // Being upgraded is a sign of life.
    heard.set(Instant::now());
    let Bridge { to_call, mut from_call } = bridge;
    let talk = Rc::new(Talk {
        sockets,
        outbox: RefCell::default(),
        filled: Notify::new(),
        ping: Cell::new(false),
        heard,
        reading: Cell::new(true),
        deflation: deflation.clone(),
    });
    let mut stopped = sockets.stopped();
    let limit = (max_seconds != 0).then(|| Instant::now() + Duration::from_secs(max_seconds.into()) + GRACE);
    let ending = tokio::select! {
        ending = read_client(&talk, &mut stream, &to_call) => ending,
        ending = read_call(&talk, &mut from_call) => ending,
        ending = write_client(&talk, &mut sink) => ending,
        ending = watch_client(&talk) => ending,
        () = reached(limit) => Ending::of(Reason::TimeLimit),
        // The sender lives as long as the edge.
        _ = stopped.wait_for(|stopped| *stopped) => Ending::of(Reason::Draining),
    };
    drop((to_call, from_call));
    let mut last = Vec::new();
    if ending.flush {
        last.extend(std::iter::from_fn(|| talk.pop()));
    }
    let heard = Rc::clone(&talk.heard);
    close(Socket { sink, stream, heard, deflation }, last, ending).await
}

async fn reached(limit: Option<Instant>) {
    match limit {
        Some(limit) => sleep_until(limit).await,
        None => std::future::pending().await,
    }
}

async fn read_client<S>(
    talk: &Talk<'_>,
    stream: &mut SplitStream<WebSocketStream<Connection<S>>>,
    to_call: &mpsc::Sender<EdgeMessage>,
) -> Ending
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut pace = Pace::default();
    loop {
        let (binary, data) = match stream.next().await {
            Some(Ok(message)) => {
                let message = match talk.incoming(message) {
                    Ok(message) => message,
                    Err(ending) => return ending,
                };
                // What it was deflated from counts: 10 KB may be 1 MiB.
                if let Some(wait) = pace.wait(Instant::now(), message.len()) {
                    talk.unheard(sleep(wait)).await;
                }
                match message {
                    Message::Text(text) => (false, text.as_bytes().to_vec()),
                    Message::Binary(bytes) => (true, bytes.to_vec()),
                    Message::Close(_) => return Ending::of(Reason::Client),
                    Message::Ping(_) => {
                        // The answer leaves with the next flush.
                        talk.filled.notify_one();
                        continue;
                    }
                    Message::Pong(_) | Message::Frame(_) => continue,
                }
            }
            Some(Err(Error::Capacity(_))) => return Ending::of(Reason::TooLarge),
            Some(Err(Error::Protocol(_) | Error::Utf8(_))) => return Ending::of(Reason::Protocol),
            Some(Err(_)) | None => return Ending::of(Reason::Lost),
        };
        let message = ChannelMessage { channel: EVENTS, binary, data };
        let message = EdgeMessage { kind: Some(edge_message::Kind::ChannelMessage(message)) };
        if talk.unheard(to_call.send(message)).await.is_err() {
            // Its other direction says why.
            std::future::pending::<()>().await;
        }
    }
}

async fn read_call(talk: &Talk<'_>, from_call: &mut mpsc::Receiver<TransceiverMessage>) -> Ending {
    loop {
        let Some(message) = from_call.recv().await else { return Ending::of(Reason::TransceiverLost) };
        match message.kind {
            Some(transceiver_message::Kind::ChannelMessage(message)) => {
                // Events are JSON; nothing else goes to a client.
                let Ok(event) = String::from_utf8(message.data) else { continue };
                if let Err(slow) = talk.push(event) {
                    return slow;
                }
            }
            Some(transceiver_message::Kind::Close(close)) => return Ending::told(close.code, &close.reason),
            // Playout is the client's.
            _ => {}
        }
    }
}

async fn write_client<S>(talk: &Talk<'_>, sink: &mut SplitSink<WebSocketStream<Connection<S>>, Message>) -> Ending
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let next = match talk.ping.take() {
            true => Some(Message::Ping(bytes::Bytes::new())),
            false => talk.pop().map(|event| talk.outgoing(event)),
        };
        let sent = match next {
            Some(message) => sink.send(message).await,
            None => match sink.flush().await {
                Ok(()) => {
                    talk.filled.notified().await;
                    continue;
                }
                failed => failed,
            },
        };
        if let Err(Error::WriteBufferFull(_)) = sent {
            return Ending::of(Reason::SlowReader);
        }
        if sent.is_err() {
            // Closed by the client, or broken: whoever reads knows.
            std::future::pending::<()>().await;
        }
    }
}

/// Asks for a sign of life now and then.
async fn watch_client(talk: &Talk<'_>) -> Ending {
    loop {
        sleep(PING).await;
        // Nothing is read of whoever sends faster than is taken, so nothing is heard either.
        if talk.reading.get() && talk.heard.get().elapsed() >= DEAD {
            return Ending::of(Reason::PingTimeout);
        }
        talk.ping.set(true);
        talk.filled.notify_one();
    }
}

/// Ends a session that never began.
pub(super) async fn end<S: AsyncRead + AsyncWrite + Unpin>(socket: Socket<S>, ending: Ending) -> Reason {
    close(socket, Vec::new(), ending).await
}

/// Says what is left to say, then waits a moment for the client's part of the end.
async fn close<S>(socket: Socket<S>, last: Vec<String>, ending: Ending) -> Reason
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Socket { mut sink, mut stream, deflation, .. } = socket;
    if let Some(deflation) = deflation {
        deflation.end();
    }
    let Ending { reason, code, text, event, .. } = ending;
    let say = async {
        if reason != Reason::Client {
            for event in last.into_iter().chain(event) {
                sink.feed(Message::text(event)).await?;
            }
            sink.send(Message::Close(Some(CloseFrame { code: code.into(), reason: text.into() }))).await?;
        }
        Ok::<_, Error>(())
    };
    if reason == Reason::Lost || !matches!(timeout(LAST_WORDS, say).await, Ok(Ok(()))) {
        return reason;
    }
    let answered = async { while let Some(Ok(_)) = stream.next().await {} };
    let _ = timeout(LAST_WORDS, answered).await;
    // A connection that is closed with something unread takes back what was sent.
    if reason == Reason::TooLarge
        && let Ok(socket) = sink.reunite(stream)
    {
        let mut rest = socket.into_inner().take(DRAINED_MAX);
        let _ = timeout(LAST_WORDS, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websocket::QUEUED_MAX;

    type Client = WebSocketStream<tokio::io::DuplexStream>;

    struct Rig {
        client: Client,
        from_client: mpsc::Receiver<EdgeMessage>,
        to_client: mpsc::Sender<TransceiverMessage>,
        over: tokio::task::JoinHandle<Reason>,
    }

    /// A client at the end of a pipe of so many bytes.
    async fn rig(pipe: usize, max_seconds: u32) -> (Rig, &'static WebSockets) {
        let sockets: &'static WebSockets = Box::leak(Box::new(WebSockets::new(10, 10)));
        let (near, far) = tokio::io::duplex(pipe);
        let (to_call, from_client) = mpsc::channel(1);
        let (to_client, from_call) = mpsc::channel(16);
        let bridge = Bridge::new(to_call, from_call);
        let over = tokio::task::spawn_local(async move {
            converse(sockets, Socket::new(far, None).await, bridge, max_seconds).await
        });
        let client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
        (Rig { client, from_client, to_client, over }, sockets)
    }

    fn event(text: &str) -> TransceiverMessage {
        let message = ChannelMessage { channel: EVENTS, binary: false, data: text.as_bytes().to_vec() };
        TransceiverMessage { kind: Some(transceiver_message::Kind::ChannelMessage(message)) }
    }

    fn told(code: u32, reason: &str) -> TransceiverMessage {
        let close = link::proto::Close { reason: reason.to_owned(), code };
        TransceiverMessage { kind: Some(transceiver_message::Kind::Close(close)) }
    }

    /// Texts until the close, and that.
    async fn rest(client: &mut Client) -> (Vec<String>, Option<(u16, String)>) {
        let mut texts = Vec::new();
        while let Some(Ok(message)) = client.next().await {
            match message {
                Message::Text(text) => texts.push(text.to_string()),
                Message::Close(frame) => return (texts, frame.map(|f| (f.code.into(), f.reason.to_string()))),
                _ => {}
            }
        }
        (texts, None)
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn texts_go_both_ways_in_order_and_all_of_them_before_the_close() {
        run(async {
            let (mut rig, _) = rig(1 << 16, 0).await;
            for n in 0..50 {
                rig.client.send(Message::text(format!("up {n}"))).await.unwrap();
                let Some(edge_message::Kind::ChannelMessage(message)) = rig.from_client.recv().await.unwrap().kind
                else {
                    panic!("no message")
                };
                assert_eq!(message.data, format!("up {n}").into_bytes());
                rig.to_client.send(event(&format!("down {n}"))).await.unwrap();
            }
            rig.to_client.send(told(1001, "expired")).await.unwrap();
            let (texts, close) = rest(&mut rig.client).await;
            assert_eq!(texts, (0..50).map(|n| format!("down {n}")).collect::<Vec<_>>());
            assert_eq!(close, Some((1001, "expired".to_owned())));
            assert_eq!(rest(&mut rig.client).await.1, None);
            drop(rig.client);
            assert_eq!(rig.over.await.unwrap(), Reason::Ended);
        });
    }

    #[test]
    fn a_client_that_reads_nothing_is_closed_when_4_mebibytes_wait() {
        run(async {
            let (rig, sockets) = rig(1 << 10, 0).await;
            let large = event(&"x".repeat(1 << 20));
            let mut sent = 0;
            while rig.to_client.send(large.clone()).await.is_ok() {
                sent += 1;
                assert!(sent < 64);
                tokio::task::yield_now().await;
            }
            assert_eq!(rig.over.await.unwrap(), Reason::SlowReader);
            assert_eq!(sockets.queued(), 0);
            // Three fit beside each other's 64 bytes, a fourth is being sent, the next had no room.
            let [events, bytes] = sockets.dropped();
            assert!((4..=5).contains(&events) && bytes >= events << 20, "{events} {bytes}");
        });
    }

    #[test]
    fn pings_that_are_not_read_hold_no_more_than_the_connection_may() {
        run(async {
            let (mut rig, _) = rig(1 << 10, 0).await;
            // Each answer has 125 bytes: 20,000 of them would be 2.5 MB.
            for _ in 0..20_000 {
                rig.client.feed(Message::Ping(vec![7; 125].into())).await.unwrap();
            }
            rig.client.flush().await.unwrap();
            sleep(Duration::from_secs(11)).await;
            let mut answers = 0;
            while let Ok(Some(Ok(message))) = timeout(Duration::from_secs(1), rig.client.next()).await {
                answers += usize::from(message.is_pong());
            }
            assert!((1..=WRITE_MAX / 127 + 20).contains(&answers), "{answers}");
            assert!(!rig.over.is_finished());
        });
    }

    #[test]
    fn a_client_is_read_at_its_pace_and_lives_meanwhile() {
        run(async {
            let (rig, _) = rig(1 << 16, 0).await;
            let (mut sink, _stream) = rig.client.split();
            let sending = async {
                for _ in 0..400 {
                    sink.send(Message::text("x".repeat(1_000_000))).await.unwrap();
                }
            };
            let mut from_client = rig.from_client;
            let began = Instant::now();
            let taking = async {
                for _ in 0..400 {
                    from_client.recv().await.unwrap();
                }
            };
            tokio::join!(sending, taking);
            let lasted = began.elapsed().as_secs_f64();
            assert!((93.0..94.0).contains(&lasted), "400 MB at 4 MiB a second, less 2 s: {lasted}");
            assert!(!rig.over.is_finished());
        });
    }

    #[test]
    fn one_large_message_over_a_slow_line_is_a_sign_of_life() {
        run(async {
            let (mut rig, _) = rig(1 << 10, 0).await;
            let mut frame = vec![0x81, 0xff];
            frame.extend(500_000_u64.to_be_bytes());
            frame.extend([0; 4]);
            frame.resize(frame.len() + 500_000, b'x');
            let connection = rig.client.get_mut();
            for part in frame.chunks(5_000) {
                tokio::io::AsyncWriteExt::write_all(connection, part).await.unwrap();
                sleep(Duration::from_secs(1)).await;
            }
            assert!(rig.from_client.recv().await.is_some(), "it took 100 s");
        });
    }

    #[test]
    fn where_all_hold_a_lot_whoever_holds_more_than_its_part_goes() {
        run(async {
            let (rig, sockets) = rig(1 << 10, 0).await;
            sockets.queued_more(QUEUED_MAX);
            let some = event(&"x".repeat(200 << 10));
            for _ in 0..3 {
                let _ = rig.to_client.send(some.clone()).await;
            }
            assert_eq!(rig.over.await.unwrap(), Reason::SlowReader);
            assert_eq!(sockets.queued(), QUEUED_MAX as u64);
        });
    }

    #[test]
    fn a_slow_reader_is_told_so_when_it_reads_on() {
        run(async {
            let (mut rig, _) = rig(1 << 16, 0).await;
            let large = event(&"x".repeat(1 << 20));
            while rig.to_client.send(large.clone()).await.is_ok() {
                tokio::task::yield_now().await;
            }
            let (_, close) = rest(&mut rig.client).await;
            assert_eq!(close, Some((1008, "slow_reader".to_owned())));
        });
    }

    #[test]
    fn a_message_of_more_than_a_mebibyte_is_answered_with_an_event_and_1009() {
        run(async {
            let (mut rig, _) = rig(1 << 16, 0).await;
            let (mut sink, mut stream) = rig.client.split();
            let sending = async { drop(sink.send(Message::text("x".repeat((1 << 20) + 1))).await) };
            let reading = async {
                let mut got = Vec::new();
                while let Some(Ok(message)) = stream.next().await {
                    let over = matches!(message, Message::Close(_));
                    got.push(message);
                    if over {
                        return got;
                    }
                }
                got
            };
            let ((), got) = tokio::join!(sending, reading);
            assert!(got[0].to_text().unwrap().contains("message_too_large"), "{got:?}");
            let Message::Close(Some(frame)) = &got[1] else { panic!("{got:?}") };
            assert_eq!(u16::from(frame.code), 1009);
            drop((sink, stream));
            assert_eq!(rig.over.await.unwrap(), Reason::TooLarge);
            assert!(rig.from_client.recv().await.is_none());
        });
    }

    #[test]
    fn a_client_that_answers_no_ping_is_gone_after_30_s() {
        run(async {
            let began = Instant::now();
            let (rig, _) = rig(1 << 16, 0).await;
            assert_eq!(rig.over.await.unwrap(), Reason::PingTimeout);
            let lasted = began.elapsed();
            assert!((DEAD..=DEAD + LAST_WORDS * 2).contains(&lasted), "{lasted:?}");
        });
    }

    #[test]
    fn a_client_that_answers_pings_stays() {
        run(async {
            let (mut rig, _) = rig(1 << 16, 0).await;
            let day = sleep(Duration::from_secs(3600));
            tokio::pin!(day);
            let mut pings = 0;
            loop {
                tokio::select! {
                    () = &mut day => break,
                    message = rig.client.next() => match message {
                        Some(Ok(Message::Ping(_))) => {
                            pings += 1;
                            rig.client.flush().await.unwrap();
                        }
                        other => panic!("{other:?}"),
                    },
                }
            }
            assert_eq!(pings, 3600 / 15 - 1);
            assert!(!rig.over.is_finished());
        });
    }

    #[test]
    fn the_longest_duration_of_a_key_ends_a_session_with_its_event_and_1001() {
        run(async {
            let (mut rig, _) = rig(1 << 16, 10).await;
            let began = Instant::now();
            let (texts, close) = rest(&mut rig.client).await;
            assert!(texts[0].contains("session_expired"), "{texts:?}");
            assert_eq!(close.unwrap().0, 1001);
            assert_eq!(began.elapsed().as_secs(), 12);
        });
    }

    #[test]
    fn when_the_edge_stops_clients_are_told_to_come_again() {
        run(async {
            let (mut rig, sockets) = rig(1 << 16, 0).await;
            tokio::task::yield_now().await;
            sockets.close_all();
            assert_eq!(rest(&mut rig.client).await.1, Some((1012, "draining".to_owned())));
        });
    }

    #[test]
    fn a_stream_that_ends_without_a_word_is_a_lost_transceiver() {
        run(async {
            let (mut rig, _) = rig(1 << 16, 0).await;
            drop(rig.to_client);
            let (texts, close) = rest(&mut rig.client).await;
            assert!(texts[0].contains("transceiver_lost"), "{texts:?}");
            assert_eq!(close.unwrap().0, 1011);
        });
    }

    #[test]
    fn a_client_that_closes_is_answered_and_its_call_told() {
        run(async {
            let (mut rig, _) = rig(1 << 16, 0).await;
            rig.client.send(Message::Close(None)).await.unwrap();
            while let Some(Ok(_)) = rig.client.next().await {}
            assert_eq!(rig.over.await.unwrap(), Reason::Client);
            assert!(rig.from_client.recv().await.is_none());
        });
    }
}
