//! What the query of a request asks for: one of `model`, `call_id` and `intent`, or nothing.

use link::ids::SessionId;

use crate::signaling::ApiError;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A session with this model.
    Model(String),
    /// The events of this call.
    Call(String, Option<SessionId>),
    /// A session that transcribes.
    Transcription,
    /// Nothing.
    Unsaid,
}

/// Whether the path is that of Azure's clients, which call the model `deployment` there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Azure {
    /// `/openai/realtime`.
    Yes,
    /// Any other.
    No,
}

impl Asked {
    /// Reads a query. What has no value is not there; fields that are not known are left alone.
    ///
    /// # Errors
    /// 400: more than one of the three, or an intent that is not known.
    pub fn read(query: &str, azure: Azure) -> Result<Self, ApiError> {
        let [mut model, mut call, mut intent] = [const { None }; 3];
        for (name, value) in form(query).filter(|(_, value)| !value.is_empty()) {
            match name.as_str() {
                "model" => model = Some(value),
                "deployment" if azure == Azure::Yes => model = Some(value),
                "call_id" => call = Some(value),
                "intent" => intent = Some(value),
                _ => {}
            }
        }
        match (model, call, intent) {
            (Some(model), None, None) => Ok(Self::Model(model)),
            (None, Some(call), None) => {
                let session = call.parse().ok();
                Ok(Self::Call(call, session))
            }
            (None, None, Some(intent)) if intent == "transcription" => Ok(Self::Transcription),
            (None, None, Some(intent)) => {
                let message = format!("intent {intent:?} is not known: it can be \"transcription\" alone.");
                Err(ApiError::invalid("invalid_query", "intent", message))
            }
            (None, None, None) => Ok(Self::Unsaid),
            _ => {
                let message = "model, call_id and intent exclude one another: send one of them.";
                Err(ApiError::invalid("invalid_query", "model", message))
            }
        }
    }
}

/// The fields of a query, decoded (application/x-www-form-urlencoded).
fn form(query: &str) -> impl Iterator<Item = (String, String)> {
    query.split('&').map(|field| {
        let (name, value) = field.split_once('=').unwrap_or((field, ""));
        (decoded(name), decoded(value))
    })
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, behind @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high << 4 | low);
                    rest = behind;
                }
                _ => bytes.push(b'%'),
            },
            _ => bytes.push(*first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Asked, &'static str> {
        Asked::read(query, Azure::No).map_err(|error| error.code)
    }

    #[test]
    fn one_of_the_three_is_asked_for() {
        assert_eq!(read("model=gpt%2Drealtime"), Ok(Asked::Model("gpt-realtime".to_owned())));
        assert_eq!(read("intent=transcription"), Ok(Asked::Transcription));
        let id = SessionId(0x1234);
        assert_eq!(read(&format!("call_id={id}")), Ok(Asked::Call(id.to_string(), Some(id))));
        assert_eq!(read("call_id=rtc_no"), Ok(Asked::Call("rtc_no".to_owned(), None)));
        for query in ["", "model=", "x=%zz", "call_id=&intent="] {
            assert_eq!(read(query), Ok(Asked::Unsaid), "{query}");
        }
        for query in ["model=a&call_id=b", "model=a&intent=transcription", "intent=dance"] {
            assert_eq!(read(query), Err("invalid_query"), "{query}");
        }
    }

    #[test]
    fn a_deployment_is_a_model_where_azures_clients_ask() {
        let query = "api-version=2025-04-01-preview&deployment=parrot";
        assert_eq!(Asked::read(query, Azure::Yes), Ok(Asked::Model("parrot".to_owned())));
        assert_eq!(read(query), Ok(Asked::Unsaid));
    }
}
