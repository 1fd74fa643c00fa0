//! What a session holds at the edge, and that nothing of it stays.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall say where")]

mod common;

use std::time::Duration;

use common::crowd::{Costs, Crowd};
use edge::directory::Command;
use edge::worker::{CloseCause, Gauges, LinkInput};
use link::ids::{Epoch, Slot, TransceiverId, UtteranceId};
use link::proto::UtteranceHeader;
use net::alloc::thread;

#[global_allocator]
static ALLOCATOR: net::alloc::Counting = net::alloc::Counting;

/// Heap per connected session that echoes. Of the 40 KiB of resident memory that docs/SPECIFICATION.md promises the rest is
/// the allocator's: headers, fragments, pages that the handshake left behind. One of them is for the packets that a client's
/// feedback may speak of.
const ECHO_BYTES: i64 = 26 * 1024;

/// The same with a transceiver, and a second of speech in the playout queue; of 64 KiB of resident memory.
const FULL_BYTES: i64 = 40 * 1024;

#[test]
fn a_connected_session_holds_no_more_than_promised() {
    let mut crowd = Crowd::new(1000);
    // Tables find a size, and everything that is built once is there.
    for _ in 0..50 {
        crowd.join("echo");
    }
    for _ in 0..50 {
        crowd.speak(&[7; 100]);
    }
    crowd.costs = Costs::default();
    for _ in 0..50 {
        crowd.join("echo");
    }
    let joined = crowd.costs.live_bytes() / 50;
    for _ in 0..150 {
        crowd.speak(&[7; 100]);
    }
    let talking = crowd.costs.live_bytes() / 50;
    eprintln!("{joined} bytes when connected, {talking} after 3 s of media");
    assert!(talking <= ECHO_BYTES, "{talking} bytes per session");
}

#[test]
fn a_session_with_a_full_queue_of_speech_holds_no_more_than_promised() {
    let transceiver = TransceiverId(1);
    let mut crowd = Crowd::new(1000);
    crowd.shared.seats.hello(transceiver, vec!["parrot".to_owned()]);
    crowd.shared.seats.grant(transceiver, 1000, false);
    let mut costs = 0;
    for slot in 0..60 {
        // Tables find a size with the first ones.
        if slot == 20 {
            crowd.costs = Costs::default();
        }
        let session = crowd.join("parrot");
        let mut say = |input: LinkInput<'_>| {
            crowd.turn(|costs| &mut costs.link, |worker, now, _| worker.handle_link(now, transceiver, input));
        };
        say(LinkInput::Opened { session, epoch: Epoch::FIRST, slot: Slot(slot) });
        let item = String::new();
        say(LinkInput::UtteranceStart(UtteranceHeader {
            slot,
            epoch: Epoch::FIRST.0,
            utterance: 1,
            item,
            first_sample: 0,
        }));
        for _ in 0..50 {
            let (slot, epoch, utterance) = (Slot(slot), Epoch::FIRST.low8(), UtteranceId(1));
            say(LinkInput::UtteranceFrame { slot, epoch, utterance, samples: 960, payload: &[7; 100] });
        }
        costs = crowd.costs.live_bytes();
    }
    let each = costs / 40;
    eprintln!("{each} bytes");
    assert!(each <= FULL_BYTES, "{each} bytes per session");
}

/// `CYCLES=100000` is the long form; the short one finds what leaks a kilobyte per hundred calls.
#[test]
fn calls_that_are_over_leave_nothing_behind() {
    let cycles: u32 = std::env::var("CYCLES").map_or(400, |cycles| cycles.parse().unwrap());
    let mut crowd = Crowd::new(10);
    let mut base = 0;
    for cycle in 0..cycles {
        // Tables grow to their size in the first calls.
        if cycle == cycles / 4 {
            base = thread().live_bytes;
        }
        let session = crowd.join("echo");
        crowd.speak(&[7; 100]);
        let close = Command::Close { session, cause: CloseCause::HangUp };
        crowd.turn(|costs| &mut costs.control, |worker, now, _| worker.handle_command(now, close));
        crowd.clients.clear();
        crowd.outputs.clear();
        // Answered offers stay in the queue of expiries for the set-up timeout.
        crowd.run_for(Duration::from_secs(31));
        crowd.shared.directory.expire(crowd.now);
        assert_eq!(crowd.worker.gauges(), Gauges::default(), "after call {cycle}");
        assert_eq!((crowd.shared.directory.sessions(), crowd.shared.directory.paths()), (0, 0));
    }
    let grown = thread().live_bytes - base;
    eprintln!("{grown} bytes more after {} calls", cycles - cycles / 4);
    assert!(grown.abs() < 4096, "{grown} bytes more after {cycles} calls");
}
