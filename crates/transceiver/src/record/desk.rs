//! Where operators ask the workers for records.
//!
//! A question waits in a mailbox of its worker's, which takes one per turn of its loop; whoever asks waits at most
//! [`PATIENCE`]. A worker copies references; text is made by whoever asked.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime};

use daemon::admin::{Page, PageAnswer};
use link::ids::SessionId;
use serde::Serialize;
use tokio::sync::oneshot;

use super::{ExportedCalls, ExportedSession, SessionRecords, WorkerCalls};

/// Questions that wait for a worker; more are refused.
const MAILBOX: usize = 16;

/// For all workers' answers. They take microseconds, after at most one batch of audio.
const PATIENCE: Duration = Duration::from_secs(2);

/// A question to a worker.
#[derive(Debug)]
pub(crate) enum Ask {
    /// What happened in a call.
    Call(SessionId, oneshot::Sender<Option<SessionRecords>>),
    /// Which calls there are.
    Calls(oneshot::Sender<WorkerCalls>),
}

/// The worker's end.
pub(crate) type Mailbox = Receiver<Ask>;

/// A mailbox and its slot.
pub(crate) fn mailbox() -> (SyncSender<Ask>, Mailbox) {
    sync_channel(MAILBOX)
}

/// Finds the records of a transceiver's calls, those that go on and those that ended lately.
#[derive(Debug, Clone, Default)]
pub struct Records {
    workers: Vec<(SyncSender<Ask>, Thread)>,
}

/// What a search came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup {
    /// Here it is.
    Found(ExportedSession),
    /// No worker knows the call.
    Unknown,
    /// Workers had no time to answer.
    Busy,
}

impl Records {
    pub(crate) fn add(&mut self, slot: SyncSender<Ask>, worker: Thread) {
        self.workers.push((slot, worker));
    }

    /// Looks for a call. Cancel safe; it ends within two seconds.
    pub async fn find(&self, session: SessionId) -> Lookup {
        let Some((answers, complete)) = self.ask(|answer| Ask::Call(session, answer)).await else {
            return Lookup::Busy;
        };
        // Of a session that moved away and came back, the one that goes on.
        let found = answers.into_iter().flatten().max_by_key(|records| (records.live, records.ended));
        match found {
            Some(records) => Lookup::Found(ExportedSession::of(&records)),
            None if complete => Lookup::Unknown,
            None => Lookup::Busy,
        }
    }

    /// The calls that go on and those that ended lately. `None`: workers had no time to answer. Cancel safe; it ends within
    /// two seconds.
    pub async fn calls(&self) -> Option<ExportedCalls> {
        let (answers, complete) = self.ask(Ask::Calls).await?;
        complete.then(|| ExportedCalls::of(answers, Instant::now(), SystemTime::now()))
    }

    /// `GET /sessions` and `GET /sessions/{id}` of an admin port: the calls, and the records of one, as JSON.
    #[must_use]
    pub fn pages(self) -> Vec<Page> {
        let all = self.clone();
        let list = Page::at("/sessions", move || {
            let records = all.clone();
            async move { records.calls().await.map_or_else(busy, |calls| written(&calls)) }
        });
        let one = Page::new("/sessions/", move |id| {
            let records = self.clone();
            async move { records.answer(&id).await }
        });
        vec![list, one]
    }

    /// What all workers answer, and whether each was asked. `None`: one of them took too long.
    async fn ask<T>(&self, question: impl Fn(oneshot::Sender<T>) -> Ask) -> Option<(Vec<T>, bool)> {
        let mut waiting = Vec::with_capacity(self.workers.len());
        let mut complete = true;
        for (slot, worker) in &self.workers {
            let (answer, answered) = oneshot::channel();
            complete &= !matches!(slot.try_send(question(answer)), Err(TrySendError::Full(_)));
            worker.unpark();
            waiting.push(answered);
        }
        let all = async {
            let mut answers = Vec::with_capacity(waiting.len());
            for answered in waiting {
                // A slot that was full, or a worker that ended, drops the question.
                answers.extend(answered.await);
            }
            answers
        };
        let answers = tokio::time::timeout(PATIENCE, all).await.ok()?;
        Some((answers, complete))
    }

    async fn answer(&self, id: &str) -> PageAnswer {
        let Ok(session) = id.parse() else {
            return refused(400, "a session id is rtc_ and 16 lower-case hex digits");
        };
        match self.find(session).await {
            Lookup::Found(session) => written(&session),
            Lookup::Unknown => refused(404, "no call of that id goes on here or ended lately"),
            Lookup::Busy => busy(),
        }
    }
}

fn written(records: &impl Serialize) -> PageAnswer {
    match serde_json::to_string(records) {
        Ok(json) => PageAnswer { status: 200, json },
        Err(_) => refused(500, "the records cannot be written as JSON"),
    }
}

fn busy() -> PageAnswer {
    refused(503, "the workers had no time to answer: try again")
}

fn refused(status: u16, reason: &str) -> PageAnswer {
    PageAnswer { status, json: format!("{{\"error\":\"{reason}\"}}\n") }
}
