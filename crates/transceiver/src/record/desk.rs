//! Where operators ask the workers for records.
//!
//! A question waits in a mailbox of its worker's, which takes one per turn of its loop; whoever asks waits at most
//! [`PATIENCE`]. A worker copies references; text is made by whoever asked.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::Thread;
use std::time::Duration;

use daemon::admin::{Page, PageAnswer};
use link::ids::SessionId;
use tokio::sync::oneshot;

use super::{ExportedSession, SessionRecords};

/// Questions that wait for a worker; more are refused.
const MAILBOX: usize = 16;

/// For all workers' answers. They take microseconds, after at most one batch of audio.
const PATIENCE: Duration = Duration::from_secs(2);

/// A question to a worker.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) session: SessionId,
    pub(crate) answer: oneshot::Sender<Option<SessionRecords>>,
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
        let mut waiting = Vec::with_capacity(self.workers.len());
        let mut busy = false;
        for (slot, worker) in &self.workers {
            let (answer, answered) = oneshot::channel();
            busy |= matches!(slot.try_send(Ask { session, answer }), Err(TrySendError::Full(_)));
            worker.unpark();
            waiting.push(answered);
        }
        let all = async {
            let mut found: Option<SessionRecords> = None;
            for answered in waiting {
                // A slot that was full, or a worker that ended, drops the question.
                let Ok(answer) = answered.await else { continue };
                // A session that moved away and came back is the one that goes on.
                if let Some(records) = answer.filter(|records| records.live || found.is_none()) {
                    found = Some(records);
                }
            }
            found
        };
        match tokio::time::timeout(PATIENCE, all).await {
            Ok(Some(records)) => Lookup::Found(ExportedSession::of(&records)),
            Ok(None) if !busy => Lookup::Unknown,
            Ok(None) | Err(_) => Lookup::Busy,
        }
    }

    /// `GET /sessions/{id}` of an admin port: the records of a call as JSON.
    #[must_use]
    pub fn page(self) -> Page {
        Page::new("/sessions/", move |id| {
            let records = self.clone();
            async move { records.answer(&id).await }
        })
    }

    async fn answer(&self, id: &str) -> PageAnswer {
        let refused = |status, reason: &str| PageAnswer { status, json: format!("{{\"error\":\"{reason}\"}}\n") };
        let Ok(session) = id.parse() else {
            return refused(400, "a session id is rtc_ and 16 lower-case hex digits");
        };
        match self.find(session).await {
            Lookup::Found(session) => match serde_json::to_string(&session) {
                Ok(json) => PageAnswer { status: 200, json },
                Err(_) => refused(500, "the records cannot be written as JSON"),
            },
            Lookup::Unknown => refused(404, "no call of that id goes on here or ended lately"),
            Lookup::Busy => refused(503, "the workers had no time to answer: try again"),
        }
    }
}
