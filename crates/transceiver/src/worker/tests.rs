//! A worker with calls of the `loopback` model: no codec, so that only the worker is looked at.

use std::time::{Duration, Instant};

use bytes::Bytes;
use link::ids::{Slot, UtteranceId};
use link::proto::{ChannelOpened, Closed, EdgeMessage, OpenRequest, edge_message};

use super::*;

const KEY: CallKey = CallKey(1);

fn open(worker: &mut Worker, now: Instant, key: CallKey, model: &str) {
    let request = Box::new(OpenRequest { session: key.0, epoch: 1, model: model.to_owned(), ..OpenRequest::default() });
    let slot = Slot(u32::try_from(key.0).unwrap());
    assert!(worker.handle_control(now, Control::Open { key, request, slot, seed: 1 }));
}

fn frame(key: CallKey, epoch: u8, seq: u16) -> Media {
    Media::Frame(Frame {
        key,
        slot: Slot(1),
        epoch,
        codec: link::datagram::Codec::Opus,
        marker: false,
        seq,
        rtp_timestamp: 960,
        audio_level: None,
        age_us: 0,
        // Configuration 1 (SILK, 20 ms), one frame.
        payload: Bytes::from_static(&[1 << 3, 7]),
    })
}

fn outputs(worker: &mut Worker) -> Vec<CallOutput> {
    std::iter::from_fn(|| worker.poll_output()).map(|from| from.output).collect()
}

#[test]
fn a_loopback_frame_comes_back_in_one_utterance() {
    let now = Instant::now();
    let mut worker = Worker::new(CallConfig::default(), Waker::noop().clone());
    open(&mut worker, now, KEY, "loopback");
    for seq in [1, 1, 2, 1] {
        worker.handle_media(now, frame(KEY, 1, seq)).unwrap();
    }
    assert_eq!(worker.totals().repeated, 2);
    let seen = outputs(&mut worker);
    assert_eq!(seen.len(), 3);
    assert!(matches!(&seen[0], CallOutput::UtteranceStart(header) if header.utterance == 1 && header.slot == 1));
    let frame = CallOutput::UtteranceFrame { utterance: UtteranceId(1), samples: 960, payload: vec![1 << 3, 7] };
    assert_eq!(seen[1..], [frame.clone(), frame]);
}

#[test]
fn frames_of_another_epoch_or_of_no_call_are_counted() {
    let now = Instant::now();
    let mut worker = Worker::new(CallConfig::default(), Waker::noop().clone());
    assert!(worker.handle_media(now, frame(KEY, 1, 1)).is_err());
    worker.drop_media();
    open(&mut worker, now, KEY, "loopback");
    worker.handle_media(now, frame(KEY, 2, 1)).unwrap();
    assert!(outputs(&mut worker).is_empty());
    assert_eq!(worker.totals(), Totals { calls: 1, stale: 2, ..Totals::default() });
}

#[test]
fn a_closed_client_ends_the_call_and_leaves_nothing() {
    let now = Instant::now();
    let mut worker = Worker::new(CallConfig::default(), Waker::noop().clone());
    open(&mut worker, now, KEY, "parrot");
    let message = EdgeMessage { kind: Some(edge_message::Kind::Closed(Closed { reason: "gone".to_owned() })) };
    worker.handle_control(now, Control::Message { key: KEY, message });
    assert_eq!(outputs(&mut worker).last(), Some(&CallOutput::Ended));
    assert_eq!(worker.totals().calls, 0);
    assert_eq!(worker.poll_timeout(), None);
}

#[test]
fn a_stop_forgets_every_call() {
    let now = Instant::now();
    let mut worker = Worker::new(CallConfig::default(), Waker::noop().clone());
    open(&mut worker, now, KEY, "parrot");
    open(&mut worker, now, CallKey(2), "loopback");
    assert!(!worker.handle_control(now, Control::Stop));
    assert_eq!(worker.totals().calls, 0);
    assert_eq!(worker.poll_timeout(), None);
}

#[test]
fn deadlines_run_out_without_a_spin() {
    let mut now = Instant::now();
    let mut worker = Worker::new(CallConfig::default(), Waker::noop().clone());
    open(&mut worker, now, KEY, "parrot");
    let message = EdgeMessage {
        kind: Some(edge_message::Kind::ChannelOpened(ChannelOpened { channel: 1, label: "oai-events".to_owned() })),
    };
    worker.handle_control(now, Control::Message { key: KEY, message });
    assert_eq!(outputs(&mut worker).len(), 2, "what the reflex may do, and session.created");
    let mut rounds = 0;
    while let Some(due) = worker.poll_timeout().filter(|_| rounds < 1000) {
        now = due.max(now);
        while worker.handle_due(now) {
            rounds += 1;
            assert!(rounds <= 1000, "a call that nobody speaks in must not be due over and over");
        }
        now += Duration::from_millis(1);
    }
}
