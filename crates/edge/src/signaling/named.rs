//! What of a session the edge has a use for, read without a tree of the rest: sessions are up to 256 KiB, and all requests share one thread.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::error::ApiError;

/// A session's names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// `session.model`.
    pub(super) model: Option<String>,
    /// `session.type`.
    pub(super) kind: Option<String>,
}

impl Named {
    /// Reads a session, which has to be a JSON object.
    pub(super) fn read(session_json: Option<&str>) -> Result<Self, ApiError> {
        let Some(json) = session_json else { return Ok(Self::default()) };
        // serde reads a sequence as a struct too.
        if !json.trim_start().starts_with('{') {
            let valid = serde_json::from_str::<IgnoredAny>(json);
            valid.map_err(|error| invalid(format!("The part session is not JSON: {error}.")))?;
            return Err(invalid("The part session must be a JSON object.".to_owned()));
        }
        let read: Fields<'_> =
            serde_json::from_str(json).map_err(|error| invalid(format!("The part session is not JSON: {error}.")))?;
        Ok(Self { model: text("model", read.model)?, kind: text("type", read.kind)? })
    }
}

fn invalid(message: String) -> ApiError {
    ApiError::invalid("invalid_json", "session", message)
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
}

fn text(name: &str, value: Option<&RawValue>) -> Result<Option<String>, ApiError> {
    let Some(value) = value else { return Ok(None) };
    serde_json::from_str(value.get()).map_err(|_| {
        let param = format!("session.{name}");
        let message = format!("{param} must be a string.");
        ApiError::invalid("invalid_type", param, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> (String, String) {
        let error = Named::read(Some(json)).unwrap_err();
        (error.code.to_string(), error.message)
    }

    #[test]
    fn names_are_read_and_the_rest_is_let_be() {
        let json = r#" {"tools":[{"a":[1,null,{}]}],"model":"parrot","type":"realtime","voice":null}"#;
        let named = Named { model: Some("parrot".to_owned()), kind: Some("realtime".to_owned()) };
        assert_eq!(Named::read(Some(json)).unwrap(), named);
        for json in ["{}", r#"{"model":null}"#] {
            assert_eq!(Named::read(Some(json)).unwrap(), Named::default(), "{json}");
        }
        assert_eq!(Named::read(None).unwrap(), Named::default());
    }

    #[test]
    fn what_is_no_session_is_named() {
        for json in ["[]", "7", "\"x\"", "null"] {
            let told = ("invalid_json".to_owned(), "The part session must be a JSON object.".to_owned());
            assert_eq!(refusal(json), told, "{json}");
        }
        for json in ["", "{", "[", "{\"model\":}", "{} x"] {
            assert!(refusal(json).1.starts_with("The part session is not JSON"), "{json}");
        }
        for value in ["7", "-7", "0.5", "true", "[[1]]", r#"{"a":{}}"#] {
            let told = ("invalid_type".to_owned(), "session.model must be a string.".to_owned());
            assert_eq!(refusal(&format!(r#"{{"model":{value}}}"#)), told, "{value}");
        }
    }
}
