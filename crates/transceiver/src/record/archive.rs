//! The records of calls that are over, for those who ask what happened.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use link::ids::SessionId;
use voice::State;

use super::TurnRecord;

/// Calls kept per worker: at 38 KiB at most, and a quarter of that usually, 9.5 MiB.
const MAX_CALLS: usize = 256;

/// The records of one call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SessionRecords {
    pub(crate) session: SessionId,
    pub(crate) model: Arc<str>,
    /// It is not over.
    pub(crate) live: bool,
    /// Of its dialogue, if it is one.
    pub(crate) state: Option<State>,
    pub(crate) began: Instant,
    /// `None`: it is not over.
    pub(crate) ended: Option<Instant>,
    /// Turns, oldest first, that had no room.
    pub(crate) given_up: u64,
    /// The last turns, oldest first.
    pub(crate) turns: Vec<Arc<TurnRecord>>,
}

/// Calls that are over, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    calls: VecDeque<SessionRecords>,
}

impl Archive {
    /// Keeps a call that is over; one in which nothing happened is not kept.
    pub(crate) fn keep(&mut self, records: SessionRecords) {
        if records.turns.is_empty() {
            return;
        }
        if self.calls.len() == MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(records);
    }

    /// The newest first.
    pub(crate) fn newest(&self) -> impl ExactSizeIterator<Item = &SessionRecords> {
        self.calls.iter().rev()
    }

    /// The newest call of that id.
    pub(crate) fn find(&self, session: SessionId) -> Option<&SessionRecords> {
        self.calls.iter().rev().find(|records| records.session == session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(began: Instant, session: u64, turns: usize) -> SessionRecords {
        let turns = (0..turns).map(|_| Arc::new(TurnRecord::new(0))).collect();
        SessionRecords {
            session: SessionId(session),
            model: "parrot".into(),
            live: false,
            state: None,
            began,
            ended: Some(began),
            given_up: 0,
            turns,
        }
    }

    #[test]
    fn the_oldest_calls_make_room_for_the_newest() {
        let (mut archive, now) = (Archive::default(), Instant::now());
        for session in 0..10_000 {
            archive.keep(records(now, session, 1));
        }
        assert_eq!(archive.calls.len(), MAX_CALLS);
        assert_eq!(archive.find(SessionId(9_999)), Some(&records(now, 9_999, 1)));
        assert_eq!(archive.find(SessionId(9_743)), None);
    }

    #[test]
    fn a_call_without_turns_pushes_nothing_out() {
        let (mut archive, now) = (Archive::default(), Instant::now());
        archive.keep(records(now, 1, 1));
        for session in 2..1000 {
            archive.keep(records(now, session, 0));
        }
        assert_eq!(archive.find(SessionId(1)), Some(&records(now, 1, 1)));
        assert_eq!(archive.find(SessionId(2)), None);
    }
}
