//! Media datagrams over the link: they arrive, and a flood of them costs the oldest and no memory.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use bytes::Bytes;
use link::datagram::{Batch, BatchWriter, Codec, MAX_BATCH_BYTES, MediaUp, parse};
use link::ids::Slot;

mod support;
use support::{Pair, soon};

fn batch(seq: u16, bytes: usize) -> Bytes {
    let payload = vec![3; bytes];
    let mut writer = BatchWriter::media_up();
    let pushed = writer.push_frame(&MediaUp {
        slot: Slot(5),
        epoch: 1,
        codec: Codec::Opus,
        marker: false,
        seq,
        rtp_timestamp: 0,
        audio_level: None,
        age_us: 0,
        payload: &payload,
    });
    assert!(pushed);
    writer.take(0)
}

fn seq(batch: &[u8]) -> u16 {
    match parse(batch) {
        Ok(Batch::MediaUp { mut frames, .. }) => frames.next().unwrap().unwrap().seq,
        other => panic!("{other:?}"),
    }
}

/// What the transceiver reads, up to the newest.
async fn read_to(pair: &Pair, newest: u16) -> Vec<u16> {
    let mut received = Vec::new();
    while received.last() != Some(&newest) {
        received.push(seq(&soon("the newest", pair.transceiver.read_datagram()).await.unwrap()));
    }
    received
}

#[tokio::test]
async fn datagrams_cross_both_ways_and_the_largest_batch_fits_from_the_start() {
    let pair = Pair::new().await;
    let largest = batch(1, MAX_BATCH_BYTES - 18);
    assert_eq!(largest.len(), MAX_BATCH_BYTES);
    pair.edge.send_datagram(largest.clone());
    assert_eq!(soon("uplink", pair.transceiver.read_datagram()).await.unwrap(), largest);
    pair.transceiver.send_datagram(batch(2, 10));
    assert_eq!(seq(&soon("downlink", pair.edge.read_datagram()).await.unwrap()), 2);
    assert_eq!(pair.edge.stats().datagrams_refused, 0);
}

#[tokio::test]
async fn a_flood_drops_the_oldest_and_holds_no_more_than_the_queue() {
    let pair = Pair::new().await;
    // One turn of a loop that never yields: 4000 x 1 kB = 4 MB into a queue of 64 KiB.
    for n in 0..4000 {
        pair.edge.send_datagram(batch(n, 1000));
    }
    let crowded = pair.edge.stats().datagrams_crowded;
    assert!(crowded >= 3900, "{crowded} of 4000 found no room");
    let received = read_to(&pair, 3999).await;
    assert!(received.len() <= 65, "{} datagrams of a queue of 64 KiB", received.len());
    assert!(received.iter().all(|seq| *seq >= 3930), "the oldest gave way: {received:?}");
}

#[tokio::test]
async fn a_reader_that_sleeps_finds_the_newest() {
    let pair = Pair::new().await;
    for n in 0..2000 {
        pair.edge.send_datagram(batch(n, 1000));
        if n % 20 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    // Heartbeats are datagrams too, so a few more leave than these.
    let all_came = || {
        let (edge, transceiver) = (pair.edge.stats(), pair.transceiver.stats());
        let left = edge.datagrams_sent + edge.datagrams_crowded + edge.datagrams_late;
        let came = transceiver.datagrams_received + edge.packets_lost >= edge.datagrams_sent;
        (came && left >= 2000).then_some(edge.datagrams_sent)
    };
    soon("the last datagram", async {
        let mut before = None;
        while before.is_none() || before != all_came() {
            before = all_came();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let received = read_to(&pair, 1999).await;
    assert!(received.len() <= 277, "{} datagrams of a queue of 276 KiB", received.len());
}

#[tokio::test]
async fn a_datagram_that_no_path_takes_and_one_after_the_end_are_counted() {
    let pair = Pair::new().await;
    pair.edge.send_datagram(Bytes::from(vec![0; 60_000]));
    assert_eq!(pair.edge.stats().datagrams_refused, 1);
    pair.edge.close("over");
    pair.edge.send_datagram(batch(1, 1));
    assert_eq!(pair.edge.stats().datagrams_refused, 2);
}
