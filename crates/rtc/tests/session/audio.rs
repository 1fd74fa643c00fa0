//! Media both ways, and the reports about it.

use std::time::Duration;

use rtc::{Class, OutgoingFrame, SendMediaError, classify};

use crate::pair::{Pair, Plan, Way};

#[test]
fn echoes_in_both_roles() {
    for active in [true, false] {
        let mut pair = Pair::open(Plan { active, ..Plan::default() });
        pair.echo = true;
        pair.talk(100);
        pair.run(Duration::from_secs(1));
        let expected: Vec<Vec<u8>> = (0..100).map(|number| vec![number; 60]).collect();
        let heard: Vec<Vec<u8>> = pair.heard.iter().map(|(_, payload)| payload.clone()).collect();
        assert_eq!(heard, expected, "active: {active}");
        assert_eq!(pair.heard_by_client(), expected, "active: {active}");
        assert_eq!(pair.discards, []);
    }
}

#[test]
fn is_refused_before_the_session_is_connected() {
    let mut pair = Pair::new(Plan::default());
    let frame =
        OutgoingFrame { codec: rtc::Codec::Opus, rtp_timestamp: 0, marker: true, payload: &[1], label: 0, samples: 0 };
    let refused = pair.server.send_media(pair.sim.now(), frame, &mut Vec::new());
    assert_eq!(refused, Err(SendMediaError::NotConnected));
}

#[test]
fn is_refused_to_a_client_that_takes_none() {
    let mut pair = Pair::open(Plan { tamper: |setup| setup.audio.as_mut().unwrap().send = false, ..Plan::default() });
    let frame =
        OutgoingFrame { codec: rtc::Codec::Opus, rtp_timestamp: 0, marker: true, payload: &[1], label: 0, samples: 0 };
    let refused = pair.server.send_media(pair.sim.now(), frame, &mut Vec::new());
    assert_eq!(refused, Err(SendMediaError::NotNegotiated));
}

#[test]
fn is_reported_each_second() {
    let mut pair = Pair::open(Plan::default());
    pair.sent.clear();
    pair.echo = true;
    pair.talk(250);
    let reports = pair.sent.iter().filter(|(_, way, datagram)| *way == Way::Down && classify(datagram) == Class::Rtcp);
    assert_eq!(reports.count(), 5);
}

/// Every tenth echo is lost; the client says so, and from its report the round trip is known.
#[test]
fn loss_and_round_trip_are_learned_from_the_clients_reports() {
    let mut pair = Pair::open(Plan::default());
    pair.echo = true;
    let mut sent = 0;
    pair.lose = Box::new(move |way, datagram| {
        let audio = way == Way::Down && classify(datagram) == Class::Rtp;
        sent += u32::from(audio);
        audio && sent % 10 == 5
    });
    for _ in 0..4 {
        pair.talk(250);
    }
    pair.run(Duration::from_millis(100));
    let stats = *pair.server.stats();
    assert_eq!((stats.media_received, stats.media_sent), (1000, 1000));
    assert!((50..=100).contains(&stats.reported_lost), "{stats:?}");
    assert!((99_000..=102_000).contains(&stats.rtt_us), "{stats:?}");
}

/// What str0m offers for video alone: it reads the sequence numbers and says packet by packet what came.
#[test]
fn loss_is_learned_packet_by_packet_from_a_foreign_stacks_feedback() {
    const EXTMAP: &str = "a=extmap:3 http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
    let mut pair = Pair::open(Plan {
        tamper: |setup| setup.audio.as_mut().unwrap().transport_seq_id = Some(3),
        strip: |answer| answer.replacen("a=msid:", &format!("{EXTMAP}\r\na=msid:"), 1),
        ..Plan::default()
    });
    pair.client.direct_api().enable_twcc_feedback();
    pair.echo = true;
    let mut sent = 0;
    pair.lose = Box::new(move |way, datagram| {
        let audio = way == Way::Down && classify(datagram) == Class::Rtp;
        sent += u32::from(audio);
        audio && sent % 10 == 5
    });
    pair.talk(200);
    pair.run(Duration::from_millis(500));
    let view = pair.server.downlink(1).unwrap();
    assert!(pair.server.stats().feedback > 10, "{:?}", pair.server.stats());
    assert!(view.transport_wide, "{view:?}");
    assert!(view.arrived > 190 * 960 && view.loss > 13, "{view:?}, a tenth is lost");
    assert!((99_000..=102_000).contains(&view.rtt_us), "{view:?}");
    assert_eq!(view.delay_us, Some(20_000), "nothing comes late");
    assert_eq!(pair.discards, []);
}

/// Case R04.
#[test]
fn goes_on_with_the_first_packet_of_another_ssrc() {
    let mut pair = Pair::open(Plan::default());
    pair.talk(5);
    let ssrc = pair.client.direct_api().new_ssrc();
    let mid = pair.mid;
    pair.client.direct_api().reset_stream_tx(mid, None, ssrc, None).unwrap();
    pair.talk(5);
    pair.run(Duration::from_millis(200));
    assert_eq!(pair.heard.len(), 10);
}

#[test]
fn an_ssrc_is_told_once_per_second_however_often_it_changes() {
    let mut pair = Pair::open(Plan::default());
    let mid = pair.mid;
    let began = pair.sim.elapsed();
    for _ in 0..100 {
        let ssrc = pair.client.direct_api().new_ssrc();
        pair.client.direct_api().reset_stream_tx(mid, None, ssrc, None).unwrap();
        pair.talk(1);
    }
    pair.run(Duration::from_millis(200));
    let told: Vec<Duration> = pair
        .server_events
        .iter()
        .filter(|(_, event)| matches!(event, rtc::Event::SsrcHeard(_)))
        .map(|(at, _)| *at - began)
        .collect();
    assert_eq!(pair.heard.len(), 100);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1] - told[0] >= Duration::from_secs(1), "{told:?}");
}

#[test]
fn a_payload_type_that_was_not_agreed_is_counted() {
    let mut pair =
        Pair::open(Plan { tamper: |setup| setup.audio.as_mut().unwrap().primary.payload_type = 1, ..Plan::default() });
    pair.talk(3);
    pair.run(Duration::from_millis(200));
    assert_eq!(pair.discards, [rtc::Discard::PayloadType; 3]);
    assert_eq!(pair.heard, []);
}

#[test]
fn comfort_noise_and_telephone_events_are_no_audio_and_no_fault() {
    let mut pair = Pair::open(Plan {
        tamper: |setup| {
            let audio = setup.audio.as_mut().unwrap();
            audio.other.push(audio.primary.payload_type);
            audio.primary.payload_type = 1;
        },
        ..Plan::default()
    });
    pair.talk(3);
    pair.run(Duration::from_millis(200));
    assert_eq!(pair.discards, []);
    assert_eq!(pair.heard, []);
}

#[test]
fn sealing_a_frame_allocates_nothing_once_the_buffer_has_room() {
    let mut pair = Pair::open(Plan::default());
    let mut out = Vec::with_capacity(1500);
    let before = out.as_ptr();
    for number in 0..100 {
        let frame = OutgoingFrame {
            codec: rtc::Codec::Opus,
            rtp_timestamp: number * 960,
            marker: false,
            payload: &[3; 1100],
            label: 0,
            samples: 0,
        };
        pair.server.send_media(pair.sim.now(), frame, &mut out).unwrap();
    }
    assert_eq!(out.as_ptr(), before);
}

/// The client sends nothing again, so each of the two lost packets is asked for twice, and reports go on as before.
#[test]
fn a_gap_is_asked_for_at_once_where_the_client_sends_again() {
    for (nack, asked) in [(false, 0), (true, 4)] {
        let tamper: fn(&mut rtc::Setup) = if nack { |setup| setup.audio.as_mut().unwrap().nack = true } else { |_| () };
        let mut pair = Pair::open(Plan { tamper, ..Plan::default() });
        let mut sent = 0;
        pair.lose = Box::new(move |way, datagram| {
            let audio = way == Way::Up && classify(datagram) == Class::Rtp;
            sent += u32::from(audio);
            audio && (sent == 5 || sent == 6)
        });
        pair.sent.clear();
        let began = pair.sim.elapsed();
        pair.talk(45);
        pair.run(Duration::from_millis(200));
        let requests: Vec<Duration> = pair
            .sent
            .iter()
            .filter(|(at, way, datagram)| {
                *way == Way::Down && classify(datagram) == Class::Rtcp && *at - began < Duration::from_millis(600)
            })
            .map(|(at, ..)| *at - began)
            .collect();
        assert_eq!(pair.server.stats().packets_requested, asked);
        assert_eq!(pair.heard.len(), 43);
        if nack {
            assert_eq!(requests.len(), 2, "{requests:?}");
            assert!(requests[0] < Duration::from_millis(180), "{requests:?}: the packet behind the gap came by then");
            assert_eq!(requests[1] - requests[0], Duration::from_millis(100));
        }
    }
}

#[test]
fn a_packet_sent_again_in_a_stream_of_its_own_has_the_number_it_had() {
    let mut pair = Pair::open(Plan {
        tamper: |setup| {
            let audio = setup.audio.as_mut().unwrap();
            let opus = audio.primary.payload_type;
            audio.again = vec![(opus, 50)];
            audio.primary.payload_type = 50;
        },
        ..Plan::default()
    });
    // To the session each packet repeats one: its first two bytes are that one's number.
    pair.talk(3);
    pair.run(Duration::from_millis(200));
    let payloads: Vec<&[u8]> = pair.heard.iter().map(|(_, payload)| &payload[..]).collect();
    assert_eq!(payloads, [&[0; 58][..], &[1; 58], &[2; 58]]);
}
