//! What a worker counts: plain integers, snapshotted by the shell.

use rtc::CloseReason;

use crate::tickets::Refusal;

/// Why a datagram was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Discard {
    /// The session's machine or the classifier said so.
    Rtc(rtc::Discard),
    /// An authentic check whose ticket is not honored.
    Ticket(Refusal),
    /// A check whose ufrag is no route token of ours.
    ForgedRoute,
    /// A check for another edge.
    OtherEdge,
    /// A check for a session that is over or never was.
    UnknownSession,
    /// The first check came after the set-up timeout.
    LateClaim,
    /// Handed over to a worker that does not have the session.
    Misrouted,
    /// From an address that no check proved, while such datagrams used their budget up.
    OverBudget,
    /// Of a set-up, while too many others waited for theirs.
    SetupQueue,
    /// A datagram of a transceiver, or the rest of one, that is no batch of frames.
    LinkMalformed,
}

/// Discards that are not of the `rtc` crate, in the order of their counters.
const OWN: [Discard; 8] = [
    Discard::ForgedRoute,
    Discard::OtherEdge,
    Discard::UnknownSession,
    Discard::LateClaim,
    Discard::Misrouted,
    Discard::OverBudget,
    Discard::SetupQueue,
    Discard::LinkMalformed,
];

impl Discard {
    /// How many there are.
    pub const COUNT: usize = rtc::Discard::ALL.len() + Refusal::ALL.len() + OWN.len();

    /// Every one, in the order of the counters.
    pub fn all() -> impl Iterator<Item = Self> {
        let tickets = Refusal::ALL.into_iter().map(Self::Ticket);
        rtc::Discard::ALL.into_iter().map(Self::Rtc).chain(tickets).chain(OWN)
    }

    /// The value of the metric's label `reason`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Rtc(discard) => discard.label(),
            Self::Ticket(refusal) => refusal.label(),
            Self::ForgedRoute => "forged_route",
            Self::OtherEdge => "other_edge",
            Self::UnknownSession => "unknown_session",
            Self::LateClaim => "late_claim",
            Self::Misrouted => "misrouted",
            Self::OverBudget => "over_budget",
            Self::SetupQueue => "setup_queue",
            Self::LinkMalformed => "link_malformed",
        }
    }

    fn index(self) -> usize {
        Self::all().position(|d| d == self).unwrap_or_default()
    }
}

/// Why a session ended, as the edge sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseCause {
    /// The client's side of it, or the path to the client.
    Client(CloseReason),
    /// DELETE or hangup.
    HangUp,
    /// No transceiver took the call.
    OpenFailed,
    /// The transceiver was lost in mid-call.
    TransceiverLost,
    /// The transceiver asked for it.
    TransceiverClosed,
    /// The client's messages came faster than the link to the transceiver took them.
    Backlog,
    /// The ticket that brought it was used before, says the transceiver.
    TicketUsed,
    /// It lasted as long as its ticket grants.
    TimeLimit,
    /// The edge stops.
    Draining,
}

/// Every cause, in the order of the counters.
const CAUSES: [CloseCause; 14] = [
    CloseCause::Client(CloseReason::PeerClosed),
    CloseCause::Client(CloseReason::LocalClosed),
    CloseCause::Client(CloseReason::ConsentExpired),
    CloseCause::Client(CloseReason::SetupTimeout),
    CloseCause::Client(CloseReason::FingerprintMismatch),
    CloseCause::Client(CloseReason::DtlsFailed),
    CloseCause::HangUp,
    CloseCause::OpenFailed,
    CloseCause::TransceiverLost,
    CloseCause::TransceiverClosed,
    CloseCause::Backlog,
    CloseCause::TicketUsed,
    CloseCause::TimeLimit,
    CloseCause::Draining,
];

impl CloseCause {
    /// Every cause, in the order of the counters.
    pub const ALL: [Self; 14] = CAUSES;

    /// The value of the metric's label `reason`, and what the transceiver is told.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Client(reason) => reason.label(),
            Self::HangUp => "hang_up",
            Self::OpenFailed => "open_failed",
            Self::TransceiverLost => "transceiver_lost",
            Self::TransceiverClosed => "transceiver_closed",
            Self::Backlog => "backlog",
            Self::TicketUsed => "ticket_used",
            Self::TimeLimit => "time_limit",
            Self::Draining => "draining",
        }
    }
}

/// By [`Discard::all`]. A type of its own, as arrays of more than 32 have no `Default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discards(pub [u64; Discard::COUNT]);

impl Default for Discards {
    fn default() -> Self {
        Self([0; Discard::COUNT])
    }
}

/// Counters of one worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Of datagrams dropped.
    pub discards: Discards,
    /// By [`CloseCause::ALL`].
    pub closed: [u64; CAUSES.len()],
    /// Sessions claimed.
    pub claimed: u64,
    /// Handshakes done whose client's part came in its checks.
    pub handshakes_sped: u64,
    /// Handshakes done by DTLS alone.
    pub handshakes_plain: u64,
    /// Of these, whose association SNAP set up.
    pub snap: u64,
    /// Datagrams given to other workers.
    pub handed_over: u64,
    /// Opus frames from clients.
    pub media_received: u64,
    /// Opus frames to clients.
    pub media_sent: u64,
    /// Frames of these that went to a second path as well, where the client may have moved.
    pub media_duplicated: u64,
    /// Times a playout queue ran empty in the middle of an utterance.
    pub underruns: u64,
    /// Downlink frames of another epoch, of flushed or unknown utterances.
    pub stale_frames: u64,
    /// Downlink frames beyond the credit or not shaped like one.
    pub refused_frames: u64,
    /// Slots that passed while the worker was late.
    pub skipped_slots: u64,
    /// Frames that a step back played again.
    pub replayed_frames: u64,
    /// Frames of clips.
    pub clip_frames: u64,
    /// Clips not played, or not to their end.
    pub clips_dropped: u64,
    /// Transport-wide feedback messages of clients.
    pub feedback: u64,
    /// Times the edge held playout by itself.
    pub reflex_held: u64,
    /// Of these, holds that ended as no transceiver said anything.
    pub reflex_timed_out: u64,
    /// Frames and messages dropped because too much was held for a transceiver that had not answered.
    pub held_dropped: u64,
    /// Messages that a client's channel did not take.
    pub messages_refused: u64,
    /// Streams on which a client sent without opening a channel there.
    pub streams_unopened: u64,
    /// Frames of clients that went to a transceiver a second time, as the link loses.
    pub repeated: u64,
    /// Messages from the link for sessions or slots that are not here.
    pub link_strays: u64,
    /// Opens that a transceiver refused or that failed.
    pub opens_failed: u64,
    /// 4-tuples that a client's media proved without a check.
    pub paths_healed: u64,
    /// Clients' datagrams forwarded to the peer that has their session.
    pub peer_up: u64,
    /// Clients' datagrams offered, counted for each peer.
    pub peer_offers: u64,
    /// Datagrams to clients that a peer reaches.
    pub peer_down: u64,
    /// Answers that a 4-tuple is ours.
    pub peer_mine: u64,
    /// Datagrams too long to be forwarded.
    pub peer_oversize: u64,
}

impl Stats {
    /// Counts a drop.
    pub(crate) fn discard(&mut self, discard: Discard) {
        self.discards.0[discard.index()] += 1;
    }

    /// Counts an end.
    pub(crate) fn close(&mut self, cause: CloseCause) {
        // `CloseReason` may grow: what is not listed counts as a local close.
        let index = CAUSES.iter().position(|c| *c == cause).unwrap_or(1);
        self.closed[index] += 1;
    }

    /// Adds another worker's counts.
    pub fn add(&mut self, other: &Self) {
        let sum = |into: &mut [u64], from: &[u64]| into.iter_mut().zip(from).for_each(|(to, n)| *to += n);
        sum(&mut self.discards.0, &other.discards.0);
        sum(&mut self.closed, &other.closed);
        self.claimed += other.claimed;
        self.snap += other.snap;
        self.handshakes_sped += other.handshakes_sped;
        self.handshakes_plain += other.handshakes_plain;
        self.handed_over += other.handed_over;
        self.media_received += other.media_received;
        self.media_sent += other.media_sent;
        self.media_duplicated += other.media_duplicated;
        self.underruns += other.underruns;
        self.stale_frames += other.stale_frames;
        self.refused_frames += other.refused_frames;
        self.skipped_slots += other.skipped_slots;
        self.replayed_frames += other.replayed_frames;
        self.clip_frames += other.clip_frames;
        self.clips_dropped += other.clips_dropped;
        self.feedback += other.feedback;
        self.reflex_held += other.reflex_held;
        self.reflex_timed_out += other.reflex_timed_out;
        self.held_dropped += other.held_dropped;
        self.messages_refused += other.messages_refused;
        self.streams_unopened += other.streams_unopened;
        self.repeated += other.repeated;
        self.link_strays += other.link_strays;
        self.opens_failed += other.opens_failed;
        self.paths_healed += other.paths_healed;
        self.peer_up += other.peer_up;
        self.peer_offers += other.peer_offers;
        self.peer_down += other.peer_down;
        self.peer_mine += other.peer_mine;
        self.peer_oversize += other.peer_oversize;
    }

    /// Drops of one kind.
    #[must_use]
    pub fn discarded(&self, discard: Discard) -> u64 {
        self.discards.0[discard.index()]
    }

    /// Drops of all kinds.
    #[must_use]
    pub fn discarded_total(&self) -> u64 {
        self.discards.0.iter().sum()
    }
}

/// What is held right now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Claimed sessions.
    pub sessions: usize,
    /// Checked 4-tuples.
    pub paths: usize,
    /// Utterances open or playing.
    pub utterances: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_is_its_own() {
        let mut labels: Vec<_> = Discard::all().map(Discard::label).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Discard::COUNT);
        let mut causes: Vec<_> = CloseCause::ALL.iter().map(|c| c.label()).collect();
        causes.sort_unstable();
        causes.dedup();
        assert_eq!(causes.len(), CloseCause::ALL.len());
    }

    #[test]
    fn each_reason_has_its_own_counter() {
        let mut stats = Stats::default();
        for discard in Discard::all() {
            stats.discard(discard);
        }
        for cause in CloseCause::ALL {
            stats.close(cause);
        }
        assert!(stats.discards.0.iter().all(|n| *n == 1));
        assert!(stats.closed.iter().all(|n| *n == 1));
    }
}
