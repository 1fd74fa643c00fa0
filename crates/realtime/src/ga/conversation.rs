//! What clients do with items: create, retrieve, truncate, delete.

use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::items::Place;
use super::response::{Message, Response};
use super::session::Session;
use super::{item, truncation};
use crate::call::{Command, Item};
use crate::limits::MAX_ITEM_BYTES;

/// The place ahead of all items.
const ROOT: &str = "root";

impl Session {
    /// Puts an item into the conversation; it is there as a whole, so it is added and done at once.
    pub(super) fn create_item(&mut self, previous: Option<&str>, fields: Map<String, Value>) -> Result<(), ApiError> {
        let new = item::read(fields, || self.ids.mint("call_"))?;
        if let Some(id) = new.id.as_deref().filter(|id| self.is_taken(id)) {
            return Err(ApiError::item_duplicate(id));
        }
        let place = match previous {
            None => Place::End,
            Some(ROOT) => Place::Begin,
            Some(id) if self.items.contains(id) => Place::Behind(id),
            Some(id) => return Err(ApiError::item_previous(id)),
        };
        let id = new.id.unwrap_or_else(|| self.ids.mint("item_"));
        let mut fields = new.json;
        fields.insert("id".to_owned(), id.clone().into());
        let whole = Value::Object(fields);
        let json = whole.to_string();
        let kept = item::kept(whole).ok_or_else(|| ApiError::item_too_large(MAX_ITEM_BYTES))?;
        let previous = self.items.insert(place, &id, &kept).unwrap_or_default();
        let body = json!({"previous_item_id": previous, "item": item::echoed(kept)});
        self.emit("conversation.item.added", body.clone());
        self.emit("conversation.item.done", body);
        self.commands.push_back(Command::AddItem(Box::new(Item { id, previous, kind: new.kind, json })));
        Ok(())
    }

    /// There is an item of that id, or one is announced.
    fn is_taken(&self, id: &str) -> bool {
        self.items.contains(id) || self.is_announced(id) || self.responses.iter().any(|response| response.makes(id))
    }

    /// The item as it is: the client's own copy of a cut one has words that nobody heard.
    pub(super) fn retrieve_item(&mut self, id: &str) -> Result<(), ApiError> {
        let item = self.items.get(id).ok_or_else(|| ApiError::item_retrieve(id))?;
        self.emit("conversation.item.retrieved", json!({"item": item}));
        Ok(())
    }

    /// Ends an item of the model's where the client stopped playing it.
    pub(super) fn truncate_item(&mut self, id: String, content_index: u64, asked_ms: u64) -> Result<(), ApiError> {
        let item = self.items.get(&id).ok_or_else(|| ApiError::item_truncate(&id))?;
        let making = self.responses.iter_mut().find(|response| message_of(response, &id).is_some());
        let speaks = match &making {
            Some(response) => !response.is_text(),
            None => {
                item["role"] == "assistant" && item.pointer("/content/0/type").is_some_and(|it| it == "output_audio")
            }
        };
        if !speaks {
            return Err(ApiError::truncate_unsupported());
        }
        if content_index != 0 {
            return Err(ApiError::invalid_value(
                "content_index",
                "The item has one part of content, whose index is 0.",
            ));
        }
        let has_ms = self.items.spoken_ms(&id);
        let audio_end_ms = truncation::end_ms(asked_ms, has_ms, self.strict_truncation)?;
        let cut = |text: &str| (!text.is_empty()).then(|| truncation::words(text, audio_end_ms, has_ms).to_owned());
        let transcript = match making {
            // Its end was not told yet: it will be told as cut.
            Some(response) if response.is_active() || response.is_held() => {
                let words = message_of(response, &id).and_then(|message| cut(&message.text));
                response.truncate(words.as_deref().or(Some("")));
                words
            }
            _ => {
                let words = item.pointer("/content/0/transcript").and_then(Value::as_str).and_then(cut);
                self.cut_item(&id, item, words.as_deref().or(Some("")));
                words
            }
        };
        self.items.set_spoken(&id, audio_end_ms);
        self.tell_truncated(&id, audio_end_ms);
        self.commands.push_back(Command::TruncateItem { item: id, audio_end_ms, transcript });
        Ok(())
    }

    pub(super) fn delete_item(&mut self, id: String) -> Result<(), ApiError> {
        if !self.items.remove(&id) {
            return Err(ApiError::item_delete(&id));
        }
        self.emit("conversation.item.deleted", json!({"item_id": id}));
        self.commands.push_back(Command::DeleteItem { item: id });
        Ok(())
    }

    /// An item whose end was told ends earlier after all. `None`: its words are not known.
    pub(super) fn cut_item(&mut self, id: &str, mut item: Value, transcript: Option<&str>) {
        item["status"] = "incomplete".into();
        if let (Some(transcript), Some(part @ Value::Object(_))) = (transcript, item.pointer_mut("/content/0")) {
            part["transcript"] = transcript.into();
        }
        self.items.replace(id, &item);
    }

    pub(super) fn tell_truncated(&mut self, id: &str, audio_end_ms: u64) {
        let body = json!({"item_id": id, "content_index": 0, "audio_end_ms": audio_end_ms});
        self.emit("conversation.item.truncated", body);
    }
}

fn message_of<'a>(response: &'a Response, id: &str) -> Option<&'a Message> {
    response.message.as_ref().filter(|message| message.place.id == id)
}
