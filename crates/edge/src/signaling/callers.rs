//! Who asks for calls how often: one source may not use up the time it takes to answer offers. How many seats its answered
//! calls hold is for [`crate::waiting`]. Tickets are asked for at the same rate, hold no seat until they are used, and may be
//! saved: [`crate::tickets`] hands out so many to one source.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::http::StatusCode;

use super::error::ApiError;
use crate::worker::budget::{Budget, Limits};

/// Seconds until a source that was refused has budget again: its bucket refills evenly within one.
const RETRY_AFTER: u32 = 1;

/// The budgets of all callers.
#[derive(Clone)]
pub struct Callers(Arc<Mutex<Budget>>);

impl Callers {
    /// `per_source` requests for calls per second from one IPv4 address or IPv6 /64. `seed` is not to be guessed.
    #[must_use]
    pub fn new(now: Instant, per_source: u32, seed: u64) -> Self {
        let limits = Limits { per_source, per_worker: u32::MAX };
        Self(Arc::new(Mutex::new(Budget::new(now, limits, seed))))
    }

    /// The caller behind a connection from `source`.
    #[must_use]
    pub fn caller(&self, source: IpAddr) -> Caller {
        Caller { callers: self.clone(), source }
    }
}

/// Who is at the other end of a connection, as an extension of its requests.
#[derive(Clone)]
pub struct Caller {
    callers: Callers,
    source: IpAddr,
}

impl Caller {
    /// Where the connection comes from.
    pub(super) fn source(&self) -> IpAddr {
        self.source
    }

    /// Pays for one request for a call.
    ///
    /// # Errors
    /// 429, before anything was read or done.
    pub(super) fn pay(&self, now: Instant) -> Result<(), ApiError> {
        let mut budget = self.callers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if budget.take(now, self.source) {
            return Ok(());
        }
        let message = "Your address asks for too many calls; try again.";
        let error = ApiError::status(StatusCode::TOO_MANY_REQUESTS, "too_many_calls", message);
        Err(ApiError { retry_after: Some(RETRY_AFTER), ..error })
    }
}
