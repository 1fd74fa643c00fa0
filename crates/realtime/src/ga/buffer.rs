//! The input side: appended audio, stretches of speech, the items that they become, and the user's words.

use serde_json::json;

use super::behind::Behind;
use super::error::ApiError;
use super::item;
use super::items::Place;
use super::session::Session;
use crate::audio::AudioError;
use crate::call::{Command, ItemKind};
use crate::limits::{MAX_EARLY_BYTES, MAX_TRANSCRIPT_BYTES, MAX_TURNS, escaped_len};

/// A stretch of speech.
#[derive(Debug)]
pub(super) struct Heard {
    turn: u64,
    /// Told before the item exists.
    item: String,
    start_ms: u64,
    end_ms: u64,
    /// The item exists.
    committed: bool,
    /// Words that came before it did.
    early: String,
    /// Its words are complete, or not to be had.
    over: Option<Result<String, String>>,
}

impl Session {
    /// Decodes audio for the call, or says what is wrong with it.
    pub(super) fn append(&mut self, audio: &str) -> Result<(), ApiError> {
        if self.append_refused {
            return Ok(());
        }
        let format = self.settings.input_format();
        let data = format.decode(audio).map_err(|error| {
            let reason = match error {
                AudioError::NotBase64 => "The value is not base64.".to_owned(),
                AudioError::OddLength(bytes) => {
                    format!("The {bytes} bytes end inside a sample: send an even number of bytes.")
                }
            };
            let message = format!("Invalid 'audio'. Expected base64-encoded audio bytes ({format}). {reason}");
            ApiError::invalid_value("audio", message)
        })?;
        if !data.is_empty() {
            self.commands.push_back(Command::AppendInput { format, data });
        }
        Ok(())
    }

    /// Forgets what is not committed.
    pub(super) fn clear_input(&mut self) {
        // The call knows where it stands among what was appended; a commit before it comes first.
        self.commands.push_back(Command::ClearInput);
        if self.waiting.is_empty() || !self.waiting.push(Behind::Cleared) {
            self.cleared();
        }
    }

    pub(super) fn cleared(&mut self) {
        self.heard.retain(|heard| heard.committed);
        self.emit("input_audio_buffer.cleared", json!({}));
    }

    pub(super) fn speech_started(&mut self, turn: u64, audio_start_ms: u64) {
        let heard = self.heard(turn);
        heard.start_ms = audio_start_ms;
        let body = json!({"audio_start_ms": audio_start_ms, "item_id": heard.item});
        self.emit("input_audio_buffer.speech_started", body);
    }

    pub(super) fn speech_stopped(&mut self, turn: u64, audio_end_ms: u64) {
        let heard = self.heard(turn);
        heard.end_ms = audio_end_ms;
        let body = json!({"audio_end_ms": audio_end_ms, "item_id": heard.item});
        self.emit("input_audio_buffer.speech_stopped", body);
    }

    pub(super) fn idle_timeout(&mut self, turn: u64, audio_start_ms: u64, audio_end_ms: u64) {
        let heard = self.heard(turn);
        (heard.start_ms, heard.end_ms) = (audio_start_ms, audio_end_ms);
        let body = json!({"audio_start_ms": audio_start_ms, "audio_end_ms": audio_end_ms, "item_id": heard.item});
        self.emit("input_audio_buffer.timeout_triggered", body);
    }

    /// The stretch is an item, and what was recognized of it so far is told.
    pub(super) fn committed(&mut self, turn: u64) {
        let heard = self.heard(turn);
        if std::mem::replace(&mut heard.committed, true) {
            self.counters.stale_inputs += 1;
            return;
        }
        let id = heard.item.clone();
        let (early, over) = (std::mem::take(&mut heard.early), heard.over.take());
        self.heard.retain(|heard| heard.turn >= turn || heard.committed);
        let item = item::speech(&id, None);
        let previous = self.items.insert(Place::End, &id, &item).unwrap_or_default();
        self.tell_item(&id, previous.clone(), ItemKind::Speech { turn });
        self.emit("input_audio_buffer.committed", json!({"previous_item_id": previous, "item_id": id}));
        self.emit("conversation.item.added", json!({"previous_item_id": previous, "item": item}));
        self.emit("conversation.item.done", json!({"previous_item_id": previous, "item": item}));
        if !early.is_empty() {
            self.tell_words(&id, &early);
        }
        if let Some(over) = over {
            self.user_transcript_over(turn, over);
        }
    }

    /// More of the user's words. Clients know the item only once it exists: until then they wait.
    pub(super) fn user_transcript(&mut self, turn: u64, delta: &str) {
        let Some(index) = self.heard_of(turn) else { return };
        let heard = &mut self.heard[index];
        if escaped_len(delta) > MAX_EARLY_BYTES {
            self.counters.overflows += 1;
        } else if heard.committed {
            let id = heard.item.clone();
            self.tell_words(&id, delta);
        } else if heard.early.len() + delta.len() <= MAX_EARLY_BYTES {
            heard.early.push_str(delta);
        } else {
            self.counters.overflows += 1;
        }
    }

    /// The user's words are complete, or not to be had.
    pub(super) fn user_transcript_over(&mut self, turn: u64, over: Result<String, String>) {
        let Some(index) = self.heard_of(turn) else { return };
        let over = match over {
            Ok(words) if escaped_len(&words) > MAX_TRANSCRIPT_BYTES => Err("The transcript is too long.".to_owned()),
            over => over,
        };
        if !self.heard[index].committed {
            self.heard[index].over = Some(over);
            return;
        }
        let Some(Heard { item, start_ms, end_ms, .. }) = self.heard.remove(index) else { return };
        if !self.settings.transcribes() {
            return;
        }
        match over {
            Ok(transcript) => {
                self.items.replace(&item, &item::speech(&item, Some(&transcript)));
                #[expect(clippy::cast_precision_loss, reason = "a session has some millions of milliseconds")]
                let seconds = end_ms.saturating_sub(start_ms) as f64 / 1000.0;
                self.emit(
                    "conversation.item.input_audio_transcription.completed",
                    json!({"item_id": item, "content_index": 0, "transcript": transcript,
                           "usage": {"type": "duration", "seconds": seconds}}),
                );
            }
            Err(message) => {
                let message: String = message.chars().take(512).collect();
                // Without the fields that are null: clients read this event strictly.
                let error = json!({"type": "transcription_error", "code": "transcription_failed", "message": message});
                self.emit(
                    "conversation.item.input_audio_transcription.failed",
                    json!({"item_id": item, "content_index": 0, "error": error}),
                );
            }
        }
    }

    fn tell_words(&mut self, item: &str, delta: &str) {
        if self.settings.transcribes() {
            self.emit(
                "conversation.item.input_audio_transcription.delta",
                json!({"item_id": item, "content_index": 0, "delta": delta}),
            );
        }
    }

    /// Speech will be an item of that id.
    pub(super) fn is_announced(&self, id: &str) -> bool {
        self.heard.iter().any(|heard| !heard.committed && heard.item == id)
    }

    /// A stretch, begun now if it is not known.
    fn heard(&mut self, turn: u64) -> &mut Heard {
        let index = self.heard.iter().position(|heard| heard.turn == turn).unwrap_or_else(|| {
            if self.heard.len() == MAX_TURNS {
                self.heard.pop_front();
            }
            let item = self.ids.mint("item_");
            let (early, over) = (String::new(), None);
            self.heard.push_back(Heard { turn, item, start_ms: 0, end_ms: 0, committed: false, early, over });
            self.latest_turn = self.latest_turn.max(turn);
            self.heard.len() - 1
        });
        &mut self.heard[index]
    }

    /// The stretch that words belong to. A later one than any that is known begins with them: where the client says when a turn is
    /// over, nothing else tells of it before its commit.
    fn heard_of(&mut self, turn: u64) -> Option<usize> {
        if turn > self.latest_turn {
            self.heard(turn);
        }
        let index = self.heard.iter().position(|heard| heard.turn == turn);
        self.counters.stale_inputs += u64::from(index.is_none());
        index
    }
}
