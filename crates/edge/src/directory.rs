//! What workers and signaling share: which worker owns a session, where a 4-tuple belongs, and each worker's mailbox.
//!
//! Signaling inserts a session; the first worker that sees a valid check of it claims it by compare-and-swap; nobody else
//! ever owns it. Workers come here only for what their own tables do not know, so running calls never touch it.
//!
//! [`Pop`] is what they share about the other edges of the PoP, touched only when a datagram is nobody's here.
//!
//! # Invariant
//!
//! A session has at most one owner, for ever: `owner` leaves [`UNCLAIMED`] once, towards a worker or towards [`GONE`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

use crossbeam_queue::{ArrayQueue, SegQueue};
use dashmap::DashMap;
use link::ids::{EdgeId, SessionId, TransceiverId};
use rtc::stun::IntegrityKey;
use rtc::{Candidate, Credentials, FORMER_MAX, Path};
use tokio::sync::Notify;

use crate::auth::{Grant, Held};
use crate::keys::PopKeys;
use crate::renew::{self, Ask, Change, Changed, Minting, PendingCall, Refusal, Versions};
use crate::seats::{LOCAL, Seat};
use crate::tcp::Arrival;
use crate::tickets::Tickets;
use crate::waiting::Place;
use crate::worker::CloseCause;
use crate::worker::budget::source_key;
use crate::worker::peers::{Forwarded, GateDiscard, ROUTE_LIFETIME};

/// No worker has claimed the session.
const UNCLAIMED: u32 = u32::MAX;
/// No transceiver has taken the session.
const UNPLACED: u32 = u32::MAX;
/// Ended before any worker claimed it.
const GONE: u32 = u32::MAX - 1;

/// Datagrams waiting for another worker. 1024 are 20 ms of 1000 calls that all reach the wrong worker; beyond that the
/// oldest is dropped, as late media is worth less than fresh media.
const HAND_OVER_QUEUE: usize = 1024;

/// Datagrams from peers waiting for a worker: as many as hand-overs, beside them, so that neither displaces the other.
const FORWARDED_QUEUE: usize = HAND_OVER_QUEUE;

/// Questions of signaling's that wait for a worker. An answer takes it ~50 us: the last one waits for 3 ms.
const ASKED_QUEUE: usize = 64;

/// Connections waiting for a worker: those that one turn of the thread that accepts may bring, and some. Beyond that they
/// are closed, and clients dial again.
const ARRIVALS_QUEUE: usize = 256;

/// 4-tuples known to be a peer's. 16384 are more than one edge's calls can all move at once; beyond that, packets of the
/// others are offered around, within the budget for it.
const PEER_PATHS: usize = 16_384;

/// Of one IPv4 address or IPv6 /64: more than twice the calls that its budget carries. Who changes ports without end takes
/// no place but its own.
const PEER_PATHS_PER_SOURCE: u32 = 256;

/// What a session needs from signaling, until a worker claims it.
#[derive(Debug)]
pub struct Pending {
    /// What offer and answer agreed on.
    pub setup: rtc::Setup,
    /// Our credentials before those of the setup, oldest first, [`FORMER_MAX`] at most: ICE restarted, and the answer that
    /// said so may be lost.
    pub former: Vec<Credentials>,
    /// What the call is for.
    pub call: CallInfo,
    /// Its seat; local when the edge answers itself.
    pub seat: Seat,
    /// Its place among those of its source that wait. `None`: a check brought it, or nobody counts.
    pub place: Option<Place>,
}

impl Pending {
    /// The ufrag of the first answer, whose key's certificate is the call's for ever: no later answer may name another one,
    /// and a fragment names none (RFC 8842 §5.5, RFC 8840 §9).
    #[must_use]
    pub fn first_ufrag(&self) -> &str {
        self.former.first().map_or(&self.setup.local_ufrag, |first| &first.ufrag)
    }

    /// What was agreed anew. The first pair, which the client surely had, and the last one stay.
    pub(crate) fn renew(&mut self, renewed: &rtc::Renewed) {
        let last = std::mem::replace(&mut self.setup, renewed.setup.clone());
        if !renewed.restarted {
            return;
        }
        if self.former.len() == FORMER_MAX {
            self.former.remove(1);
        }
        self.former.push(Credentials { ufrag: last.local_ufrag, password: last.local_password });
    }
}

/// What a call asks for.
#[derive(Debug, Clone)]
pub struct CallInfo {
    /// The model that serves it, which is the transceiver's name for it.
    pub model: String,
    /// The `session` part of the request as JSON; empty when there was none.
    pub session_config: String,
    /// Unix seconds.
    pub created_at: u64,
    /// Whose it is, and for how long.
    pub terms: Terms,
    /// What was agreed on its audio.
    pub audio: AudioFacts,
}

/// What a transceiver has to know of the client's audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AudioFacts {
    /// What codes the replies.
    pub codec: rtc::Codec,
    /// The client sends again what is missing.
    pub nack: bool,
}

impl AudioFacts {
    /// Those of a call.
    #[must_use]
    pub fn of(setup: &rtc::Setup) -> Self {
        let audio = setup.audio.as_ref();
        Self {
            codec: audio.map_or(rtc::Codec::Opus, |audio| audio.primary.codec),
            nack: audio.is_some_and(|audio| audio.nack),
        }
    }
}

/// What a call's key or ticket grants and to whom.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Whose call it is.
    pub tenant: u16,
    /// Longest duration of the call, in seconds; 0 for no limit.
    pub max_seconds: u32,
    /// Unix seconds until which a transceiver has to know that its ticket was used; 0 without a ticket.
    pub ticket_expires: u32,
    /// Its place among the calls of its key, if their number is limited.
    pub held: Option<Arc<Held>>,
    /// Who made it, if that is known: a ticket names the tenant alone.
    pub maker: Option<Arc<str>>,
}

/// A session of this edge.
pub struct Entry {
    owner: AtomicU32,
    closing: AtomicBool,
    pending: Mutex<Option<Box<Pending>>>,
    /// Checks MESSAGE-INTEGRITY before anything is built, as long as ICE was not restarted.
    pub key: IntegrityKey,
    /// Its answers and ICE sessions.
    pub versions: Versions,
    /// Whose call it is: nobody else can change or end it.
    pub tenant: u16,
    /// Who made it, if that is known.
    maker: Option<Arc<str>>,
    /// The transceiver that has it, [`UNPLACED`] until one has.
    place: AtomicU32,
    /// Its place among the calls of its key, which goes with the call.
    held: Weak<Held>,
}

/// Who owns a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Nobody yet.
    Unclaimed,
    /// This worker.
    Worker(u32),
    /// Nobody any more.
    Gone,
}

impl Entry {
    /// Who owns it.
    #[must_use]
    pub fn owner(&self) -> Owner {
        match self.owner.load(Ordering::Acquire) {
            UNCLAIMED => Owner::Unclaimed,
            GONE => Owner::Gone,
            worker => Owner::Worker(worker),
        }
    }

    /// Makes `worker` the owner and hands out what signaling left, unless somebody was faster.
    pub fn claim(&self, worker: u32) -> Option<Box<Pending>> {
        self.owner.compare_exchange(UNCLAIMED, worker, Ordering::AcqRel, Ordering::Acquire).ok()?;
        self.take_pending()
    }

    /// The transceiver that has taken it; [`LOCAL`]: the edge answers it.
    #[must_use]
    pub fn place(&self) -> Option<TransceiverId> {
        Some(self.place.load(Ordering::Acquire)).filter(|place| *place != UNPLACED).map(TransceiverId)
    }

    /// Its place among the calls of its key, as long as it has one.
    #[must_use]
    pub fn held(&self) -> Option<Arc<Held>> {
        self.held.upgrade()
    }

    /// Whether somebody may change and end it. Who mints ephemeral keys answers for the whole tenant, and they for themselves; a call that came by
    /// a ticket is the tenant's.
    #[must_use]
    pub fn is_of(&self, grant: &Grant) -> bool {
        grant.tenant == self.tenant && (grant.mints || self.maker.as_ref().is_none_or(|maker| *maker == grant.subject))
    }

    /// A transceiver has taken it.
    pub fn placed(&self, transceiver: TransceiverId) {
        self.place.store(transceiver.0, Ordering::Release);
    }

    fn abandon(&self) -> Option<Box<Pending>> {
        self.owner.compare_exchange(UNCLAIMED, GONE, Ordering::AcqRel, Ordering::Acquire).ok()?;
        self.take_pending()
    }

    fn take_pending(&self) -> Option<Box<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A datagram on its way to the worker that owns its session.
#[derive(Debug)]
pub struct HandOver {
    /// Where it came from and to.
    pub path: Path,
    /// The whole of it.
    pub datagram: Vec<u8>,
}

/// A datagram that another thread received.
#[derive(Debug)]
pub enum Letter {
    /// By another worker.
    HandOver(HandOver),
    /// By another edge.
    Forwarded(Forwarded),
}

/// What a worker is told from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// End this session.
    Close {
        /// Which.
        session: SessionId,
        /// Why.
        cause: CloseCause,
    },
    /// End every session.
    CloseAll {
        /// Why.
        cause: CloseCause,
    },
    /// A session of another worker proved that it sits behind this 4-tuple.
    PathTaken(Path),
    /// From here on these keys count.
    Keys(PopKeys),
}

/// What other threads left for one worker.
pub struct Mailbox {
    hand_overs: ArrayQueue<HandOver>,
    forwarded: ArrayQueue<Forwarded>,
    arrivals: ArrayQueue<Arrival>,
    /// Bounded by what is put in: one Close per session, one PathTaken per proven 4-tuple.
    commands: SegQueue<Command>,
    asked: ArrayQueue<Ask>,
    overflowed: AtomicU64,
    notify: Notify,
}

impl Mailbox {
    fn new() -> Self {
        Self {
            hand_overs: ArrayQueue::new(HAND_OVER_QUEUE),
            forwarded: ArrayQueue::new(FORWARDED_QUEUE),
            arrivals: ArrayQueue::new(ARRIVALS_QUEUE),
            commands: SegQueue::new(),
            asked: ArrayQueue::new(ASKED_QUEUE),
            overflowed: AtomicU64::new(0),
            notify: Notify::new(),
        }
    }

    /// Leaves a datagram, displacing the oldest when there are too many.
    pub fn hand_over(&self, hand_over: HandOver) {
        if self.hand_overs.force_push(hand_over).is_some() {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
        }
        self.notify.notify_one();
    }

    /// Leaves what a peer sent, displacing the oldest when there is too much.
    pub fn forward(&self, forwarded: Forwarded) {
        if self.forwarded.force_push(forwarded).is_some() {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
        }
        self.notify.notify_one();
    }

    /// Leaves a connection. `false`: too many are waiting, and it is closed.
    #[must_use]
    pub fn arrive(&self, arrival: Arrival) -> bool {
        let left = self.arrivals.push(arrival).is_ok();
        self.notify.notify_one();
        left
    }

    /// Leaves a command.
    pub fn command(&self, command: Command) {
        self.commands.push(command);
        self.notify.notify_one();
    }

    /// Asks something; `false`: too much is asked already.
    pub fn ask(&self, ask: Ask) -> bool {
        let asked = self.asked.push(ask).is_ok();
        self.notify.notify_one();
        asked
    }

    /// The oldest question.
    pub fn take_ask(&self) -> Option<Ask> {
        self.asked.pop()
    }

    /// The oldest datagram.
    pub fn take_hand_over(&self) -> Option<HandOver> {
        self.hand_overs.pop()
    }

    /// The oldest datagram of a peer's.
    pub fn take_forwarded(&self) -> Option<Forwarded> {
        self.forwarded.pop()
    }

    /// The oldest datagram of either kind, the `number`th of a turn: while there are both, they take turns.
    pub fn take_datagram(&self, number: usize) -> Option<Letter> {
        let hand_over = || self.take_hand_over().map(Letter::HandOver);
        let forwarded = || self.take_forwarded().map(Letter::Forwarded);
        if number.is_multiple_of(2) { hand_over().or_else(forwarded) } else { forwarded().or_else(hand_over) }
    }

    /// The oldest connection.
    pub fn take_arrival(&self) -> Option<Arrival> {
        self.arrivals.pop()
    }

    /// The oldest command.
    pub fn take_command(&self) -> Option<Command> {
        self.commands.pop()
    }

    /// Datagrams displaced since the start.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// Returns once something was left. A token is kept, so nothing left before the call is missed.
    pub async fn filled(&self) {
        self.notify.notified().await;
    }
}

/// The shared tables.
pub struct Directory {
    sessions: DashMap<SessionId, Arc<Entry>>,
    paths: DashMap<Path, u32>,
    mailboxes: Vec<Mailbox>,
    /// The other edges.
    pub pop: Pop,
    tickets: OnceLock<Tickets>,
    /// Unclaimed sessions by the time at which they are given up. Sessions share one timeout, so the order of insertion
    /// is the order of expiry; claimed ones stay until then, 24 bytes each.
    expiries: Mutex<VecDeque<(Instant, SessionId)>>,
    /// The same sessions, until it is known whether a check reached them in time.
    awaited: Mutex<VecDeque<(Instant, SessionId)>>,
    pending: AtomicU64,
    expired: AtomicU64,
    unreached: AtomicU64,
}

impl Directory {
    /// Tables for this many workers.
    #[must_use]
    pub fn new(workers: usize) -> Arc<Self> {
        Self::in_pop(workers, Pop::new(&[], 0))
    }

    /// Tables for this many workers of an edge that has peers.
    #[must_use]
    pub fn in_pop(workers: usize, pop: Pop) -> Arc<Self> {
        Arc::new(Self {
            pop,
            tickets: OnceLock::new(),
            sessions: DashMap::new(),
            paths: DashMap::new(),
            mailboxes: (0..workers).map(|_| Mailbox::new()).collect(),
            expiries: Mutex::new(VecDeque::new()),
            awaited: Mutex::new(VecDeque::new()),
            pending: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            unreached: AtomicU64::new(0),
        })
    }

    /// From here on calls may come by tickets. The first office counts.
    pub fn honor(&self, tickets: Tickets) {
        let _ = self.tickets.set(tickets);
    }

    /// The tickets, if calls may come by them.
    #[must_use]
    pub fn tickets(&self) -> Option<&Tickets> {
        self.tickets.get()
    }

    /// Enters an answered call, to be claimed before `expires`. `false` when the id is taken.
    pub fn insert(&self, session: SessionId, pending: Pending, expires: Instant) -> bool {
        let entry = Entry {
            owner: AtomicU32::new(UNCLAIMED),
            closing: AtomicBool::new(false),
            key: IntegrityKey::new(pending.setup.local_password.expose()),
            tenant: pending.call.terms.tenant,
            maker: pending.call.terms.maker.clone(),
            held: pending.call.terms.held.as_ref().map_or_else(Weak::new, Arc::downgrade),
            place: AtomicU32::new(if pending.seat.transceiver() == LOCAL { LOCAL.0 } else { UNPLACED }),
            pending: Mutex::new(Some(Box::new(pending))),
            versions: Versions::default(),
        };
        match self.sessions.entry(session) {
            dashmap::Entry::Occupied(_) => return false,
            dashmap::Entry::Vacant(vacant) => drop(vacant.insert(Arc::new(entry))),
        }
        self.pending.fetch_add(1, Ordering::Relaxed);
        for queue in [&self.expiries, &self.awaited] {
            queue.lock().unwrap_or_else(PoisonError::into_inner).push_back((expires, session));
        }
        true
    }

    /// Looks a session up.
    #[must_use]
    pub fn get(&self, session: SessionId) -> Option<Arc<Entry>> {
        self.sessions.get(&session).map(|entry| Arc::clone(&entry))
    }

    /// [`Entry::claim`], counted.
    pub fn claim(&self, entry: &Entry, worker: u32) -> Option<Box<Pending>> {
        let pending = entry.claim(worker)?;
        self.pending.fetch_sub(1, Ordering::Relaxed);
        Some(pending)
    }

    /// Forgets a session; its owner calls this at the end.
    pub fn remove(&self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// Ends a session from outside: unclaimed ones at once, others by a command to their owner. `false` when there is no
    /// such session.
    pub fn close(&self, session: SessionId, cause: CloseCause) -> bool {
        let Some(entry) = self.get(session) else { return false };
        self.end(session, &entry, cause);
        true
    }

    /// Ends a session for one that comes in its stead; what that one inherits: the place among the calls of its key, which the worker's end of
    /// it would give back a moment later. One inherits it: whoever comes when the session is ended already pays for a place of its own.
    #[must_use]
    pub fn replace(&self, session: SessionId, cause: CloseCause) -> Option<Arc<Held>> {
        let entry = self.get(session)?;
        let held = entry.held();
        if self.end(session, &entry, cause) { held } else { None }
    }

    /// `false`: somebody else has ended it.
    fn end(&self, session: SessionId, entry: &Entry, cause: CloseCause) -> bool {
        if self.abandon(session, entry) {
            return true;
        }
        let Owner::Worker(worker) = entry.owner() else { return false };
        let ends = !entry.closing.swap(true, Ordering::Relaxed);
        if ends && let Some(mailbox) = self.mailbox(worker) {
            mailbox.command(Command::Close { session, cause });
        }
        ends
    }

    /// Changes what a call that nobody claimed has agreed. `None`: it is claimed.
    pub fn change_pending(
        &self,
        entry: &Entry,
        keys: &PopKeys,
        (edge, session, unix_seconds): (EdgeId, SessionId, u32),
        change: &Change,
        candidates: &[Candidate],
    ) -> Option<Result<Changed, Refusal>> {
        let mut pending = entry.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = pending.as_deref_mut()?;
        let transceiver = pending.seat.transceiver();
        let minting = Minting { keys: keys.route(), edge, session, transceiver, unix_seconds };
        let mut call = PendingCall { pending, keys };
        Some(renew::change(&mut call, &entry.versions, minting, change, candidates))
    }

    /// Gives up what was never claimed, and returns how many that were.
    pub fn expire(&self, now: Instant) -> usize {
        // Whoever never asks for what was not reached holds nothing for it either.
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        while awaited.pop_front_if(|(expires, _)| *expires <= now).is_some() {}
        drop(awaited);
        let mut given_up = 0;
        loop {
            let due = {
                let mut expiries = self.expiries.lock().unwrap_or_else(PoisonError::into_inner);
                expiries.pop_front_if(|(expires, _)| *expires <= now)
            };
            let Some((_, session)) = due else { break };
            if let Some(entry) = self.get(session)
                && self.abandon(session, &entry)
            {
                given_up += 1;
            }
        }
        self.expired.fetch_add(given_up, Ordering::Relaxed);
        usize::try_from(given_up).unwrap_or(usize::MAX)
    }

    /// How many sessions that expire before `until` no check has reached; each one is asked for once.
    pub fn unreached(&self, until: Instant) -> u64 {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = 0;
        while let Some((_, session)) = awaited.pop_front_if(|(expires, _)| *expires <= until) {
            found += u64::from(self.get(session).is_some_and(|entry| entry.owner() == Owner::Unclaimed));
        }
        self.unreached.fetch_add(found, Ordering::Relaxed);
        found
    }

    /// Of all since the start, those that [`Self::unreached`] found.
    #[must_use]
    pub fn never_reached(&self) -> u64 {
        self.unreached.load(Ordering::Relaxed)
    }

    /// Gives up everything that is not claimed.
    pub fn abandon_all(&self) {
        let waiting = std::mem::take(&mut *self.expiries.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, session) in waiting {
            if let Some(entry) = self.get(session) {
                self.abandon(session, &entry);
            }
        }
    }

    /// Sessions answered and not claimed.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.pending.load(Ordering::Relaxed)
    }

    /// Sessions given up since the start.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// Sessions, claimed or not.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The worker whose session proved this 4-tuple last.
    #[must_use]
    pub fn worker_of(&self, path: &Path) -> Option<u32> {
        self.paths.get(path).map(|worker| *worker)
    }

    /// A session of `worker` proved a 4-tuple: whoever had it is told.
    pub fn add_path(&self, path: Path, worker: u32) {
        if let Some(former) = self.paths.insert(path, worker)
            && former != worker
            && let Some(mailbox) = self.mailbox(former)
        {
            mailbox.command(Command::PathTaken(path));
        }
    }

    /// Forgets a 4-tuple, if it is still `worker`'s.
    pub fn remove_path(&self, path: &Path, worker: u32) {
        self.paths.remove_if(path, |_, owner| *owner == worker);
    }

    /// Forgets a 4-tuple that a session of another edge proved; the worker that had it.
    pub(crate) fn give_path_away(&self, path: &Path) -> Option<u32> {
        self.paths.remove(path).map(|(_, worker)| worker)
    }

    /// Known 4-tuples.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.paths.len()
    }

    /// A worker's mailbox.
    #[must_use]
    pub fn mailbox(&self, worker: u32) -> Option<&Mailbox> {
        self.mailboxes.get(usize::try_from(worker).ok()?)
    }

    /// How many workers there are, at least 1.
    #[must_use]
    pub fn workers(&self) -> u32 {
        u32::try_from(self.mailboxes.len()).unwrap_or(u32::MAX).max(1)
    }

    /// Handed-over datagrams displaced since the start, over all mailboxes.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        self.mailboxes.iter().map(Mailbox::overflowed).sum()
    }

    /// Leaves a command for every worker.
    pub fn command_all(&self, command: &Command) {
        for mailbox in &self.mailboxes {
            mailbox.command(command.clone());
        }
    }

    fn abandon(&self, session: SessionId, entry: &Entry) -> bool {
        if entry.abandon().is_none() {
            return false;
        }
        self.pending.fetch_sub(1, Ordering::Relaxed);
        self.sessions.remove(&session);
        true
    }
}

/// What is shared about the other edges of the PoP, and about clients whose 4-tuple nobody knows.
pub struct Pop {
    /// The other edges, static.
    pub peers: Vec<EdgeId>,
    /// Number of the next datagram to any peer.
    pub(crate) seq: AtomicU64,
    /// 4-tuples whose session a peer has, by its own word, and until when that holds.
    routes: DashMap<Path, (EdgeId, Instant)>,
    /// How many of them each source has. Locked after `routes`.
    route_sources: DashMap<u64, u32>,
    /// The worker whose session speaks with this SSRC. First come: whoever chooses somebody else's gains nothing.
    ssrcs: DashMap<u32, u32>,
    discards: [AtomicU64; GateDiscard::ALL.len()],
}

impl Pop {
    /// `first_seq` must be higher than any number that this edge used before a restart: the microseconds of the Unix
    /// clock are, as long as it sends less than a million datagrams per second.
    #[must_use]
    pub fn new(peers: &[EdgeId], first_seq: u64) -> Self {
        Self {
            peers: peers.to_vec(),
            seq: AtomicU64::new(first_seq),
            routes: DashMap::new(),
            route_sources: DashMap::new(),
            ssrcs: DashMap::new(),
            discards: Default::default(),
        }
    }

    /// The peer that has the session of this 4-tuple.
    #[must_use]
    pub fn peer_of(&self, path: &Path, now: Instant) -> Option<EdgeId> {
        if self.peers.is_empty() {
            return None;
        }
        self.routes.get(path).filter(|route| now < route.1).map(|route| route.0)
    }

    /// A peer said that a 4-tuple is its own, or sent something to it.
    pub fn learn(&self, path: Path, peer: EdgeId, now: Instant) {
        let route = (peer, now + ROUTE_LIFETIME);
        if let Some(mut known) = self.routes.get_mut(&path) {
            *known = route;
            return;
        }
        if self.routes.len() >= PEER_PATHS {
            return;
        }
        match self.routes.entry(path) {
            dashmap::Entry::Occupied(mut known) => drop(known.insert(route)),
            dashmap::Entry::Vacant(vacant) => {
                let mut count = self.route_sources.entry(source_key(path.remote.ip())).or_default();
                if *count < PEER_PATHS_PER_SOURCE {
                    *count += 1;
                    drop(vacant.insert(route));
                }
            }
        }
    }

    /// Forgets what no peer has confirmed for long. Called now and then.
    pub fn expire(&self, now: Instant) {
        self.routes.retain(|path, (_, until)| {
            let stays = now < *until;
            if !stays
                && let dashmap::Entry::Occupied(mut count) = self.route_sources.entry(source_key(path.remote.ip()))
            {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
            stays
        });
    }

    /// 4-tuples known to be a peer's.
    #[must_use]
    pub fn routes(&self) -> usize {
        self.routes.len()
    }

    /// The worker whose session speaks with this SSRC.
    #[must_use]
    pub fn worker_of(&self, ssrc: u32) -> Option<u32> {
        self.ssrcs.get(&ssrc).map(|worker| *worker)
    }

    /// A session of `worker` speaks with this SSRC. `false`: somebody else's does.
    pub(crate) fn add_ssrc(&self, ssrc: u32, worker: u32) -> bool {
        match self.ssrcs.entry(ssrc) {
            dashmap::Entry::Occupied(_) => false,
            dashmap::Entry::Vacant(vacant) => {
                vacant.insert(worker);
                true
            }
        }
    }

    /// Forgets an SSRC. For those alone who added it.
    pub(crate) fn remove_ssrc(&self, ssrc: u32) {
        self.ssrcs.remove(&ssrc);
    }

    /// Counts what the gate refused.
    pub fn count(&self, discard: GateDiscard) {
        if let Some(at) = GateDiscard::ALL.iter().position(|d| *d == discard) {
            self.discards[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How much the gate refused, for each reason.
    pub fn discards(&self) -> impl Iterator<Item = (GateDiscard, u64)> {
        GateDiscard::ALL.into_iter().zip(self.discards.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}
