//! Lets requests in that show a key, and tells handlers what it grants.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use link::ids::SessionId;

use super::callers::Caller;
use super::create::Shared;
use super::error::ApiError;
use crate::auth::{Grant, Presented, Refusal};

/// The middleware of everything that needs a key. A preflight shows none (RFC 9725 §4.8).
pub(super) async fn admit(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    if request.method() == Method::OPTIONS {
        return next.run(request).await;
    }
    match judge(&shared, &request) {
        Ok(grant) => {
            request.extensions_mut().insert(Arc::new(grant));
            next.run(request).await
        }
        Err(error) => {
            shared.counts.unauthorized.fetch_add(1, Ordering::Relaxed);
            // Who guesses pays as who calls.
            let caller = request.extensions().get::<Caller>();
            let paid = caller.map_or(Ok(()), |caller| caller.pay(Instant::now()));
            paid.err().unwrap_or(error).into_response()
        }
    }
}

fn judge(shared: &Shared, request: &Request) -> Result<Grant, ApiError> {
    let presented = Presented::of(request.headers());
    let now = u64::from(net::clock::unix_seconds());
    let judged = shared.auth.judge(presented.as_ref(), shared.keys.current().route(), now);
    judged.map_err(|refusal| unauthorized(&refusal))
}

fn unauthorized(refusal: &Refusal) -> ApiError {
    tracing::debug!(reason = refusal.label(), "a request without a good key");
    ApiError::status(StatusCode::UNAUTHORIZED, "invalid_api_key", refusal.message())
}

/// What the key of an admitted request grants.
pub(super) fn grant_of(request: &Request) -> Option<Arc<Grant>> {
    request.extensions().get::<Arc<Grant>>().cloned()
}

/// Whether a call is there, and theirs.
pub(super) fn owns(shared: &Shared, grant: Option<&Arc<Grant>>, session: SessionId) -> bool {
    let entry = shared.directory.get(session);
    entry.is_some_and(|entry| grant.is_none_or(|grant| entry.is_of(grant)))
}
