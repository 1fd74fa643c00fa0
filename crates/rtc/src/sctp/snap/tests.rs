use std::time::{Duration, Instant};

use dcsctp::api::{DcSctpSocket, Message, PpId, SendOptions, StreamId};

use super::super::{Association, Output, options};
use super::*;
use crate::sdp::{Negotiated, SctpSetup};
use crate::{ChannelId, MessageKind};

const TAG: u32 = 0x1122_3344;
const TSN: u32 = 1000;
const WINDOW: u32 = 1 << 20;

fn engine() -> Options {
    options(5000, 262_144)
}

fn offered() -> OfferedInit {
    OfferedInit::of_browser(TAG, TSN, WINDOW).unwrap()
}

fn agreed() -> SnapState {
    SnapState::answer(&offered(), &engine()).unwrap()
}

/// The client's socket in the same association.
fn client(state: &SnapState) -> Box<dyn DcSctpSocket> {
    let ours = OfferedInit::read(&state.init).unwrap();
    let state = SnapState::answer(&ours, &engine()).unwrap().with_ours(TAG, TSN).unwrap();
    let mut client = dcsctp::new_socket("client", &engine());
    client.restore_from_state(&state.handover()).unwrap();
    client
}

fn association(state: SnapState) -> Association {
    let negotiated = vec![Negotiated::reliable(0, "oai-events")];
    let setup = SctpSetup { snap: Some(state), negotiated, ..SctpSetup::new(5000, 262_144) };
    Association::new(Instant::now(), &setup, 262_144, true)
}

/// Pins what of the engine's internals this relies on: the version is pinned for it.
#[test]
fn the_restored_association_is_the_one_that_the_inits_describe() {
    let state = agreed();
    let init = STANDARD.decode(&state.init).unwrap();
    let (our_tag, our_tsn) = (be32(&init, 4).unwrap(), be32(&init, 16).unwrap());
    let mut socket = dcsctp::new_socket("", &engine());
    socket.restore_from_state(&state.handover()).unwrap();
    let restored = socket.get_handover_state_and_close().unwrap();
    assert!(matches!(restored.socket_state, HandoverSocketState::Connected));
    assert_eq!((restored.my_verification_tag, restored.peer_verification_tag), (our_tag, TAG));
    assert_eq!((restored.my_initial_tsn, restored.peer_initial_tsn), (our_tsn, TSN));
    assert_eq!((restored.tx.next_tsn, restored.tx.next_reset_req_sn), (our_tsn, our_tsn));
    assert_eq!((restored.rx.last_cumulative_acked_tsn, restored.rx.last_completed_reset_req_sn), (TSN - 1, TSN - 1));
    assert!(!restored.rx.seen_packet);
    assert_eq!((restored.tx.cwnd, restored.tx.rwnd, restored.tx.ssthresh), (10 * 1150, WINDOW, WINDOW));
    let capabilities = &restored.capabilities;
    assert_eq!(
        (capabilities.partial_reliability, capabilities.reconfig, capabilities.message_interleaving),
        (true, true, false)
    );
    assert_eq!(capabilities.negotiated_maximum_outgoing_streams, u16::MAX);
}

#[test]
fn our_init_has_a_tag_of_its_own_and_no_cookie() {
    let state = agreed();
    let init = STANDARD.decode(&state.init).unwrap();
    assert_ne!(be32(&init, 4), Some(TAG));
    assert_ne!(state.init, agreed().init, "drawn for each answer");
    let stated = usize::from(be16(&init, 2).unwrap());
    assert_eq!((init[0], stated.next_multiple_of(4)), (INIT, init.len()));
    assert_eq!(init[INIT_BYTES_MIN..], BROWSER_PARAMETERS, "what browsers say too");
    assert!(OfferedInit::read(&state.init).is_some(), "is an INIT to others");
}

#[test]
fn tag_and_tsn_can_be_given() {
    let state = agreed().with_ours(7, u32::MAX).unwrap();
    let init = STANDARD.decode(&state.init).unwrap();
    assert_eq!((be32(&init, 4), be32(&init, 16)), (Some(7), Some(u32::MAX)));
    let handover = state.handover();
    assert_eq!((handover.my_verification_tag, handover.tx.next_tsn), (7, u32::MAX));
    assert_eq!(agreed().with_ours(0, 1), None);
}

#[test]
fn both_sides_speak_before_any_handshake() {
    let state = agreed();
    let mut client = client(&state);
    let mut ours = association(state);
    let now = Instant::now();
    ours.start(now);
    let opened = Output::Opened { channel: ChannelId(0), label: "oai-events".to_owned() };
    assert_eq!(ours.poll_output(), Some(opened));
    ours.send(now, ChannelId(0), MessageKind::Text, b"first").unwrap();
    client.send(Message::new(StreamId(0), PpId(51), b"hello".to_vec()), &SendOptions::default()).unwrap();
    let Some(Output::Packet(packet)) = ours.poll_output() else { panic!("a packet") };
    client.handle_input(&packet);
    assert_eq!(client.get_next_message().unwrap().payload, b"first");
    while let Some(event) = client.poll_event() {
        if let SocketEvent::SendPacket(packet) = event {
            ours.handle_packet(now, &packet).unwrap();
        }
    }
    let told = Output::Message { channel: ChannelId(0), kind: MessageKind::Text, data: b"hello".to_vec() };
    let outputs: Vec<Output> = std::iter::from_fn(|| ours.poll_output()).collect();
    assert!(outputs.contains(&told), "{outputs:?}");
}

/// The answer lost its `a=sctp-init` on the way: to the client nothing was agreed.
#[test]
fn an_init_instead_of_data_begins_the_ordinary_handshake() {
    let mut ours = association(agreed());
    let now = Instant::now();
    ours.start(now);
    ours.send(now, ChannelId(0), MessageKind::Text, b"lost").unwrap();
    let opened = || Output::Opened { channel: ChannelId(0), label: "oai-events".to_owned() };
    assert_eq!(ours.poll_output(), Some(opened()));
    let mut client = dcsctp::new_socket("client", &engine());
    client.connect();
    let mut told = Vec::new();
    for _ in 0..4 {
        while let Some(event) = client.poll_event() {
            if let SocketEvent::SendPacket(packet) = event {
                ours.handle_packet(now, &packet).unwrap();
            }
        }
        while let Some(output) = ours.poll_output() {
            match output {
                Output::Packet(packet) => client.handle_input(&packet),
                output => told.push(output),
            }
        }
    }
    assert_eq!(told, [Output::Closed { channel: ChannelId(0) }, opened()]);
    ours.send(now, ChannelId(0), MessageKind::Text, b"again").unwrap();
    let Some(Output::Packet(packet)) = ours.poll_output() else { panic!("a packet") };
    client.handle_input(&packet);
    assert_eq!(client.get_next_message().unwrap().payload, b"again");
}

/// Runs ours and a client for so long, and returns what ours told and the chunks that it sent.
fn run(ours: &mut Association, client: &mut dyn DcSctpSocket, from: Instant, time: Duration) -> (Vec<Output>, Vec<u8>) {
    let (mut told, mut chunks, mut now) = (Vec::new(), Vec::new(), from);
    loop {
        while let Some(output) = ours.poll_output() {
            match output {
                Output::Packet(packet) => {
                    chunks.push(packet[COMMON_HEADER]);
                    client.handle_input(&packet);
                }
                output => told.push(output),
            }
        }
        let mut quiet = true;
        while let Some(event) = client.poll_event() {
            if let SocketEvent::SendPacket(packet) = event {
                ours.handle_packet(now, &packet).unwrap();
                quiet = false;
            }
        }
        if quiet {
            now = match ours.poll_timeout() {
                Some(at) if at <= from + time => at,
                _ => return (told, chunks),
            };
            ours.handle_timeout(now);
        }
    }
}

/// The answer lost its `a=sctp-init` on the way to a client that waits for the INIT of the DTLS client.
#[test]
fn a_client_that_says_nothing_to_probes_gets_an_init() {
    let mut ours = association(agreed());
    let now = Instant::now();
    ours.start(now);
    let mut client = dcsctp::new_socket("client", &engine());
    let (told, chunks) = run(&mut ours, client.as_mut(), now, Duration::from_secs(3));
    let opened = || Output::Opened { channel: ChannelId(0), label: "oai-events".to_owned() };
    assert_eq!(told, [opened(), Output::Closed { channel: ChannelId(0) }, opened()]);
    assert_eq!(chunks[..4], [4, 4, 4, INIT], "HEARTBEATs first");
}

#[test]
fn an_abort_instead_of_an_answer_brings_the_init_at_once() {
    let mut ours = association(agreed());
    let now = Instant::now();
    ours.start(now);
    ours.handle_packet(now, &[&ours.header.unwrap()[..], &[0; 4], &[ABORT, 1, 0, 4]].concat()).unwrap();
    let mut client = dcsctp::new_socket("client", &engine());
    let (_, chunks) = run(&mut ours, client.as_mut(), now, Duration::ZERO);
    assert_eq!(chunks[0], INIT);
}

#[test]
fn a_probe_that_is_answered_is_the_last() {
    let state = agreed();
    let mut client = client(&state);
    let mut ours = association(state);
    let now = Instant::now();
    ours.start(now);
    let (told, chunks) = run(&mut ours, client.as_mut(), now, Duration::from_secs(20));
    assert_eq!(told, [Output::Opened { channel: ChannelId(0), label: "oai-events".to_owned() }]);
    assert_eq!(chunks, [4]);
}

#[test]
fn padding_may_be_left_out() {
    let value = STANDARD.encode(&offered().0);
    assert!(value.ends_with('='));
    assert_eq!(OfferedInit::read(&value), OfferedInit::read(value.trim_end_matches('=')));
    let exact = &offered().0[..30];
    assert_eq!(OfferedInit::read(&STANDARD.encode(exact)).unwrap().0, exact, "chunk without its padding");
    assert!(SnapState::answer(&OfferedInit(exact.to_vec()), &engine()).is_some());
}

#[test]
fn inits_of_which_no_association_can_come_are_unusable() {
    let change = |at: usize, bytes: &[u8]| {
        let mut chunk = offered().0;
        chunk[at..at + bytes.len()].copy_from_slice(bytes);
        STANDARD.encode(chunk)
    };
    let long = "A".repeat(100_000);
    let unusable = [
        String::new(),
        "!".to_owned(),
        "AQAA".to_owned(),
        long,
        STANDARD.encode([0; 12]),
        change(0, &[2]),
        change(2, &[0, 19]),
        change(2, &[0, 40]),
        change(2, &[0xFF, 0xFF]),
        change(4, &[0; 4]),
        change(8, &[0; 4]),
        change(12, &[0; 2]),
        change(14, &[0; 2]),
    ];
    for value in unusable {
        assert_eq!(OfferedInit::read(&value), None, "{value:.60}");
    }
}

#[test]
fn hostile_parameters_panic_nowhere() {
    for seed in 0..20_000_u32 {
        let mut chunk = offered().0;
        let [first, second, third, _] = seed.wrapping_mul(0x9E37_79B1).to_be_bytes();
        chunk[20 + usize::from(first) % 12] = second;
        chunk[20 + usize::from(third) % 12] = first;
        let _ = SnapState::answer(&OfferedInit(chunk), &engine());
    }
}
