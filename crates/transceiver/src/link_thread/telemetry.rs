//! Plain counts of the link thread and the workers, as metrics.

use std::time::Instant;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};

use super::hub::Hub;
use crate::admission::Refusal;

/// Why calls end here ([`Hub::end_call`]).
const ENDS: [&str; 8] = [
    "ended",
    "released",
    "link lost",
    "session stream ended",
    "session stream lost",
    "opened again",
    "no session stream",
    "the edge does not read",
];

/// Describes all metrics, once, when the first values are published.
#[derive(Debug, Default)]
pub(super) struct Published {
    described: bool,
}

impl Published {
    pub(super) fn publish(&mut self, hub: &Hub) {
        if !std::mem::replace(&mut self.described, true) {
            describe();
        }
        let (slots, quarantined) = hub.slots(Instant::now());
        let workers = || hub.workers().iter().map(|worker| worker.borrow());
        let sum = |which: fn(&crate::ring::WorkerCounts) -> &std::sync::atomic::AtomicU64| -> u64 {
            workers().map(|worker| worker.read(which)).sum()
        };
        gauge!("fronthaul_transceiver_calls").set(float(sum(|counts| &counts.calls)));
        gauge!("fronthaul_transceiver_links").set(size(hub.links()));
        let [congested, closing, repeating] = hub.paths();
        for (state, links) in [("congested", congested), ("closing", closing), ("repeating", repeating)] {
            gauge!("fronthaul_transceiver_links_impaired", "state" => state).set(size(links));
        }
        gauge!("fronthaul_transceiver_slots").set(size(slots));
        gauge!("fronthaul_transceiver_slots_quarantined").set(size(quarantined));
        gauge!("fronthaul_transceiver_seats_used").set(size(hub.calls()));
        gauge!("fronthaul_transceiver_seats_leased").set(f64::from(hub.seats_leased()));
        gauge!("fronthaul_transceiver_session_streams").set(float(hub.sending.session_streams()));
        gauge!("fronthaul_transceiver_utterance_streams").set(float(hub.sending.utterance_streams()));
        for refusal in Refusal::ALL {
            let refused = hub.counts.refused.get(refusal.label()).copied().unwrap_or(0);
            counter!("fronthaul_transceiver_open_refused_total", "reason" => refusal.label()).absolute(refused);
        }
        for reason in ENDS {
            let ended = hub.counts.ended.get(reason).copied().unwrap_or(0);
            counter!("fronthaul_transceiver_calls_ended_total", "reason" => reason.replace(' ', "_")).absolute(ended);
        }
        counter!("fronthaul_transceiver_media_received_total").absolute(sum(|counts| &counts.media));
        for (reason, discarded) in [
            ("stale", sum(|counts| &counts.stale)),
            ("ignored", sum(|counts| &counts.ignored)),
            ("ring_full", workers().map(|worker| worker.dropped()).sum()),
            ("repeated", sum(|counts| &counts.repeated)),
            ("stray_frame", hub.counts.stray_frames),
            ("stray_stream", hub.counts.stray_streams),
            ("bad_datagram", hub.counts.bad_datagrams),
            ("audio_blocked", hub.counts.audio_dropped),
            ("messages_blocked", hub.counts.blocked),
        ] {
            counter!("fronthaul_transceiver_discards_total", "reason" => reason).absolute(discarded);
        }
        let mut streams = [0_u64; 8];
        for worker in workers() {
            for (at, sum) in streams.iter_mut().enumerate() {
                *sum += worker.read(|counts| &counts.stream[at]);
            }
        }
        publish_streams(streams);
    }
}

/// Of clients whose audio travels in events: [`voice::StreamStats::values`].
fn publish_streams([input, reply, refused, manual, orphans, clips, interruptions, interrupted_us]: [u64; 8]) {
    for (kind, samples) in [("input", input), ("manual_turn", manual), ("reply", reply)] {
        counter!("fronthaul_transceiver_stream_dropped_ms_total", "kind" => kind).absolute(samples / 48);
    }
    for (reason, pieces) in [("refused", refused), ("orphan", orphans), ("clip", clips)] {
        counter!("fronthaul_transceiver_stream_discards_total", "reason" => reason).absolute(pieces);
    }
    counter!("fronthaul_transceiver_stream_interruptions_total").absolute(interruptions);
    counter!("fronthaul_transceiver_stream_interrupted_ms_total").absolute(interrupted_us / 1000);
}

fn describe() {
    describe_gauge!("fronthaul_transceiver_calls", "Calls that workers own");
    describe_gauge!("fronthaul_transceiver_links", "Links to edges: of their workers, leases and WebSockets");
    describe_gauge!("fronthaul_transceiver_links_impaired", "Links whose path is not as it should be, by state");
    describe_gauge!("fronthaul_transceiver_slots", "Slots that name a call, over all links");
    describe_gauge!("fronthaul_transceiver_slots_quarantined", "Slots that rest before they name another call");
    describe_gauge!("fronthaul_transceiver_seats_used", "Calls that hold a seat");
    describe_gauge!("fronthaul_transceiver_seats_leased", "Seats granted to edges that hold a lease");
    describe_gauge!("fronthaul_transceiver_session_streams", "Session streams open to edges");
    describe_gauge!("fronthaul_transceiver_utterance_streams", "Utterance streams open to edges");
    describe_counter!("fronthaul_transceiver_open_refused_total", "Calls not taken, by reason");
    describe_counter!("fronthaul_transceiver_media_received_total", "Audio frames of users handled");
    describe_counter!("fronthaul_transceiver_odd_audio_total", "Audio that cannot be what it is said to be, by kind");
    describe_counter!("fronthaul_transceiver_calls_ended_total", "Calls that are over, by reason");
    describe_counter!("fronthaul_transceiver_discards_total", "Frames, messages and streams dropped, by reason");
    describe_counter!(
        "fronthaul_transceiver_stream_dropped_ms_total",
        "Audio of WebSocket sessions without room, by kind"
    );
    describe_counter!(
        "fronthaul_transceiver_stream_discards_total",
        "What backends of WebSocket sessions gave and nobody got, by reason"
    );
    describe_counter!(
        "fronthaul_transceiver_stream_interruptions_total",
        "Times that a client of a WebSocket had nothing to play of a reply that went on"
    );
    describe_counter!("fronthaul_transceiver_stream_interrupted_ms_total", "How long that was, in all");
    describe_counter!(
        "fronthaul_backend_lost_total",
        "Streams to backends that broke or could not be had, by model and reason"
    );
    describe_counter!(
        "fronthaul_backend_odd_outputs_total",
        "Outputs of backends that make no sense, by model and what"
    );
    describe_counter!("fronthaul_backend_orphans_total", "Outputs of responses that were cancelled or lost");
    describe_counter!(
        "fronthaul_backend_audio_dropped_total",
        "Frames of users' audio that backends were too slow for, by place"
    );
    describe_histogram!(
        "fronthaul_backend_ready_seconds",
        metrics::Unit::Seconds,
        "From the opening of a stream to a backend to its word that it is ready, by model"
    );
    describe_histogram!(
        "fronthaul_transceiver_first_delta_seconds",
        metrics::Unit::Seconds,
        "From the request for a response to the first delta of it, over WebSocket"
    );
    describe_histogram!(
        "fronthaul_turn_seconds",
        metrics::Unit::Seconds,
        "From the user's last voiced frame to the reply's first packet at the edge, by part; the parts sum to total"
    );
}

fn float(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
    let float = count as f64;
    float
}

fn size(count: usize) -> f64 {
    float(u64::try_from(count).unwrap_or(u64::MAX))
}
