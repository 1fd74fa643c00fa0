//! The body of `POST /v1/realtime/calls`: an offer alone, or a form with an offer and a session.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{HeaderMap, StatusCode, header};
use tokio_stream::StreamExt;

use super::error::ApiError;

/// The largest offer: a browser's with every codec is ~8 KiB.
pub const MAX_OFFER_BYTES: usize = 64 << 10;

/// The largest session part: long instructions and many tools.
pub const MAX_SESSION_BYTES: usize = 256 << 10;

/// Both parts and the form around them.
const MAX_BODY_BYTES: usize = MAX_OFFER_BYTES + MAX_SESSION_BYTES + (16 << 10);

/// What is read and thrown away of a body that is too large, so that its sender gets to read the answer.
const MAX_DRAIN_BYTES: usize = 4 << 20;

/// The parts of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// The offer.
    pub(super) sdp: String,
    /// The session as JSON, if sent.
    pub(super) session: Option<String>,
}

/// Reads a request's parts, for so long: a connection that sends a byte now and then is one of few.
///
/// # Errors
/// 408 when that is over, else those of [`read`].
pub(super) async fn read_within(patience: Duration, request: Request) -> Result<Parts, ApiError> {
    tokio::time::timeout(patience, read(request)).await.unwrap_or_else(|_| Err(late(patience)))
}

/// Reads a body of this media type alone, for so long, of at most `limit` bytes.
///
/// # Errors
/// 408, 415, 413, and 400 for a body that is not text.
pub(super) async fn read_text_within(
    patience: Duration,
    request: Request,
    media_type: &'static str,
    limit: usize,
) -> Result<String, ApiError> {
    let kind = essence(request.headers());
    if kind.as_deref() != Some(media_type) {
        let named = kind.map_or_else(|| "(none)".to_owned(), |kind| format!("{kind:?}"));
        let message = format!("Content-Type {named} is not accepted here: send {media_type}.");
        return Err(ApiError::status(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
    }
    let body =
        tokio::time::timeout(patience, collect(request.into_body())).await.unwrap_or_else(|_| Err(late(patience)))?;
    text(&body, "body", limit)
}

/// Reads a session alone, for so long; an empty body is none.
///
/// # Errors
/// 408 when that is over, 413 for too much, 400 for what is not text.
pub(super) async fn session_within(patience: Duration, request: Request) -> Result<Option<String>, ApiError> {
    let body = collect(request.into_body());
    let body = tokio::time::timeout(patience, body).await.unwrap_or_else(|_| Err(late(patience)))?;
    if body.is_empty() { Ok(None) } else { text(&body, "session", MAX_SESSION_BYTES).map(Some) }
}

fn late(patience: Duration) -> ApiError {
    let message = format!("The body did not come within {} s; send it at once.", patience.as_secs());
    ApiError::status(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
}

/// Reads a request's parts.
///
/// # Errors
/// 415 for a type that is neither, 413 for too much, 400 for parts that are missing or not text.
async fn read(request: Request) -> Result<Parts, ApiError> {
    let kind = essence(request.headers());
    let (head, body) = request.into_parts();
    match kind.as_deref() {
        Some("application/sdp") => {
            let body = collect(body).await?;
            Ok(Parts { sdp: text(&body, "sdp", MAX_OFFER_BYTES)?, session: None })
        }
        Some("multipart/form-data") => {
            let body = collect(body).await?;
            read_form(Request::from_parts(head, Body::from(body))).await
        }
        other => Err(ApiError::status(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            format!(
                "Content-Type {} is not accepted: send application/sdp with the offer as the body, or \
                 multipart/form-data with the parts sdp and session.",
                other.map_or_else(|| "(none)".to_owned(), |kind| format!("{kind:?}")),
            ),
        )),
    }
}

async fn read_form(request: Request) -> Result<Parts, ApiError> {
    let malformed = |error: &dyn std::fmt::Display| {
        ApiError::invalid("invalid_form", "sdp", format!("The form cannot be read: {error}."))
    };
    let mut form = Multipart::from_request(request, &()).await.map_err(|e| malformed(&e.body_text()))?;
    let (mut sdp, mut session) = (None, None);
    // Parts of other names are ignored: clients may send what later versions know.
    while let Some(field) = form.next_field().await.map_err(|e| malformed(&e.body_text()))? {
        let name = field.name().unwrap_or_default().to_owned();
        let bytes = field.bytes().await.map_err(|e| malformed(&e.body_text()))?;
        match name.as_str() {
            "sdp" => sdp = Some(text(&bytes, "sdp", MAX_OFFER_BYTES)?),
            "session" => session = Some(text(&bytes, "session", MAX_SESSION_BYTES)?),
            _ => {}
        }
    }
    let sdp = sdp.ok_or_else(|| {
        ApiError::invalid("missing_offer", "sdp", "The form has no part named sdp: put the offer there.")
    })?;
    Ok(Parts { sdp, session })
}

fn text(bytes: &[u8], param: &'static str, limit: usize) -> Result<String, ApiError> {
    at_most(bytes.len(), param, limit)?;
    String::from_utf8(bytes.to_vec())
        .map_err(|_| ApiError::invalid("invalid_encoding", param, format!("The part {param} is not UTF-8.")))
}

/// Whether a part of so many bytes is taken.
///
/// # Errors
/// 413.
pub(super) fn at_most(bytes: usize, param: &'static str, limit: usize) -> Result<(), ApiError> {
    if bytes > limit {
        return Err(too_large(format!("The part {param} has {bytes} bytes; at most {limit} are taken.")));
    }
    Ok(())
}

/// The whole body, unless it is too large: then the rest is read and dropped, up to a bound.
async fn collect(body: Body) -> Result<Bytes, ApiError> {
    let mut stream = body.into_data_stream();
    let mut kept = Vec::new();
    let mut seen = 0;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk
            .map_err(|error| ApiError::invalid("incomplete_body", "sdp", format!("The body broke off: {error}.")))?;
        seen += chunk.len();
        if seen <= MAX_BODY_BYTES {
            kept.extend_from_slice(&chunk);
        } else {
            kept = Vec::new();
            if seen > MAX_DRAIN_BYTES {
                break;
            }
        }
    }
    if seen > MAX_BODY_BYTES {
        return Err(too_large(format!("The body is too large; at most {MAX_BODY_BYTES} bytes are taken.")));
    }
    Ok(kept.into())
}

fn too_large(message: String) -> ApiError {
    ApiError::status(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message)
}

/// The media type without its parameters, in lower case (RFC 9110 §8.3.1).
fn essence(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next()?.trim().to_ascii_lowercase())
}
