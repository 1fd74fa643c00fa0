//! The body of every refusal, as OpenAI's clients read it: `{"error":{message,type,param,code}}`.

use std::borrow::Cow;

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The response's status.
    pub status: StatusCode,
    /// `error.code`.
    pub code: &'static str,
    /// `error.param`: the part of the request at fault.
    pub param: Option<Cow<'static, str>>,
    /// `error.message`: what is wrong and how to mend it.
    pub message: String,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u32>,
}

impl ApiError {
    /// The client is at fault.
    #[must_use]
    pub fn invalid(code: &'static str, param: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let status = StatusCode::BAD_REQUEST;
        Self { status, code, param: Some(param.into()), message: message.into(), retry_after: None }
    }

    /// Nothing is there.
    #[must_use]
    pub fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, code, param: None, message: message.into(), retry_after: None }
    }

    /// There is, but not this way.
    #[must_use]
    pub fn status(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, param: None, message: message.into(), retry_after: None }
    }

    /// Not at the moment.
    #[must_use]
    pub fn unavailable(code: &'static str, retry_after: u32, message: impl Into<String>) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self { status, code, param: None, message: message.into(), retry_after: Some(retry_after) }
    }

    /// `error.type`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        if self.status.is_server_error() { "server_error" } else { "invalid_request_error" }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({
            "error": {
                "message": self.message,
                "type": self.kind(),
                "param": self.param,
                "code": self.code,
            }
        });
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        // SDKs try some statuses again by themselves, and obey this. What has a time to try again left nothing here.
        headers
            .insert(SHOULD_RETRY, HeaderValue::from_static(if self.retry_after.is_some() { "true" } else { "false" }));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            // RFC 6750 §3.
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
