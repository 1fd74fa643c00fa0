//! Session and utterance streams: both ways, to their end, and past peers that do not behave.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use bytes::Bytes;
use link::proto::{
    ChannelMessage, Closed, EdgeMessage, Flush, SessionHeader, TransceiverMessage, UtteranceFrame, UtteranceHeader,
    edge_message, transceiver_message,
};
use link::quic::{Incoming, LinkLost, MAX_SESSION_MESSAGE_BYTES, StreamError, UtteranceEnd, UtteranceRx};

mod support;
use support::{Pair, soon};

const HEADER: SessionHeader = SessionHeader { session: 0xfeed, epoch: 1, slot: 5, attach: false, tenant: 0 };

fn channel_message(bytes: usize) -> EdgeMessage {
    let message = ChannelMessage { channel: 1, binary: true, data: vec![7; bytes] };
    EdgeMessage { kind: Some(edge_message::Kind::ChannelMessage(message)) }
}

fn flush(up_to: u32) -> TransceiverMessage {
    TransceiverMessage { kind: Some(transceiver_message::Kind::Flush(Flush { up_to, reason: "barge-in".into() })) }
}

fn utterance(utterance: u32) -> UtteranceHeader {
    UtteranceHeader { slot: 5, epoch: 1, utterance, item: "item_1".into(), first_sample: 960 }
}

fn frame(n: u32) -> UtteranceFrame {
    UtteranceFrame { samples: 960, payload: Bytes::from(n.to_be_bytes().repeat(30)) }
}

async fn accept_utterance(pair: &Pair) -> (UtteranceHeader, UtteranceRx) {
    match soon("the utterance", pair.edge.accept()).await.unwrap() {
        Incoming::Utterance(header, frames) => (header, frames),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_session_stream_carries_messages_of_any_allowed_size_both_ways_and_ends_in_order() {
    let pair = Pair::new().await;
    let (mut edge_tx, mut edge_rx) = pair.edge.open_session(&HEADER).await.unwrap();
    let Incoming::Session(header, mut tx, mut rx) = soon("the session", pair.transceiver.accept()).await.unwrap()
    else {
        panic!("not a session");
    };
    assert_eq!(header, HEADER);

    let sizes = [0, 1, 100, 64 * 1024, MAX_SESSION_MESSAGE_BYTES - 64];
    let sending = async {
        for size in sizes {
            edge_tx.send(&channel_message(size)).await.unwrap();
        }
        let closed = EdgeMessage { kind: Some(edge_message::Kind::Closed(Closed { reason: "hangup".into() })) };
        edge_tx.send(&closed).await.unwrap();
        edge_tx.finish();
    };
    let receiving = async {
        for size in sizes {
            assert_eq!(rx.recv().await, Ok(Some(channel_message(size))));
        }
        assert!(matches!(rx.recv().await, Ok(Some(EdgeMessage { kind: Some(edge_message::Kind::Closed(_)) }))));
        assert_eq!(rx.recv().await, Ok(None));
        assert_eq!(rx.recv().await, Ok(None), "the end stays the end");
    };
    soon("the messages", async { tokio::join!(sending, receiving) }).await;

    tx.send(&flush(3)).await.unwrap();
    assert_eq!(soon("Flush", edge_rx.recv()).await, Ok(Some(flush(3))));
    tx.reset();
    assert!(matches!(soon("the reset", edge_rx.recv()).await, Err(StreamError::Reset(0))));
}

#[tokio::test]
async fn a_message_beyond_the_bound_is_not_sent_and_the_stream_lives_on() {
    let pair = Pair::new().await;
    let (mut edge_tx, _edge_rx) = pair.edge.open_session(&HEADER).await.unwrap();
    let Incoming::Session(_, _tx, mut rx) = soon("the session", pair.transceiver.accept()).await.unwrap() else {
        panic!("not a session");
    };
    let error = edge_tx.send(&channel_message(MAX_SESSION_MESSAGE_BYTES)).await.unwrap_err();
    assert!(matches!(error, StreamError::Oversize { limit: MAX_SESSION_MESSAGE_BYTES, .. }), "{error}");
    edge_tx.send(&channel_message(3)).await.unwrap();
    assert_eq!(soon("the next message", rx.recv()).await, Ok(Some(channel_message(3))));
}

#[tokio::test]
async fn an_unread_session_stalls_its_sender_and_nothing_of_it_is_lost() {
    let pair = Pair::new().await;
    let (mut edge_tx, _edge_rx) = pair.edge.open_session(&HEADER).await.unwrap();
    let Incoming::Session(_, _tx, mut rx) = soon("the session", pair.transceiver.accept()).await.unwrap() else {
        panic!("not a session");
    };
    // Sends are dropped half-way, as a `select!` drops them.
    let mut sent = 0;
    for size in 1..=40 {
        let message = channel_message(size * 1000);
        let send = edge_tx.send(&message);
        let dropped = tokio::time::timeout(std::time::Duration::from_millis(5), send).await.is_err();
        sent = size;
        if dropped {
            break;
        }
    }
    assert!(sent < 40, "820 kB went into an unread stream of 64 KiB");
    let receiving = async {
        for size in 1..=sent {
            assert_eq!(rx.recv().await, Ok(Some(channel_message(size * 1000))), "size {size}");
        }
        assert_eq!(rx.recv().await, Ok(Some(channel_message(9))));
    };
    let sending = async { edge_tx.send(&channel_message(9)).await.unwrap() };
    soon("all messages", async { tokio::join!(receiving, sending) }).await;
}

#[tokio::test]
async fn an_utterance_brings_its_frames_in_order_and_its_end() {
    let pair = Pair::new().await;
    let mut tx = pair.transceiver.open_utterance(&utterance(1)).await.unwrap();
    let sending = async {
        for n in 0..500 {
            tx.send(&frame(n)).await.unwrap();
        }
        tx.finish();
    };
    let receiving = async {
        let (header, mut rx) = accept_utterance(&pair).await;
        assert_eq!(header, utterance(1));
        for n in 0..500 {
            assert_eq!(rx.recv().await, Some(frame(n)));
        }
        assert_eq!((rx.recv().await, rx.end()), (None, Some(&UtteranceEnd::Finished)));
    };
    soon("the frames", async { tokio::join!(sending, receiving) }).await;
}

#[tokio::test]
async fn a_reset_utterance_ends_at_once_and_broken() {
    let pair = Pair::new().await;
    let mut tx = pair.transceiver.open_utterance(&utterance(1)).await.unwrap();
    tx.send(&frame(0)).await.unwrap();
    let (_, mut rx) = accept_utterance(&pair).await;
    assert_eq!(rx.recv().await, Some(frame(0)));
    tx.reset();
    assert_eq!(soon("the end", rx.recv()).await, None);
    assert_eq!(rx.end(), Some(&UtteranceEnd::Broken(StreamError::Reset(0))));
}

#[tokio::test]
async fn a_reader_that_gives_up_stops_its_sender() {
    let pair = Pair::new().await;
    let mut tx = pair.transceiver.open_utterance(&utterance(1)).await.unwrap();
    drop(accept_utterance(&pair).await);
    let stopped = soon("the stop", async {
        loop {
            if let Err(error) = tx.send(&frame(0)).await {
                return error;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(stopped, StreamError::Stopped(0));
}

#[tokio::test]
async fn utterances_are_accepted_in_the_order_of_their_opening() {
    let pair = Pair::new().await;
    let mut open = Vec::new();
    for n in 1..=200 {
        open.push(pair.transceiver.open_utterance(&utterance(n)).await.unwrap());
    }
    for n in 1..=200 {
        assert_eq!(accept_utterance(&pair).await.0.utterance, n);
    }
}

#[tokio::test]
async fn two_thousand_streams_are_open_at_once() {
    let pair = Pair::new().await;
    let mut open = Vec::new();
    for n in 1..=2048 {
        open.push(soon("a stream", pair.transceiver.open_utterance(&utterance(n))).await.unwrap());
    }
}

#[tokio::test]
async fn streams_end_with_the_link() {
    let pair = Pair::new().await;
    let (mut edge_tx, mut edge_rx) = pair.edge.open_session(&HEADER).await.unwrap();
    let mut tx = pair.transceiver.open_utterance(&utterance(1)).await.unwrap();
    let (_, mut rx) = accept_utterance(&pair).await;
    let Pair { edge, transceiver, .. } = pair;
    drop(edge);
    let closed = LinkLost::ClosedByPeer { reason: "dropped".into() };
    assert_eq!(soon("the end", transceiver.closed()).await, closed);
    assert_eq!(soon("accept", transceiver.accept()).await.unwrap_err(), closed);
    assert_eq!(tx.send(&frame(0)).await, Err(StreamError::Lost(closed)));
    assert_eq!(edge_rx.recv().await, Err(StreamError::Lost(LinkLost::ClosedHere)));
    assert_eq!(edge_tx.send(&channel_message(1)).await, Err(StreamError::Lost(LinkLost::ClosedHere)));
    assert_eq!(rx.recv().await, None);
    assert_eq!(rx.end(), Some(&UtteranceEnd::Broken(StreamError::Lost(LinkLost::ClosedHere))));
}
