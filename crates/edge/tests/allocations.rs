//! What a worker allocates for media: nothing where the edge echoes, a known fraction where a transceiver listens.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall say where")]

mod common;

use std::time::Duration;

use common::crowd::{Costs, Crowd};
use edge::worker::{LinkInput, Output};
use link::ids::{Epoch, SessionId, Slot, TransceiverId, UtteranceId};
use link::proto::UtteranceHeader;
use net::alloc::thread;
use rtc::SrtpProfile;
use rtc::exposed::contexts;

#[global_allocator]
static ALLOCATOR: net::alloc::Counting = net::alloc::Counting;

const CLIENTS: u32 = 20;
const TRANSCEIVER: TransceiverId = TransceiverId(1);

/// Two seconds before the measured ones: tables, queues and the first reports find their size.
const WARM_UP: u64 = 100;
const FRAMES: u64 = 250;
const MEDIA: u64 = FRAMES * CLIENTS as u64;

#[test]
fn echoed_media_allocates_nothing() {
    let mut crowd = Crowd::new(100);
    for _ in 0..CLIENTS {
        crowd.join("echo");
    }
    let costs = talk(&mut crowd, |_, _| ());
    assert_eq!((costs.media.inputs, costs.media.allocations), (MEDIA, 0), "{costs:?}");
    // Checks, reports and their deadlines: heartbeats of SCTP alone are left.
    let rest = costs.control.allocations + costs.timeouts.allocations;
    eprintln!("{rest} allocations beside {MEDIA} frames");
    assert!(rest * 200 <= MEDIA, "{costs:?}");
}

/// The worker's road is the same for every profile, but for this.
#[test]
fn each_srtp_profile_seals_and_opens_without_allocating() {
    let profiles = [
        (SrtpProfile::AeadAes256Gcm, 2 * (32 + 12)),
        (SrtpProfile::AeadAes128Gcm, 2 * (16 + 12)),
        (SrtpProfile::Aes128CmSha1_80, 2 * (16 + 14)),
    ];
    for (profile, material) in profiles {
        let material: Vec<u8> = (0..material).collect();
        let (mut sender, _) = contexts(profile, &material, true).unwrap();
        let (_, mut receiver) = contexts(profile, &material, false).unwrap();
        let mut packet = Vec::with_capacity(200);
        let mut allocations = 0;
        for seq in 0..200_u16 {
            packet.clear();
            packet.extend_from_slice(&[0x80, 111]);
            packet.extend_from_slice(&seq.to_be_bytes());
            packet.extend_from_slice(&[0; 8]);
            packet.extend_from_slice(&[7; 100]);
            let before = thread();
            sender.seal_rtp(&mut packet);
            let opened = receiver.open_rtp(&mut packet);
            if seq > 0 {
                allocations += (thread() - before).allocations;
            }
            assert_eq!(opened, Ok(112));
        }
        assert_eq!(allocations, 0, "{profile:?}");
    }
}

/// A block of 32 KiB serves 28 batches or more; in the worst case a batch carries one frame.
#[test]
fn media_to_a_link_that_is_behind_costs_an_allocation_in_28_batches() {
    let mut crowd = with_transceiver();
    let costs = talk(&mut crowd, |_, _| ());
    assert_eq!((costs.media.inputs, costs.batches), (MEDIA, MEDIA), "one frame in each batch: {costs:?}");
    // A block and the count of who uses it.
    assert!(costs.media.allocations * 28 <= 2 * costs.batches, "{costs:?}");
}

#[test]
fn speech_from_a_transceiver_allocates_nothing_once_its_queue_has_its_size() {
    let mut crowd = with_transceiver();
    let ahead = 40;
    let costs = talk(&mut crowd, |crowd, frame| {
        for slot in 0..CLIENTS {
            if frame == 0 {
                say(crowd, LinkInput::UtteranceStart(header(slot)));
                for _ in 0..ahead {
                    say(crowd, speech(slot));
                }
            }
            say(crowd, speech(slot));
        }
    });
    assert_eq!((costs.link.inputs, costs.link.allocations), (MEDIA, 0), "{costs:?}");
    let heard: usize = crowd.clients.iter().map(|client| client.heard.len()).sum();
    assert!(heard as u64 > MEDIA, "{heard} frames were heard");
    // Deadlines send frames, reports to the client and, in batches, reports to the transceiver.
    assert!(costs.timeouts.allocations * 10 <= MEDIA, "{costs:?}");
}

fn header(slot: u32) -> UtteranceHeader {
    UtteranceHeader { slot, epoch: Epoch::FIRST.0, utterance: 1, item: String::new(), first_sample: 0 }
}

fn speech<'a>(slot: u32) -> LinkInput<'a> {
    let (slot, epoch, utterance) = (Slot(slot), Epoch::FIRST.low8(), UtteranceId(1));
    LinkInput::UtteranceFrame { slot, epoch, utterance, samples: 960, payload: &[7; 100] }
}

fn say(crowd: &mut Crowd, input: LinkInput<'_>) {
    crowd.turn(|costs| &mut costs.link, |worker, now, _| worker.handle_link(now, TRANSCEIVER, input));
}

fn with_transceiver() -> Crowd {
    let mut crowd = Crowd::new(100);
    crowd.shared.seats.hello(TRANSCEIVER, vec!["parrot".to_owned()]);
    crowd.shared.seats.grant(TRANSCEIVER, 100, false);
    for slot in 0..CLIENTS {
        let session = crowd.join("parrot");
        open(&mut crowd, session, Slot(slot));
    }
    crowd
}

/// Everybody speaks; `also` happens before each frame. The costs after the warm-up.
fn talk(crowd: &mut Crowd, mut also: impl FnMut(&mut Crowd, u64)) -> Costs {
    for frame in 0..WARM_UP + FRAMES {
        if frame == WARM_UP {
            crowd.costs = Costs::default();
        }
        also(crowd, frame);
        crowd.speak(&[7; 100]);
    }
    crowd.costs
}

fn open(crowd: &mut Crowd, session: SessionId, slot: Slot) {
    let asked = |output: &Output| matches!(output, Output::Open { request, .. } if request.session == session.0);
    assert!(crowd.outputs.iter().any(asked));
    say(crowd, LinkInput::Opened { session, epoch: Epoch::FIRST, slot });
    crowd.run_for(Duration::from_millis(50));
}
