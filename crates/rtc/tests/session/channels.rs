//! Data channels with a foreign SCTP.

use std::time::Duration;

use rtc::{Candidate, ChannelId, Credentials, Event, MessageKind, Offer, Renewal, SendMessageError};
use str0m::change::SdpOffer;
use str0m::channel::ChannelConfig;

use crate::pair::{Pair, Plan, server_address};

/// Sends back what comes, until `count` messages came.
fn echo(pair: &mut Pair, count: usize) -> Vec<(MessageKind, Vec<u8>)> {
    let mut messages = Vec::new();
    let mut seen = pair.server_events.len();
    pair.until(Duration::from_secs(60), |pair| {
        while let Some((_, event)) = pair.server_events.get(seen) {
            seen += 1;
            if let Event::Message { channel, kind, data } = event.clone() {
                pair.server.send_message(pair.sim.now(), channel, kind, &data).unwrap();
                messages.push((kind, data));
            }
        }
        messages.len() == count
    });
    messages
}

fn received(pair: &Pair) -> Vec<(bool, Vec<u8>)> {
    let data = pair.client_events.iter().filter_map(|(_, event)| match event {
        str0m::Event::ChannelData(data) => Some((data.binary, data.data.clone())),
        _ => None,
    });
    data.collect()
}

#[test]
fn open_in_band_with_their_label() {
    for active in [true, false] {
        let pair = Pair::open(Plan { active, ..Plan::default() });
        let opened = |event: &Event| matches!(event, Event::ChannelOpened { label, .. } if label == "oai-events");
        assert!(pair.server_event(opened).is_some());
    }
}

#[test]
fn echo_text_and_binary_of_every_size() {
    for active in [true, false] {
        let mut pair = Pair::open(Plan { active, ..Plan::default() });
        let messages: Vec<(bool, Vec<u8>)> = [1, 1100, 1200, 16_384, 65_535, 200_000]
            .into_iter()
            .flat_map(|size| [(false, vec![b'x'; size]), (true, vec![0xFF; size])])
            .collect();
        for (binary, data) in &messages {
            let mut sent = false;
            let channel = pair.channel;
            pair.until(Duration::from_secs(30), |pair| {
                sent = sent || pair.client.channel(channel).unwrap().write(*binary, data).unwrap();
                sent
            });
            let kind = if *binary { MessageKind::Binary } else { MessageKind::Text };
            assert_eq!(echo(&mut pair, 1), [(kind, data.clone())]);
            pair.run(Duration::from_secs(3));
        }
        assert_eq!(received(&pair), messages);
        assert_eq!(pair.discards, []);
    }
}

/// Only ours: this client's SCTP sends nothing for an empty message.
#[test]
fn carry_empty_messages() {
    let mut pair = Pair::open(Plan::default());
    let channel = channel(&pair);
    pair.server.send_message(pair.sim.now(), channel, MessageKind::Text, b"").unwrap();
    pair.server.send_message(pair.sim.now(), channel, MessageKind::Binary, b"").unwrap();
    pair.run(Duration::from_secs(1));
    assert_eq!(received(&pair), [(false, Vec::new()), (true, Vec::new())]);
}

#[test]
fn over_the_clients_limit_is_an_error_and_the_channel_stays() {
    let mut pair =
        Pair::open(Plan { tamper: |setup| setup.sctp.as_mut().unwrap().max_message_bytes = 70_000, ..Plan::default() });
    let channel = channel(&pair);
    let refused = pair.server.send_message(pair.sim.now(), channel, MessageKind::Text, &[b'x'; 70_001]);
    assert_eq!(refused, Err(SendMessageError::TooLarge { limit: 70_000 }));
    pair.server.send_message(pair.sim.now(), channel, MessageKind::Text, &[b'x'; 70_000]).unwrap();
    pair.run(Duration::from_secs(5));
    assert_eq!(received(&pair).len(), 1);
}

#[test]
fn survive_loss_both_ways() {
    let mut pair = Pair::open(Plan::default());
    let mut count = 0_u32;
    pair.lose = Box::new(move |_, datagram| {
        count += 1;
        rtc::classify(datagram) == rtc::Class::Dtls && count % 10 == 3
    });
    for number in 0..50_u8 {
        let channel = pair.channel;
        assert!(pair.client.channel(channel).unwrap().write(true, &[number; 1500]).unwrap());
    }
    let messages = echo(&mut pair, 50);
    assert!(messages.iter().enumerate().all(|(at, (_, data))| usize::from(data[0]) == at));
    pair.until(Duration::from_secs(60), |pair| received(pair).len() == 50);
}

#[test]
fn close_when_the_client_closes_them() {
    let mut pair = Pair::open(Plan::default());
    let closed = pair.channel;
    pair.client.direct_api().close_data_channel(closed);
    pair.until(Duration::from_secs(5), |pair| {
        pair.client_events.iter().any(|(_, event)| matches!(event, str0m::Event::ChannelClose(id) if *id == closed))
    });
    let channel = channel(&pair);
    assert!(pair.server_event(|event| *event == Event::ChannelClosed { channel }).is_some());
    let refused = pair.server.send_message(pair.sim.now(), channel, MessageKind::Text, b"late");
    assert_eq!(refused, Err(SendMessageError::NotOpen));
}

/// A later offer that lists these streams too, given to the session.
fn renew(pair: &mut Pair, dcmaps: &str) {
    let mut change = pair.client.sdp_api();
    change.ice_restart(true);
    let (offer, unanswered) = change.apply().unwrap();
    drop(unanswered);
    let text = SdpOffer::to_sdp_string(&offer) + dcmaps;
    assert_eq!(text.matches("m=").count(), 2, "the data channel line is the last one: {text}");
    let fresh = Credentials { ufrag: "fresh".to_owned(), password: "another-password-of-24-b".into() };
    let candidates = [Candidate::udp(server_address())];
    let with = Renewal { fingerprint: "", candidates: &candidates, version: 2, ice_session: 1, fresh: &fresh };
    let answered = pair.server.handle_offer(pair.sim.now(), &Offer::parse(&text).unwrap(), &with).unwrap().answer;
    assert_eq!(answered.matches("a=dcmap:").count(), dcmaps.matches("a=dcmap:").count());
}

fn opened(pair: &Pair) -> Vec<(u16, String)> {
    let opened = pair.server_events.iter().filter_map(|(_, event)| match event {
        Event::ChannelOpened { channel, label } => Some((channel.0, label.clone())),
        _ => None,
    });
    opened.skip(1).collect()
}

#[test]
fn those_that_a_later_offer_lists_open_at_once_and_once() {
    let mut pair = Pair::open(Plan::default());
    let tools = ChannelConfig { label: "tools".to_owned(), negotiated: Some(7), ..ChannelConfig::default() };
    let theirs = pair.client.direct_api().create_data_channel(tools);
    renew(&mut pair, "a=dcmap:7 label=\"tools\"\r\n");
    pair.run(Duration::from_secs(1));
    assert_eq!(opened(&pair), [(7, "tools".to_owned())]);
    pair.server.send_message(pair.sim.now(), ChannelId(7), MessageKind::Text, b"to the client").unwrap();
    assert!(pair.client.channel(theirs).unwrap().write(false, b"to the server").unwrap());
    pair.run(Duration::from_secs(1));
    assert_eq!(received(&pair), [(false, b"to the client".to_vec())]);
    let (kind, data) = (MessageKind::Text, b"to the server".to_vec());
    assert!(
        pair.server_event(|event| *event == Event::Message { channel: ChannelId(7), kind, data: data.clone() })
            .is_some()
    );
    // Listed again, and with another one; then left out.
    renew(&mut pair, "a=dcmap:7 label=\"tools\"\r\na=dcmap:9 label=\"more\"\r\n");
    renew(&mut pair, "");
    pair.run(Duration::from_secs(1));
    assert_eq!(opened(&pair)[1..], [(9, "more".to_owned())]);
    assert!(pair.server_event(|event| matches!(event, Event::ChannelClosed { .. })).is_none());
}

#[test]
fn one_that_was_closed_opens_again_when_a_later_offer_lists_it() {
    let mut pair = Pair::open(Plan::default());
    let tools = || ChannelConfig { label: "tools".to_owned(), negotiated: Some(7), ..ChannelConfig::default() };
    let theirs = pair.client.direct_api().create_data_channel(tools());
    renew(&mut pair, "a=dcmap:7 label=\"tools\"\r\n");
    pair.run(Duration::from_secs(1));
    pair.client.direct_api().close_data_channel(theirs);
    pair.run(Duration::from_secs(1));
    assert!(pair.server_event(|event| *event == Event::ChannelClosed { channel: ChannelId(7) }).is_some());
    renew(&mut pair, "");
    assert_eq!(opened(&pair).len(), 1, "not by an offer that is silent about it");
    renew(&mut pair, "a=dcmap:7 label=\"tools\"\r\n");
    pair.run(Duration::from_secs(1));
    assert_eq!(opened(&pair).len(), 2);
}

fn channel(pair: &Pair) -> ChannelId {
    let opened = pair.server_events.iter().find_map(|(_, event)| match event {
        Event::ChannelOpened { channel, .. } => Some(*channel),
        _ => None,
    });
    opened.expect("opened")
}
