//! Items that clients create: reading them, and what of them is kept and repeated.

use serde_json::{Map, Value, json};

use super::error::{ApiError, shown};
use super::patch::Patch;
use crate::call::{ItemKind, Role};
use crate::limits::{MAX_ITEM_BYTES, MAX_NAME_BYTES};

/// Items that are kept and passed on as they are.
const OPAQUE: [&str; 4] = ["mcp_approval_request", "mcp_approval_response", "mcp_call", "mcp_list_tools"];

/// An item as a client wrote it.
#[derive(Debug)]
pub(crate) struct NewItem {
    /// `None`: it is to be named.
    pub(crate) id: Option<String>,
    pub(crate) kind: ItemKind,
    /// Complete but for its name.
    pub(crate) json: Map<String, Value>,
}

/// Reads an item; fields not known here stay in it. `call_id` names a tool call that came without a name.
pub(crate) fn read(mut item: Map<String, Value>, call_id: impl FnOnce() -> String) -> Result<NewItem, ApiError> {
    let id = Patch::take(&mut item, "id").read(|id| name("item.id", &id))?.value();
    let kind = match item.get("type").and_then(Value::as_str) {
        Some("message") => message(&mut item)?,
        Some("function_call") => {
            let call_id = match Patch::take(&mut item, "call_id").read(|id| name("item.call_id", &id))?.value() {
                Some(id) => id,
                None => call_id(),
            };
            item.insert("call_id".to_owned(), call_id.clone().into());
            let arguments = text(&item, "arguments")?;
            ItemKind::ToolCall { call_id, name: needed(&item, "name")?, arguments }
        }
        Some("function_call_output") => {
            ItemKind::ToolResult { call_id: needed(&item, "call_id")?, output: text(&item, "output")? }
        }
        Some(kind) if OPAQUE.contains(&kind) => ItemKind::Other,
        Some(kind) => {
            let message = format!(
                "Invalid value: '{}'. Supported values are: 'message', 'function_call' and 'function_call_output'.",
                shown(kind)
            );
            return Err(ApiError::invalid_value("item.type", message));
        }
        None => return Err(ApiError::missing("item.type")),
    };
    item.insert("object".to_owned(), "realtime.item".into());
    // What a client puts here exists as a whole, whatever it says of it.
    item.insert("status".to_owned(), "completed".into());
    Ok(NewItem { id, kind, json: item })
}

fn message(item: &mut Map<String, Value>) -> Result<ItemKind, ApiError> {
    let role = match item.get("role").and_then(Value::as_str) {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        None => return Err(ApiError::missing("item.role")),
        Some(_) => {
            let message = "Supported values are: 'system', 'user' and 'assistant'.";
            return Err(ApiError::invalid_value("item.role", message));
        }
    };
    let Some(Value::Array(parts)) = item.get_mut("content") else {
        return Err(ApiError::invalid_value("item.content", "'item.content' is not an array."));
    };
    let mut texts = Vec::new();
    for (index, part) in parts.iter_mut().enumerate() {
        let param = format!("item.content[{index}]");
        let wrong = |allowed: &str| ApiError::invalid_value(&param, format!("'{param}' is not {allowed}."));
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
        let (kind, field) = match (role, kind) {
            (Role::System | Role::User, "input_text") => ("input_text", "text"),
            (Role::User, "input_audio") => ("input_audio", "transcript"),
            (Role::User, "input_image") => ("input_image", ""),
            // Also as these were called before.
            (Role::Assistant, "output_text" | "text") => ("output_text", "text"),
            (Role::Assistant, "output_audio" | "audio") => ("output_audio", "transcript"),
            (Role::System, _) => return Err(wrong("of type 'input_text'")),
            (Role::User, _) => return Err(wrong("of type 'input_text', 'input_audio' or 'input_image'")),
            (Role::Assistant, _) => return Err(wrong("of type 'output_text' or 'output_audio'")),
        };
        match part.get(field) {
            Some(Value::String(text)) => texts.push(text.clone()),
            None | Some(Value::Null) if field != "text" => {}
            _ => return Err(wrong(&format!("a part with a string '{field}'"))),
        }
        part["type"] = kind.into();
    }
    Ok(ItemKind::Message { role, text: texts.join("\n") })
}

/// What is kept of an item: all of it, or where that is too much, all but its images and audio. `None`: that is too much too.
pub(crate) fn kept(item: Value) -> Option<Value> {
    if item.to_string().len() <= MAX_ITEM_BYTES {
        return Some(item);
    }
    let item = without(item, |part| {
        part.remove("audio");
        if let Some(Value::String(url)) = part.get_mut("image_url") {
            // `data:image/png;base64,` remains of it, which is a URL too.
            url.truncate(url.find(',').map_or(0, |comma| comma + 1));
        }
    });
    (item.to_string().len() <= MAX_ITEM_BYTES).then_some(item)
}

/// What events repeat: all but audio, which has to be asked for.
pub(crate) fn echoed(item: Value) -> Value {
    without(item, |part| {
        part.remove("audio");
    })
}

fn without(mut item: Value, mut strip: impl FnMut(&mut Map<String, Value>)) -> Value {
    if let Some(Value::Array(parts)) = item.get_mut("content") {
        parts.iter_mut().filter_map(Value::as_object_mut).for_each(&mut strip);
    }
    item
}

/// The item that speech becomes.
pub(crate) fn speech(id: &str, transcript: Option<&str>) -> Value {
    json!({
        "id": id,
        "object": "realtime.item",
        "type": "message",
        "status": "completed",
        "role": "user",
        "content": [{"type": "input_audio", "transcript": transcript}],
    })
}

fn name(param: &str, value: &Value) -> Result<String, ApiError> {
    match value.as_str().filter(|name| !name.is_empty() && name.len() <= MAX_NAME_BYTES) {
        Some(name) => Ok(name.to_owned()),
        None => {
            let message = format!("'{param}' is not a string of 1 to {MAX_NAME_BYTES} bytes.");
            Err(ApiError::invalid_value(param, message))
        }
    }
}

fn needed(item: &Map<String, Value>, field: &str) -> Result<String, ApiError> {
    let param = format!("item.{field}");
    name(&param, item.get(field).ok_or_else(|| ApiError::missing(&param))?)
}

fn text(item: &Map<String, Value>, field: &str) -> Result<String, ApiError> {
    let param = format!("item.{field}");
    match item.get(field) {
        Some(Value::String(text)) => Ok(text.clone()),
        None => Err(ApiError::missing(&param)),
        Some(_) => Err(ApiError::invalid_value(&param, format!("'{param}' is not a string."))),
    }
}
