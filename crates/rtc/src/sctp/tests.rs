//! Our association against a bare socket of the engine's as the client, in virtual time without loss.

use super::channels::CHANNELS_MAX;
use super::*;

const OPEN_RELIABLE: [u8; 12] = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn open(label: &str) -> Vec<u8> {
    let mut message = OPEN_RELIABLE.to_vec();
    message[8..10].copy_from_slice(&u16::try_from(label.len()).unwrap().to_be_bytes());
    message.extend_from_slice(label.as_bytes());
    message
}

struct Pair {
    start: Instant,
    now: Instant,
    ours: Association,
    client: Box<dyn DcSctpSocket>,
    /// What our side told its driver.
    told: Vec<Output>,
    /// What the client received.
    received: Vec<(u16, u32, Vec<u8>)>,
    events: Vec<SocketEvent>,
    trips: u32,
}

impl Pair {
    fn new(limit: u64, connects: bool) -> Self {
        let start = Instant::now();
        let setup = SctpSetup::new(5000, limit);
        let options = Options { max_message_size: 1 << 20, ..Options::default() };
        Self {
            start,
            now: start,
            ours: Association::new(start, &setup, 262_144, connects),
            client: dcsctp::new_socket("client", &options),
            told: Vec::new(),
            received: Vec::new(),
            events: Vec::new(),
            trips: 0,
        }
    }

    /// Channel 7 is agreed on.
    fn agreed(connects: bool) -> Self {
        let mut pair = Self::new(262_144, connects);
        pair.ours.negotiated = vec![Negotiated::reliable(7, "oai-events")];
        pair
    }

    /// And the association stands.
    fn negotiated(connects: bool) -> Self {
        let mut pair = Self::agreed(connects);
        pair.ours.start(pair.now);
        pair.client.connect();
        pair.exchange();
        pair
    }

    fn connected() -> Self {
        let mut pair = Self::new(262_144, false);
        pair.client.connect();
        pair.exchange();
        pair
    }

    /// With one channel, 0.
    fn opened() -> Self {
        let mut pair = Self::connected();
        pair.client_sends(0, 50, &open("oai-events"));
        pair.exchange();
        assert_eq!(pair.take(), [Output::Opened { channel: ChannelId(0), label: "oai-events".to_owned() }]);
        assert_eq!(pair.received, [(0, 50, vec![2])]);
        pair.received.clear();
        pair
    }

    fn client_sends(&mut self, stream: u16, ppid: u32, payload: &[u8]) {
        let message = Message::new(StreamId(stream), PpId(ppid), payload.to_vec());
        self.client.send(message, &SendOptions::default()).unwrap();
    }

    fn time(&self) -> SocketTime {
        SocketTime::zero() + (self.now - self.start)
    }

    /// Delivers everything both ways at one instant.
    fn exchange(&mut self) {
        loop {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            while let Some(output) = self.ours.poll_output() {
                match output {
                    Output::Packet(packet) => down.push(packet),
                    told => self.told.push(told),
                }
            }
            while let Some(event) = self.client.poll_event() {
                match event {
                    SocketEvent::SendPacket(packet) => up.push(packet),
                    event => self.events.push(event),
                }
            }
            if up.is_empty() && down.is_empty() {
                return;
            }
            self.trips += 1;
            for packet in up {
                self.ours.handle_packet(self.now, &packet).unwrap();
            }
            for packet in down {
                self.client.handle_input(&packet);
                while let Some(message) = self.client.get_next_message() {
                    self.received.push((message.stream_id.0, message.ppid.0, message.payload));
                }
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        let time = self.time();
        self.client.advance_time(time);
        self.ours.handle_timeout(self.now);
        self.exchange();
    }

    fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.told)
    }
}

fn message(kind: MessageKind, data: &[u8]) -> Output {
    Output::Message { channel: ChannelId(0), kind, data: data.to_vec() }
}

#[test]
fn the_client_may_connect_alone() {
    let pair = Pair::connected();
    assert!(pair.events.iter().any(|event| matches!(event, SocketEvent::OnConnected())));
}

#[test]
fn we_may_connect_alone() {
    let mut pair = Pair::new(262_144, true);
    pair.ours.start(pair.now);
    pair.exchange();
    assert!(pair.events.iter().any(|event| matches!(event, SocketEvent::OnConnected())));
}

/// Our INIT left half a round trip before the client's; the client may send as soon as our COOKIE-ECHO arrives.
#[test]
fn an_init_of_ours_ahead_of_the_clients_saves_a_round_trip() {
    let half_trips_until_client_connected = |connects: bool| {
        let mut pair = Pair::new(262_144, connects);
        pair.ours.start(pair.now);
        let mut to_client: Vec<Vec<u8>> = packets(&mut pair.ours);
        let mut to_us: Vec<Vec<u8>> = Vec::new();
        // From our last DTLS flight on, each turn is half a round trip.
        for half_trip in 1..10 {
            let (arrived, mut sent) = (std::mem::take(&mut to_client), Vec::new());
            if half_trip == 1 {
                pair.client.connect();
            }
            for packet in arrived {
                pair.client.handle_input(&packet);
            }
            while let Some(event) = pair.client.poll_event() {
                match event {
                    SocketEvent::SendPacket(packet) => sent.push(packet),
                    SocketEvent::OnConnected() => return half_trip,
                    _ => {}
                }
            }
            for packet in std::mem::replace(&mut to_us, sent) {
                pair.ours.handle_packet(pair.now, &packet).unwrap();
            }
            to_client = packets(&mut pair.ours);
        }
        panic!("never connected");
    };
    let (with, without) = (half_trips_until_client_connected(true), half_trips_until_client_connected(false));
    assert!(with + 2 <= without, "{with} against {without} half round trips");
}

fn packets(association: &mut Association) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| association.poll_output())
        .filter_map(|output| if let Output::Packet(packet) = output { Some(packet) } else { None })
        .collect()
}

#[test]
fn each_kind_of_message_keeps_its_kind_both_ways() {
    let mut pair = Pair::opened();
    let (text, binary) = (MessageKind::Text, MessageKind::Binary);
    for (kind, ppid, data) in [(text, 51, &b"hello"[..]), (binary, 53, &[0xFF, 0x80]), (text, 51, &[0xFF, 0xFE])] {
        pair.client_sends(0, ppid, data);
        pair.exchange();
        assert_eq!(pair.take(), [message(kind, data)]);
        pair.ours.send(pair.now, ChannelId(0), kind, data).unwrap();
        pair.exchange();
        assert_eq!(std::mem::take(&mut pair.received), [(0, ppid, data.to_vec())]);
    }
}

/// Case C01.
#[test]
fn empty_messages_are_empty_on_both_sides() {
    let mut pair = Pair::opened();
    for (kind, ppid) in [(MessageKind::Text, 56), (MessageKind::Binary, 57)] {
        pair.client_sends(0, ppid, &[0]);
        pair.exchange();
        assert_eq!(pair.take(), [message(kind, &[])]);
        pair.ours.send(pair.now, ChannelId(0), kind, &[]).unwrap();
        pair.exchange();
        assert_eq!(std::mem::take(&mut pair.received), [(0, ppid, vec![0])]);
    }
}

/// Case C02: a length that does not reach past the chunk's own header, and one past the packet.
#[test]
fn chunks_of_impossible_length_are_discarded() {
    let mut pair = Pair::opened();
    let checksum = |packet: &mut Vec<u8>| {
        packet[8..12].fill(0);
        let sum = crc32c(packet).to_le_bytes();
        packet[8..12].copy_from_slice(&sum);
    };
    pair.client_sends(0, 51, b"x");
    let packet = loop {
        if let Some(SocketEvent::SendPacket(packet)) = pair.client.poll_event() {
            break packet;
        }
    };
    for length in [0_u16, 1, 3, 0xFFFF] {
        let mut bad = packet.clone();
        bad[14..16].copy_from_slice(&length.to_be_bytes());
        checksum(&mut bad);
        assert_eq!(pair.ours.handle_packet(pair.now, &bad), Err(Discard::Sctp), "{length}");
    }
    let mut again = packet.clone();
    checksum(&mut again);
    assert_eq!(again, packet, "the checksum here is the engine's");
    pair.ours.handle_packet(pair.now, &packet).unwrap();
    pair.exchange();
    assert_eq!(pair.take(), [message(MessageKind::Text, b"x")]);
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0x82F6_3B78 & (sum & 1).wrapping_neg()))
    })
}

/// Case C04.
#[test]
fn what_we_send_keeps_to_the_clients_limit() {
    for limit in [65_535_u64, 262_144] {
        let mut pair = Pair::new(limit, true);
        pair.ours.start(pair.now);
        pair.client_sends(0, 50, &open("x"));
        pair.exchange();
        let most = vec![7; usize::try_from(limit).unwrap()];
        let over = vec![7; most.len() + 1];
        pair.ours.send(pair.now, ChannelId(0), MessageKind::Binary, &most).unwrap();
        let refused = pair.ours.send(pair.now, ChannelId(0), MessageKind::Binary, &over);
        assert_eq!(refused, Err(SendMessageError::TooLarge { limit }));
        pair.exchange();
        assert_eq!(pair.received.last().unwrap().2, most);
    }
}

/// Case C04.
#[test]
fn no_limit_of_the_clients_means_the_queues() {
    let mut pair = Pair::new(0, true);
    pair.ours.start(pair.now);
    pair.client_sends(0, 50, &open("x"));
    pair.exchange();
    pair.ours.send(pair.now, ChannelId(0), MessageKind::Binary, &vec![7; 300_000]).unwrap();
    let refused = pair.ours.send(pair.now, ChannelId(0), MessageKind::Binary, &vec![7; 2_000_001]);
    assert_eq!(refused, Err(SendMessageError::QueueFull));
}

#[test]
fn at_most_2_mb_are_queued() {
    let mut pair = Pair::opened();
    let results: Vec<_> =
        (0..12).map(|_| pair.ours.send(pair.now, ChannelId(0), MessageKind::Binary, &vec![7; 262_144])).collect();
    assert!(results[..7].iter().all(Result::is_ok));
    assert_eq!(results.last(), Some(&Err(SendMessageError::QueueFull)));
}

/// Case C04.
#[test]
fn a_message_over_our_limit_closes_that_channel_only() {
    let mut pair = Pair::opened();
    pair.client_sends(2, 50, &open("other"));
    pair.exchange();
    pair.take();
    pair.client_sends(0, 53, &vec![1; 262_144]);
    pair.exchange();
    assert_eq!(pair.take(), [message(MessageKind::Binary, &vec![1; 262_144])]);
    pair.client_sends(0, 53, &vec![1; 262_145]);
    pair.exchange();
    assert_eq!(pair.take(), [Output::Closed { channel: ChannelId(0) }]);
    pair.client_sends(2, 51, b"still here");
    pair.exchange();
    let expected = Output::Message { channel: ChannelId(2), kind: MessageKind::Text, data: b"still here".to_vec() };
    assert_eq!(pair.take(), [expected]);
}

/// Case C05.
#[test]
fn a_message_right_behind_open_is_delivered_after_it() {
    let mut pair = Pair::connected();
    pair.client_sends(0, 50, &open("x"));
    pair.client_sends(0, 51, b"first");
    pair.exchange();
    let opened = Output::Opened { channel: ChannelId(0), label: "x".to_owned() };
    assert_eq!(pair.take(), [opened, message(MessageKind::Text, b"first")]);
}

/// Case C06.
#[test]
fn a_message_ahead_of_open_waits_for_it() {
    let mut pair = Pair::connected();
    pair.client_sends(0, 51, b"early");
    pair.exchange();
    assert_eq!(pair.take(), []);
    pair.client_sends(0, 50, &open("x"));
    pair.exchange();
    let opened = Output::Opened { channel: ChannelId(0), label: "x".to_owned() };
    assert_eq!(pair.take(), [opened, message(MessageKind::Text, b"early")]);
}

/// Case C06.
#[test]
fn a_stream_that_is_never_opened_is_reset() {
    let mut pair = Pair::connected();
    pair.client_sends(4, 51, b"lost");
    pair.exchange();
    pair.advance(Duration::from_millis(1100));
    let reset = |event: &SocketEvent| matches!(event, SocketEvent::OnIncomingStreamReset(ids) if *ids == [StreamId(4)]);
    assert!(pair.events.iter().any(reset));
    assert_eq!((pair.take(), pair.ours.unopened()), (Vec::new(), 1));
    pair.client_sends(0, 50, &open("x"));
    pair.exchange();
    assert_eq!(pair.take().len(), 1, "the association stays");
}

#[test]
fn what_no_channel_may_ever_take_is_counted() {
    let mut pair = Pair::connected();
    for _ in 0..EARLY_MAX {
        pair.client_sends(4, 51, b"early");
    }
    pair.exchange();
    let packet = Message::new(StreamId(4), PpId(51), b"one too many".to_vec());
    let result = pair.ours.message(pair.now, packet);
    assert_eq!((result, pair.take()), (Err(Discard::UnknownStream), Vec::new()));
}

#[test]
fn a_negotiated_channel_is_open_when_the_association_is() {
    for connects in [false, true] {
        let mut pair = Pair::negotiated(connects);
        let opened = Output::Opened { channel: ChannelId(7), label: "oai-events".to_owned() };
        assert_eq!(pair.take(), [opened]);
        pair.ours.send(pair.now, ChannelId(7), MessageKind::Text, b"we speak first").unwrap();
        pair.client_sends(7, 51, b"so do we");
        pair.exchange();
        assert_eq!(std::mem::take(&mut pair.received), [(7, 51, b"we speak first".to_vec())]);
        let told = Output::Message { channel: ChannelId(7), kind: MessageKind::Text, data: b"so do we".to_vec() };
        assert_eq!(pair.take(), [told]);
    }
}

#[test]
fn an_open_on_a_negotiated_channel_is_counted_and_answered() {
    let mut pair = Pair::negotiated(false);
    pair.take();
    let open = Message::new(StreamId(7), PPID_DCEP, open("oai-events"));
    assert_eq!(pair.ours.message(pair.now, open), Err(Discard::DcepAgain));
    let _ = pair.ours.drain(pair.now);
    pair.exchange();
    assert_eq!((pair.take(), std::mem::take(&mut pair.received)), (Vec::new(), vec![(7, 50, vec![2])]));
}

#[test]
fn a_negotiated_channel_is_there_for_the_first_packet() {
    let mut pair = Pair::agreed(false);
    pair.client.connect();
    // Sent with COOKIE-ECHO.
    pair.client_sends(7, 51, b"first");
    pair.exchange();
    let opened = Output::Opened { channel: ChannelId(7), label: "oai-events".to_owned() };
    let told = Output::Message { channel: ChannelId(7), kind: MessageKind::Text, data: b"first".to_vec() };
    assert_eq!(pair.take(), [opened, told]);
}

#[test]
fn a_reset_of_the_clients_closes_the_channel_and_is_answered() {
    let mut pair = Pair::opened();
    pair.client.reset_streams(&[StreamId(0)]).unwrap();
    pair.exchange();
    assert_eq!(pair.take(), [Output::Closed { channel: ChannelId(0) }]);
    let reset = |event: &SocketEvent| matches!(event, SocketEvent::OnIncomingStreamReset(ids) if *ids == [StreamId(0)]);
    assert_eq!(pair.events.iter().filter(|event| reset(event)).count(), 1);
    let refused = pair.ours.send(pair.now, ChannelId(0), MessageKind::Text, b"late");
    assert_eq!(refused, Err(SendMessageError::NotOpen));
}

/// Case C03: the stream's number is used again before the client's confirmation of our reset is here.
#[test]
fn a_stream_is_opened_again_while_our_reset_is_unconfirmed() {
    let mut pair = Pair::opened();
    pair.client.reset_streams(&[StreamId(0)]).unwrap();
    // Both resets cross except for the client's confirmation of ours, which is delayed.
    let mut delayed = Vec::new();
    for turn in 0..6 {
        while let Some(output) = pair.ours.poll_output() {
            match output {
                Output::Packet(packet) => pair.client.handle_input(&packet),
                told => pair.told.push(told),
            }
        }
        while let Some(event) = pair.client.poll_event() {
            if let SocketEvent::SendPacket(packet) = event {
                if turn == 0 { pair.ours.handle_packet(pair.now, &packet).unwrap() } else { delayed.push(packet) }
            }
        }
    }
    assert_eq!(pair.take(), [Output::Closed { channel: ChannelId(0) }]);
    pair.client_sends(0, 50, &open("again"));
    pair.exchange();
    for packet in delayed {
        let _ = pair.ours.handle_packet(pair.now, &packet);
    }
    pair.exchange();
    pair.advance(Duration::from_millis(600));
    assert_eq!(pair.take(), [Output::Opened { channel: ChannelId(0), label: "again".to_owned() }]);
    pair.ours.send(pair.now, ChannelId(0), MessageKind::Text, b"works").unwrap();
    pair.exchange();
    assert_eq!(pair.received.last().unwrap(), &(0, 51, b"works".to_vec()));
}

#[test]
fn channels_beyond_the_table_are_reset() {
    let mut pair = Pair::connected();
    for channel in 0..=u16::try_from(CHANNELS_MAX).unwrap() {
        pair.client_sends(channel, 50, &open("x"));
        pair.exchange();
    }
    assert_eq!(pair.take().len(), CHANNELS_MAX);
    let last = StreamId(u16::try_from(CHANNELS_MAX).unwrap());
    let reset = |event: &SocketEvent| matches!(event, SocketEvent::OnIncomingStreamReset(ids) if ids.contains(&last));
    assert!(pair.events.iter().any(reset));
}

/// Case C07.
#[test]
fn a_repeated_init_changes_nothing() {
    let mut pair = Pair::new(262_144, false);
    pair.client.connect();
    let mut recorded = Vec::new();
    while let Some(event) = pair.client.poll_event() {
        if let SocketEvent::SendPacket(packet) = event {
            pair.ours.handle_packet(pair.now, &packet).unwrap();
            recorded.push(packet);
        }
    }
    pair.exchange();
    pair.client_sends(0, 50, &open("x"));
    pair.exchange();
    pair.take();
    pair.now += Duration::from_secs(1);
    for packet in &recorded {
        pair.ours.handle_packet(pair.now, packet).unwrap();
    }
    assert!(!packets(&mut pair.ours).is_empty(), "INIT-ACK");
    pair.client_sends(0, 51, b"alive");
    pair.exchange();
    assert_eq!(pair.take(), [message(MessageKind::Text, b"alive")]);
}

#[test]
fn a_panic_of_the_engine_closes_the_channels_alone() {
    let mut pair = Pair::opened();
    pair.ours.call(pair.now, |_| panic!("on purpose"));
    assert_eq!(pair.ours.poll_output(), Some(Output::Closed { channel: ChannelId(0) }));
    assert_eq!(pair.ours.send(pair.now, ChannelId(0), MessageKind::Text, b"x"), Err(SendMessageError::NotOpen));
    assert_eq!(pair.ours.handle_packet(pair.now, b"x"), Err(Discard::Sctp));
    assert_eq!(pair.ours.poll_timeout(), None);
}

#[test]
fn junk_is_counted() {
    let mut pair = Pair::opened();
    for junk in [&b""[..], b"x", &[0; 12], &[0x5A; 40]] {
        assert_eq!(pair.ours.handle_packet(pair.now, junk), Err(Discard::Sctp));
    }
    assert_eq!(pair.take(), []);
}
