//! What workers count, gathered for `/metrics`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{counter, gauge};

use crate::directory::Pop;
use crate::signaling::Shared;
use crate::worker::{CloseCause, Discard, Gauges, Stats};

/// One worker at one instant.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Snapshot {
    pub(super) stats: Stats,
    pub(super) gauges: Gauges,
    pub(super) session_streams: u32,
    pub(super) utterance_streams: u32,
    /// Links that are up.
    pub(super) links: u32,
    /// And how their paths are.
    pub(super) paths: Paths,
    /// Datagrams that did not leave.
    pub(super) sends_dropped: u64,
    /// Allocations of the worker's thread, where the binary counts them.
    pub(super) allocations: u64,
}

/// Links by what their paths ask for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Paths {
    pub(super) congested: u32,
    pub(super) closing: u32,
    pub(super) repeating: u32,
}

/// The newest snapshot of each worker.
pub(super) struct Board {
    workers: Vec<Mutex<Snapshot>>,
}

impl Board {
    pub(super) fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self { workers: (0..workers).map(|_| Mutex::default()).collect() })
    }

    pub(super) fn put(&self, worker: u32, snapshot: Snapshot) {
        if let Some(place) = usize::try_from(worker).ok().and_then(|worker| self.workers.get(worker)) {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
        }
    }

    /// Whether every worker has a link to some transceiver.
    pub(super) fn linked(&self) -> bool {
        self.snapshots().all(|snapshot| snapshot.links > 0)
    }

    /// Writes everything into the metrics of the process.
    pub(super) fn publish(&self, shared: &Shared) {
        let mut sums = Sums::default();
        self.snapshots().for_each(|snapshot| sums.add(&snapshot));
        gauge!("fronthaul_edge_sessions").set(sums.sessions);
        gauge!("fronthaul_edge_pending_sessions").set(float(shared.directory.pending()));
        gauge!("fronthaul_edge_paths").set(sums.paths);
        gauge!("fronthaul_edge_utterances").set(sums.utterances);
        gauge!("fronthaul_edge_utterance_streams").set(sums.utterance_streams);
        gauge!("fronthaul_edge_session_streams").set(sums.session_streams);
        let age = net::clock::unix_seconds().saturating_sub(shared.keys.signing_made());
        gauge!("fronthaul_edge_key_age_seconds").set(f64::from(age));
        for (state, links) in [("congested", sums.congested), ("closing", sums.closing), ("repeating", sums.repeating)]
        {
            gauge!("fronthaul_edge_links", "state" => state).set(links);
        }
        gauge!("fronthaul_edge_links", "state" => "up").set(sums.links);
        gauge!("fronthaul_edge_seats_used").set(f64::from(shared.seats.used()));
        for place in shared.seats.status() {
            let transceiver = place.transceiver.0.to_string();
            gauge!("fronthaul_edge_seats_leased", "transceiver" => transceiver).set(f64::from(place.granted));
        }
        for (discard, count) in Discard::all().zip(sums.stats.discards.0) {
            counter!("fronthaul_edge_discards_total", "reason" => discard.label()).absolute(count);
        }
        for (cause, count) in CloseCause::ALL.into_iter().zip(sums.stats.closed) {
            counter!("fronthaul_edge_sessions_closed_total", "reason" => cause.label()).absolute(count);
        }
        counter!("fronthaul_edge_sessions_closed_total", "reason" => "never_claimed")
            .absolute(shared.directory.expired());
        counter!("fronthaul_edge_unreached_calls_total").absolute(shared.directory.never_reached());
        let counts = &shared.counts;
        for (result, count) in [
            ("created", &counts.created),
            ("refused", &counts.refused),
            ("no_seat", &counts.no_seat),
            ("limited", &counts.limited),
            ("forbidden", &counts.forbidden),
            ("draining", &counts.draining),
        ] {
            counter!("fronthaul_edge_calls_total", "result" => result).absolute(count.load(Ordering::Relaxed));
        }
        let websockets = &shared.websockets;
        gauge!("fronthaul_edge_websockets").set(float(websockets.places.taken() as u64));
        gauge!("fronthaul_edge_websocket_queued_bytes").set(float(websockets.queued()));
        let [events, bytes] = websockets.dropped();
        counter!("fronthaul_edge_websocket_unread_events_total").absolute(events);
        counter!("fronthaul_edge_websocket_unread_bytes_total").absolute(bytes);
        for (reason, count) in ["too_large", "broken"].into_iter().zip(websockets.refused()) {
            counter!("fronthaul_edge_websocket_inflate_refused_total", "reason" => reason).absolute(count);
        }
        for (reason, count) in websockets.closed() {
            counter!("fronthaul_edge_websockets_closed_total", "reason" => reason.label()).absolute(count);
        }
        counter!("fronthaul_edge_unauthorized_total").absolute(counts.unauthorized.load(Ordering::Relaxed));
        counter!("fronthaul_edge_client_secrets_total").absolute(counts.secrets.load(Ordering::Relaxed));
        gauge!("fronthaul_edge_limited_subjects").set(shared.auth.running.subjects() as f64);
        for (result, count) in [
            ("renegotiated", &counts.renegotiated),
            ("restarted", &counts.restarted),
            ("refused", &counts.change_refused),
        ] {
            counter!("fronthaul_edge_changes_total", "result" => result).absolute(count.load(Ordering::Relaxed));
        }
        for (cause, count) in [("absent", &counts.model_absent), ("unmapped", &counts.model_unmapped)] {
            counter!("fronthaul_edge_default_model_total", "cause" => cause).absolute(count.load(Ordering::Relaxed));
        }
        for (result, count) in [("answered", &counts.snap_answered), ("unusable", &counts.snap_unusable)] {
            counter!("fronthaul_edge_snap_total", "result" => result).absolute(count.load(Ordering::Relaxed));
        }
        counter!("fronthaul_edge_snap_total", "result" => "claimed").absolute(sums.stats.snap);
        if let Some(tickets) = shared.directory.tickets() {
            for (result, count) in [
                ("issued", &tickets.issued),
                ("by_check", &tickets.by_check),
                ("by_post", &tickets.by_post),
                ("standing", &tickets.standing),
                ("refused", &tickets.refused),
            ] {
                counter!("fronthaul_edge_tickets_total", "result" => result).absolute(count.load(Ordering::Relaxed));
            }
            let (used, config_bytes) = tickets.held();
            gauge!("fronthaul_edge_tickets_remembered").set(float(u64::try_from(used).unwrap_or(u64::MAX)));
            gauge!("fronthaul_edge_ticket_config_bytes").set(float(u64::try_from(config_bytes).unwrap_or(u64::MAX)));
        }
        let stats = &sums.stats;
        counter!("fronthaul_edge_sessions_claimed_total").absolute(stats.claimed);
        counter!("fronthaul_edge_handshakes_total", "kind" => "sped").absolute(stats.handshakes_sped);
        counter!("fronthaul_edge_handshakes_total", "kind" => "plain").absolute(stats.handshakes_plain);
        counter!("fronthaul_edge_handovers_total").absolute(stats.handed_over);
        counter!("fronthaul_edge_handovers_dropped_total").absolute(shared.directory.overflowed());
        counter!("fronthaul_edge_media_received_total").absolute(stats.media_received);
        counter!("fronthaul_edge_media_sent_total").absolute(stats.media_sent);
        counter!("fronthaul_edge_media_duplicated_total").absolute(stats.media_duplicated);
        counter!("fronthaul_edge_underruns_total").absolute(stats.underruns);
        counter!("fronthaul_edge_stale_frames_total").absolute(stats.stale_frames);
        counter!("fronthaul_edge_refused_frames_total").absolute(stats.refused_frames);
        counter!("fronthaul_edge_skipped_slots_total").absolute(stats.skipped_slots);
        counter!("fronthaul_edge_replayed_frames_total").absolute(stats.replayed_frames);
        counter!("fronthaul_edge_clip_frames_total").absolute(stats.clip_frames);
        counter!("fronthaul_edge_clips_dropped_total").absolute(stats.clips_dropped);
        counter!("fronthaul_edge_feedback_total").absolute(stats.feedback);
        counter!("fronthaul_edge_reflex_total", "result" => "held").absolute(stats.reflex_held);
        counter!("fronthaul_edge_reflex_total", "result" => "timed_out").absolute(stats.reflex_timed_out);
        counter!("fronthaul_edge_held_dropped_total").absolute(stats.held_dropped);
        counter!("fronthaul_edge_messages_refused_total").absolute(stats.messages_refused);
        counter!("fronthaul_edge_streams_unopened_total").absolute(stats.streams_unopened);
        counter!("fronthaul_edge_repeated_frames_total").absolute(stats.repeated);
        counter!("fronthaul_edge_link_strays_total").absolute(stats.link_strays);
        counter!("fronthaul_edge_opens_failed_total").absolute(stats.opens_failed);
        counter!("fronthaul_edge_paths_healed_total").absolute(stats.paths_healed);
        for (kind, count) in
            [("up", stats.peer_up), ("offer", stats.peer_offers), ("down", stats.peer_down), ("mine", stats.peer_mine)]
        {
            counter!("fronthaul_edge_peer_forwards_total", "kind" => kind).absolute(count);
        }
        counter!("fronthaul_edge_peer_discards_total", "reason" => "oversize").absolute(stats.peer_oversize);
        counter!("fronthaul_edge_sends_dropped_total").absolute(sums.sends_dropped);
        counter!("fronthaul_edge_worker_allocations_total").absolute(sums.allocations);
    }

    fn snapshots(&self) -> impl Iterator<Item = Snapshot> {
        self.workers.iter().map(|worker| *worker.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the peers' thread knows.
pub(super) fn publish_peers(pop: &Pop, sends_dropped: u64) {
    gauge!("fronthaul_edge_peer_paths").set(float(pop.routes() as u64));
    for (discard, count) in pop.discards() {
        counter!("fronthaul_edge_peer_discards_total", "reason" => discard.label()).absolute(count);
    }
    counter!("fronthaul_edge_peer_discards_total", "reason" => "not_sent").absolute(sends_dropped);
}

#[derive(Default)]
struct Sums {
    stats: Stats,
    sessions: f64,
    paths: f64,
    utterances: f64,
    session_streams: f64,
    utterance_streams: f64,
    links: f64,
    congested: f64,
    closing: f64,
    repeating: f64,
    sends_dropped: u64,
    allocations: u64,
}

impl Sums {
    fn add(&mut self, snapshot: &Snapshot) {
        self.stats.add(&snapshot.stats);
        self.sessions += float(snapshot.gauges.sessions as u64);
        self.paths += float(snapshot.gauges.paths as u64);
        self.utterances += float(snapshot.gauges.utterances as u64);
        self.session_streams += f64::from(snapshot.session_streams);
        self.utterance_streams += f64::from(snapshot.utterance_streams);
        self.links += f64::from(snapshot.links);
        self.congested += f64::from(snapshot.paths.congested);
        self.closing += f64::from(snapshot.paths.closing);
        self.repeating += f64::from(snapshot.paths.repeating);
        self.sends_dropped += snapshot.sends_dropped;
        self.allocations += snapshot.allocations;
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}
