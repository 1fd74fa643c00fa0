//! A worker core between a client and transceivers that the test plays.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall say where")]

mod common;

use std::time::{Duration, Instant};

use common::Rig;
use edge::worker::{CloseCause, Gauges, LinkInput, Output};
use link::datagram::{Batch, Codec, MediaUp, parse};
use link::ids::{Epoch, SessionId, Slot, TransceiverId, UtteranceId};
use link::proto::{
    ChannelMessage, EdgeMessage, Flush, OpenRequest, Pause, TransceiverMessage, UtteranceHeader, edge_message,
    playout_effect, transceiver_message,
};

const A: TransceiverId = TransceiverId(1);
const B: TransceiverId = TransceiverId(2);
const SLOT: Slot = Slot(3);

/// The Open requests so far, with where they went.
fn opens(rig: &Rig) -> Vec<(TransceiverId, OpenRequest)> {
    let opens = rig.outputs.iter().filter_map(|output| match output {
        Output::Open { transceiver, request } => Some((*transceiver, request.clone())),
        _ => None,
    });
    opens.collect()
}

fn messages(rig: &Rig) -> Vec<edge_message::Kind> {
    let messages = rig.outputs.iter().filter_map(|output| match output {
        Output::Message { message: EdgeMessage { kind }, .. } => kind.clone(),
        _ => None,
    });
    messages.collect()
}

fn released(rig: &Rig) -> Vec<(TransceiverId, u64)> {
    let released = rig.outputs.iter().filter_map(|output| match output {
        Output::Release { transceiver, request } => Some((*transceiver, request.epoch)),
        _ => None,
    });
    released.collect()
}

/// (first payload byte, age in ms) of each uplink frame.
fn uplink(rig: &Rig) -> Vec<(u8, u32)> {
    let mut frames = vec![];
    for output in &rig.outputs {
        let Output::Datagram { batch, .. } = output else { continue };
        if let Ok(Batch::MediaUp { frames: batch, .. }) = parse(batch) {
            for frame in batch {
                let frame = frame.unwrap();
                assert_eq!(frame.slot, SLOT);
                frames.push((frame.payload[0], frame.age_us / 1000));
            }
        }
    }
    frames
}

fn give(rig: &mut Rig, from: TransceiverId, input: LinkInput<'_>) {
    rig.workers[0].handle_link(rig.now, from, input);
    rig.settle();
}

fn say(rig: &mut Rig, session: SessionId, kind: transceiver_message::Kind) {
    let message = TransceiverMessage { kind: Some(kind) };
    give(rig, A, LinkInput::Message { session, epoch: Epoch::FIRST, message });
}

fn opened(model: &str) -> (Rig, SessionId) {
    let mut rig = Rig::new(1);
    rig.lease(&[1]);
    let id = rig.connect(model);
    give(&mut rig, A, LinkInput::Opened { session: id, epoch: Epoch::FIRST, slot: SLOT });
    (rig, id)
}

fn play(rig: &mut Rig, epoch: u8, tags: std::ops::Range<u8>) {
    let header = UtteranceHeader {
        slot: SLOT.0,
        epoch: u64::from(epoch),
        utterance: 1,
        item: "item".to_owned(),
        first_sample: 0,
    };
    give(rig, A, LinkInput::UtteranceStart(header));
    for tag in tags {
        let utterance = UtteranceId(1);
        give(rig, A, LinkInput::UtteranceFrame { slot: SLOT, epoch, utterance, samples: 960, payload: &[tag, 0] });
    }
}

/// When and what the client heard, without the silence that surrounds speech.
fn sounds(rig: &Rig) -> Vec<(Instant, u8)> {
    let sounds = rig.client.heard.iter().filter(|(_, payload)| *payload != [0xf8, 0xff, 0xfe]);
    sounds.map(|(at, payload)| (*at, payload[0])).collect()
}

fn heard(rig: &Rig) -> Vec<u8> {
    sounds(rig).into_iter().map(|(_, tag)| tag).collect()
}

#[test]
fn open_is_asked_with_the_first_check_and_what_came_before_its_answer_is_held() {
    let mut rig = Rig::new(1);
    rig.lease(&[1]);
    let id = rig.connect("parrot");
    let asked = opens(&rig);
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].0, asked[0].1.session, asked[0].1.epoch), (A, id.0, 1));
    assert_eq!((asked[0].1.call_id.as_str(), asked[0].1.model.as_str()), (id.to_string().as_str(), "parrot"));

    rig.client.say("early");
    for tag in 0..5 {
        rig.client.speak(rig.now, &[tag, 0]);
        rig.run_for(Duration::from_millis(20));
    }
    assert!(messages(&rig).is_empty() && uplink(&rig).is_empty());
    give(&mut rig, A, LinkInput::Opened { session: id, epoch: Epoch::FIRST, slot: SLOT });
    rig.client.speak(rig.now, &[5, 0]);
    rig.run_for(Duration::from_millis(20));

    let said = messages(&rig);
    assert!(matches!(said[0], edge_message::Kind::Connected(_)), "{said:?}");
    assert!(matches!(&said[1], edge_message::Kind::ChannelOpened(o) if o.label == "oai-events"), "{said:?}");
    assert!(matches!(&said[2], edge_message::Kind::ChannelMessage(m) if m.data == b"early"), "{said:?}");
    let frames = uplink(&rig);
    assert_eq!(frames.iter().map(|f| f.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    let ages: Vec<u32> = frames.iter().map(|f| f.1).collect();
    assert!(ages.windows(2).all(|pair| pair[0] > pair[1]), "held frames say how old they are: {ages:?}");
    assert!(ages[0] >= 80 && ages[5] == 0, "{ages:?}");
}

#[test]
fn frames_of_one_receive_batch_leave_in_one_datagram() {
    let (mut rig, _) = opened("parrot");
    rig.run_for(Duration::from_millis(50));
    rig.outputs.clear();
    for tag in 0..5 {
        rig.client.speak(rig.now, &[tag, 0]);
    }
    // The client paces what it sends; the network hands all of it over at once.
    for _ in 0..20 {
        rig.now += Duration::from_millis(1);
        rig.client.tick(rig.now);
    }
    rig.settle();
    let batches = rig.outputs.iter().filter(|o| matches!(o, Output::Datagram { .. })).count();
    assert_eq!((uplink(&rig).len(), batches), (5, 1));
}

#[test]
fn the_reply_leaves_on_the_media_clock_and_its_effects_are_told() {
    let (mut rig, _) = opened("parrot");
    play(&mut rig, 1, 0..10);
    give(&mut rig, A, LinkInput::UtteranceEnd { slot: SLOT, epoch: 1, utterance: UtteranceId(1) });
    rig.run_for(Duration::from_millis(400));
    assert_eq!(heard(&rig), (0..10).collect::<Vec<_>>());
    let effects: Vec<_> = messages(&rig)
        .into_iter()
        .filter_map(|kind| match kind {
            edge_message::Kind::Playout(effect) => Some((effect.kind(), effect.utterance, effect.sent)),
            _ => None,
        })
        .collect();
    assert_eq!(effects, [(playout_effect::Kind::Started, 1, 960), (playout_effect::Kind::Finished, 1, 9600)]);
    let sounds = sounds(&rig);
    let times: Vec<_> = sounds.iter().map(|(at, _)| *at - sounds[0].0).collect();
    // The client's own jitter buffer may hold frames back, never forward.
    assert!(times[9] >= Duration::from_millis(150), "{times:?}");
    assert_eq!(rig.workers[0].gauges().utterances, 0);
}

#[test]
fn reports_carry_credit_while_an_utterance_is_open() {
    let (mut rig, _) = opened("parrot");
    play(&mut rig, 1, 0..40);
    rig.outputs.clear();
    rig.run_for(Duration::from_millis(350));
    let mut reports = vec![];
    for output in &rig.outputs {
        let Output::Datagram { batch, .. } = output else { continue };
        if let Ok(Batch::Playout { reports: batch, .. }) = parse(batch) {
            reports.extend(batch.map(Result::unwrap));
        }
    }
    assert_eq!(reports.len(), 3);
    assert!(reports.iter().all(|r| r.slot == SLOT && r.epoch == 1 && r.limit == r.sent + 48_000));
    assert!(reports.windows(2).all(|pair| pair[1].sent - pair[0].sent == 4800), "{reports:?}");
}

#[test]
fn pause_and_flush_act_at_once() {
    let (mut rig, id) = opened("parrot");
    play(&mut rig, 1, 0..20);
    rig.run_for(Duration::from_millis(90));
    say(&mut rig, id, transceiver_message::Kind::Pause(Pause {}));
    rig.run_for(Duration::from_millis(300));
    assert_eq!(heard(&rig), [0, 1, 2, 3, 4]);
    say(&mut rig, id, transceiver_message::Kind::Flush(Flush { up_to: 1, reason: "turn_detected".to_owned() }));
    rig.run_for(Duration::from_millis(300));
    assert_eq!(heard(&rig), [0, 1, 2, 3, 4]);
    let Some(edge_message::Kind::Playout(flushed)) = messages(&rig).pop() else { panic!("no effect") };
    assert_eq!((flushed.kind(), flushed.utterance, flushed.sent), (playout_effect::Kind::Flushed, 1, 5 * 960));
}

#[test]
fn frames_of_another_epoch_are_counted_and_never_heard() {
    let (mut rig, _) = opened("parrot");
    play(&mut rig, 7, 0..5);
    rig.run_for(Duration::from_millis(300));
    assert_eq!(heard(&rig), Vec::<u8>::new());
    assert_eq!(rig.workers[0].stats().stale_frames, 5);
}

#[test]
fn messages_of_the_transceiver_reach_the_channel() {
    let (mut rig, id) = opened("parrot");
    let message = ChannelMessage { channel: 1, binary: false, data: b"hello".to_vec() };
    // str0m's first in-band channel has the id that it told in ChannelOpened.
    let channel = messages(&rig).into_iter().find_map(|kind| match kind {
        edge_message::Kind::ChannelOpened(opened) => Some(opened.channel),
        _ => None,
    });
    let message = ChannelMessage { channel: channel.unwrap(), ..message };
    say(&mut rig, id, transceiver_message::Kind::ChannelMessage(message));
    rig.run_for(Duration::from_millis(50));
    assert_eq!(rig.client.messages, ["hello"]);
}

#[test]
fn a_refused_open_goes_to_the_next_transceiver_with_the_next_epoch() {
    let mut rig = Rig::new(1);
    rig.lease(&[1, 2]);
    let id = rig.connect("parrot");
    give(&mut rig, A, LinkInput::OpenFailed { session: id, epoch: Epoch::FIRST, reason: "full" });
    let asked = opens(&rig);
    assert_eq!((asked[1].0, asked[1].1.epoch), (B, 2));
    assert_eq!(released(&rig), [(A, 1)], "an Open whose answer was lost holds no seat");
    give(&mut rig, B, LinkInput::Opened { session: id, epoch: Epoch(2), slot: SLOT });
    rig.client.speak(rig.now, &[9, 0]);
    rig.run_for(Duration::from_millis(20));
    assert_eq!(uplink(&rig).last().unwrap().0, 9);
    let used: Vec<u32> = rig.shared.seats.status().iter().map(|place| place.used).collect();
    assert_eq!(used, [0, 0, 1]);
}

#[test]
fn a_call_that_no_transceiver_takes_ends_with_an_error_event() {
    let mut rig = Rig::new(1);
    rig.lease(&[1]);
    let id = rig.connect("parrot");
    let began = rig.now;
    while rig.workers[0].gauges().sessions > 0 && rig.now < began + Duration::from_secs(5) {
        let (_, request) = opens(&rig).pop().unwrap();
        give(&mut rig, A, LinkInput::OpenFailed { session: id, epoch: Epoch(request.epoch), reason: "full" });
        rig.run_for(Duration::from_millis(20));
    }
    let error: serde_json::Value = serde_json::from_str(rig.client.messages.last().unwrap()).unwrap();
    assert_eq!((error["type"].as_str(), error["error"]["code"].as_str()), (Some("error"), Some("no_capacity")));
    let at = rig.now - began;
    assert!((Duration::from_millis(500)..Duration::from_millis(1500)).contains(&at), "{at:?}");
    assert_eq!(rig.workers[0].gauges(), Gauges::default());
    assert_eq!(rig.shared.seats.used(), 0);
    let causes = CloseCause::ALL.iter().position(|c| *c == CloseCause::OpenFailed).unwrap();
    assert_eq!(rig.workers[0].stats().closed[causes], 1);
}

#[test]
fn an_open_that_answers_after_the_call_is_over_is_released() {
    let mut rig = Rig::new(1);
    rig.lease(&[1]);
    let id = rig.connect("parrot");
    let close = edge::directory::Command::Close { session: id, cause: CloseCause::HangUp };
    rig.workers[0].handle_command(rig.now, close);
    rig.settle();
    rig.outputs.clear();
    give(&mut rig, A, LinkInput::Opened { session: id, epoch: Epoch::FIRST, slot: SLOT });
    assert_eq!(released(&rig), [(A, 1)]);
}

#[test]
fn a_lost_link_ends_its_calls_and_says_so() {
    let (mut rig, _) = opened("parrot");
    give(&mut rig, A, LinkInput::LinkLost);
    rig.run_for(Duration::from_secs(1));
    let error: serde_json::Value = serde_json::from_str(rig.client.messages.last().unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "transceiver_lost");
    assert_eq!(rig.workers[0].gauges(), Gauges::default());
    assert!(released(&rig).is_empty(), "there is nobody to tell");
}

#[test]
fn a_client_whose_messages_pile_up_is_told_that_it_sends_too_fast() {
    let (mut rig, session) = opened("parrot");
    give(&mut rig, A, LinkInput::Backlog { session, epoch: Epoch::FIRST });
    rig.run_for(Duration::from_secs(1));
    let error: serde_json::Value = serde_json::from_str(rig.client.messages.last().unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "rate_limit_exceeded");
    assert_eq!(rig.workers[0].gauges(), Gauges::default());
    let cause = CloseCause::ALL.iter().position(|cause| *cause == CloseCause::Backlog).unwrap();
    assert_eq!(rig.workers[0].stats().closed[cause], 1);
}

#[test]
fn a_hang_up_tells_the_transceiver_why() {
    let (mut rig, id) = opened("parrot");
    rig.outputs.clear();
    let close = edge::directory::Command::Close { session: id, cause: CloseCause::HangUp };
    rig.workers[0].handle_command(rig.now, close);
    rig.settle();
    assert!(matches!(&messages(&rig)[..], [edge_message::Kind::Closed(closed)] if closed.reason == "hang_up"));
    assert_eq!(released(&rig), [(A, 1)]);
}

fn direct(rig: &mut Rig, epoch: u8, seq: u16) {
    let payload = [u8::try_from(seq).unwrap(), 0];
    let frame = MediaUp {
        slot: SLOT,
        epoch,
        codec: Codec::Opus,
        marker: false,
        seq,
        rtp_timestamp: u32::from(seq) * 960,
        audio_level: None,
        age_us: 0,
        payload: &payload,
    };
    give(rig, A, LinkInput::Direct(frame));
}

#[test]
fn a_frame_by_datagram_leaves_at_once_and_once_and_at_its_epoch_alone() {
    let (mut rig, _) = opened("parrot");
    rig.run_for(Duration::from_millis(200));
    let came = rig.now;
    for seq in [1, 2, 1, 3, 2] {
        direct(&mut rig, 1, seq);
    }
    let stale = rig.workers[0].stats().stale_frames;
    direct(&mut rig, 2, 4);
    assert_eq!(rig.workers[0].stats().stale_frames, stale + 1);
    rig.run_for(Duration::from_millis(100));
    assert_eq!(heard(&rig), [1, 2, 3]);
    assert!(sounds(&rig).iter().all(|(at, _)| *at <= came + Duration::from_millis(15)), "no pacer holds them");
}

#[test]
fn on_a_link_that_loses_the_frame_before_goes_again_with_the_next() {
    let (mut rig, _) = opened("parrot");
    rig.run_for(Duration::from_millis(50));
    for (tag, repeat) in [(1, true), (2, true), (3, true), (4, false), (5, false)] {
        give(&mut rig, A, LinkInput::Path { repeat });
        rig.client.speak(rig.now, &[tag, 0]);
        rig.run_for(Duration::from_millis(20));
    }
    let frames = uplink(&rig);
    assert_eq!(frames.iter().map(|f| f.0).collect::<Vec<_>>(), [1, 1, 2, 2, 3, 4, 5]);
    assert!(frames[1].1 >= 15, "what goes again says how old it is: {frames:?}");
    assert_eq!(rig.workers[0].stats().repeated, 2);
}
