//! The list of a transceiver's calls: those that go on and those that ended lately.

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::export::state_name;
use super::{ExportedTurn, SessionRecords, wrong};

/// Calls that a worker lists of those that go on, the newest, and as many of those that ended: to copy the references of
/// 32 turns takes 3 us each, below 1 ms for all of them.
const LISTED: usize = 128;

/// Calls in a list of all workers', at 300 bytes each 75 KiB.
const LIST: usize = 256;

/// What a worker knows of its calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WorkerCalls {
    /// Calls that go on.
    pub(crate) live: u64,
    /// Those that ended and are known.
    pub(crate) over: u64,
    /// The newest of both.
    pub(crate) calls: Vec<SessionRecords>,
}

impl WorkerCalls {
    /// Both with the newest first.
    pub(crate) fn of<'a>(
        live: impl ExactSizeIterator<Item = SessionRecords>,
        over: impl ExactSizeIterator<Item = &'a SessionRecords>,
    ) -> Self {
        let count = |calls: usize| u64::try_from(calls).unwrap_or(u64::MAX);
        let (live_count, over_count) = (count(live.len()), count(over.len()));
        let calls = live.take(LISTED).chain(over.take(LISTED).cloned()).collect();
        Self { live: live_count, over: over_count, calls }
    }
}

/// The calls of a transceiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExportedCalls {
    /// Calls that go on.
    pub live: u64,
    /// Calls that are known and not in the list.
    #[serde(default)]
    pub left_out: u64,
    /// Those that go on, the newest first; then those that ended, the last first.
    pub calls: Vec<ExportedCall>,
}

/// One call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExportedCall {
    /// Its public id.
    pub session: String,
    /// Who answers.
    pub model: Cow<'static, str>,
    /// It is not over.
    pub live: bool,
    /// Whose turn it is, as in decisions; `echoing` where there are no turns; `over`.
    pub state: Cow<'static, str>,
    /// When it began, in ms since 1970.
    pub began_unix_ms: u64,
    /// How long it lasted, or has lasted.
    pub lasted_ms: u64,
    /// How long ago it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ago_ms: Option<u64>,
    /// Its turns, those that are not kept any more included.
    pub turns: u64,
    /// The last thing that went wrong in the turns that are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong: Option<ExportedWrong>,
}

/// Something wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedWrong {
    /// In ms since the call began.
    pub at_ms: u64,
    /// In words.
    pub what: String,
}

impl ExportedCalls {
    /// Of all workers', as it is at `now`, which the clock on the wall calls `wall`.
    pub(crate) fn of(workers: Vec<WorkerCalls>, now: Instant, wall: SystemTime) -> Self {
        let live = workers.iter().map(|worker| worker.live).sum();
        let known: u64 = workers.iter().map(|worker| worker.live + worker.over).sum();
        let mut records: Vec<SessionRecords> = workers.into_iter().flat_map(|worker| worker.calls).collect();
        records.sort_by_key(|call| std::cmp::Reverse((call.live, call.ended.unwrap_or(call.began))));
        records.truncate(LIST);
        let calls: Vec<ExportedCall> = records.iter().map(|call| ExportedCall::of(call, now, wall)).collect();
        let left_out = known.saturating_sub(u64::try_from(calls.len()).unwrap_or(u64::MAX));
        Self { live, left_out, calls }
    }
}

impl ExportedCall {
    fn of(call: &SessionRecords, now: Instant, wall: SystemTime) -> Self {
        let turns: Vec<ExportedTurn> =
            call.turns.iter().map(|turn| ExportedTurn::of(call.session, &call.model, turn)).collect();
        let wrong = wrong::all(&turns).into_iter().map(|(_, wrong)| wrong).max_by_key(|wrong| wrong.at_ms);
        let ended = call.ended.unwrap_or(now);
        let began = wall.checked_sub(now.saturating_duration_since(call.began)).unwrap_or(wall);
        Self {
            session: call.session.to_string(),
            model: call.model.to_string().into(),
            live: call.live,
            state: match (call.live, call.state) {
                (false, _) => "over",
                (true, Some(state)) => state_name(state),
                (true, None) => "echoing",
            }
            .into(),
            began_unix_ms: ms(began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
            lasted_ms: ms(ended.saturating_duration_since(call.began)),
            ended_ago_ms: call.ended.map(|ended| ms(now.saturating_duration_since(ended))),
            turns: call.given_up + u64::try_from(call.turns.len()).unwrap_or(u64::MAX),
            wrong: wrong.map(|wrong| ExportedWrong { at_ms: wrong.at_ms, what: wrong.what }),
        }
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use link::ids::SessionId;
    use voice::State;

    use super::super::tests::answered;
    use super::super::{Counts, TurnRecord};
    use super::*;

    fn call(start: Instant, session: u64, began_s: u64, ended_s: Option<u64>) -> SessionRecords {
        let at = |s| start + Duration::from_secs(s);
        SessionRecords {
            session: SessionId(session),
            model: "parrot".into(),
            live: ended_s.is_none(),
            state: Some(State::Listening),
            began: at(began_s),
            ended: ended_s.map(at),
            given_up: 0,
            turns: Vec::new(),
        }
    }

    fn listed(workers: Vec<WorkerCalls>, now: Instant) -> ExportedCalls {
        ExportedCalls::of(workers, now, SystemTime::UNIX_EPOCH + Duration::from_secs(1000))
    }

    #[test]
    fn those_that_go_on_come_before_those_that_ended_each_with_the_last_first() {
        let start = Instant::now();
        let over = [call(start, 4, 1, Some(9)), call(start, 3, 0, Some(8))];
        let one = WorkerCalls::of([call(start, 2, 5, None), call(start, 1, 2, None)].into_iter(), over.iter());
        let two = WorkerCalls::of([call(start, 5, 3, None)].into_iter(), [].iter());
        let list = listed(vec![one, two], start + Duration::from_secs(10));
        let order: Vec<_> = list.calls.iter().map(|call| (&*call.session, &*call.state, call.lasted_ms)).collect();
        let expected = [
            ("rtc_0000000000000002", "listening", 5000),
            ("rtc_0000000000000005", "listening", 7000),
            ("rtc_0000000000000001", "listening", 8000),
            ("rtc_0000000000000004", "over", 8000),
            ("rtc_0000000000000003", "over", 8000),
        ];
        assert_eq!(order, expected);
        assert_eq!((list.live, list.left_out), (3, 0));
        assert_eq!((list.calls[0].began_unix_ms, list.calls[0].ended_ago_ms), (995_000, None));
        assert_eq!(list.calls[4].ended_ago_ms, Some(2000));
    }

    #[test]
    fn a_list_is_bounded_and_says_how_many_it_leaves_out() {
        let start = Instant::now();
        let worker = || {
            let over: Vec<_> = (0..256).map(|session| call(start, session, 0, Some(1))).collect();
            WorkerCalls::of((0..1000_u32).map(|session| call(start, session.into(), 0, None)), over.iter())
        };
        let list = listed(vec![worker(), worker(), worker()], start + Duration::from_secs(10));
        assert_eq!((list.live, list.calls.len(), list.left_out), (3000, 256, 3 * 1256 - 256));
    }

    #[test]
    fn the_last_thing_wrong_is_told_not_the_worst() {
        let start = Instant::now();
        let underrun = TurnRecord { counts: Counts { underruns: 1, ..Counts::default() }, ..answered() };
        let lost =
            TurnRecord { counts: Counts { concealed: 48 * 90, ..Counts::default() }, began_ms: 9000, ..answered() };
        let turns = vec![Arc::new(underrun), Arc::new(lost)];
        let records = SessionRecords { turns, given_up: 3, ..call(start, 1, 0, None) };
        let list = listed(vec![WorkerCalls::of([records].into_iter(), [].iter())], start + Duration::from_secs(20));
        let told = &list.calls[0];
        let wrong = told.wrong.as_ref().unwrap();
        assert_eq!((told.turns, wrong.at_ms, wrong.what.contains("90 ms")), (5, 9000, true), "{wrong:?}");
    }
}
