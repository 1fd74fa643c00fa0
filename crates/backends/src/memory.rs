//! What was said so far in a call, so that another stream can begin where the last one ended.
//!
//! Invariant: it holds at most [`MAX_ITEMS`] items of [`MAX_BYTES`] together, the newest ones, and [`MAX_AUDIO`] samples of the turn that is not
//! answered yet.

use std::collections::VecDeque;
use std::sync::Arc;

use voice::{BackendInput, BackendOutput, Item, ItemKind, ResponseId, Role, Settings, ToolCall, TurnId};

/// As many as a conversation has.
const MAX_ITEMS: usize = 1024;

/// Bytes of all items and their words: more than models read at once (a million characters are 250,000 tokens), and what one of the client's messages may
/// have.
const MAX_BYTES: usize = 1 << 20;

/// Samples kept of a turn without an answer: 30 s at 16 kHz, 20 s at 24 kHz. 960 kB.
const MAX_AUDIO: usize = 480_000;

/// Bytes of what came of a response ahead of its items: words run ahead of their sound by as much.
const MAX_EARLY: usize = 128 << 10;

/// What was said so far.
#[derive(Debug, Default)]
pub struct Memory {
    settings: Option<Arc<Settings>>,
    items: VecDeque<Remembered>,
    bytes: usize,
    snapshot: Vec<u8>,
    connected: bool,
    turn: Turn,
    early: Early,
}

/// What came of the latest response before its items were told: items are told when something of them came.
#[derive(Debug, Default)]
struct Early {
    response: Option<ResponseId>,
    text: String,
    calls: Vec<ToolCall>,
    bytes: usize,
}

/// An item as it is told to whoever did not hear it.
#[derive(Debug)]
struct Remembered {
    item: Item,
    /// The words of speech.
    text: String,
    /// It ends where the user stopped to hear it.
    cut: bool,
}

/// The latest turn of the user's, until it is answered.
#[derive(Debug, Default)]
struct Turn {
    inputs: VecDeque<BackendInput>,
    samples: usize,
    open: bool,
}

impl Memory {
    /// Notes what the dialogue tells the backend.
    pub fn note_input(&mut self, input: &BackendInput) {
        match input {
            BackendInput::Settings(settings) => self.settings = Some(Arc::clone(settings)),
            BackendInput::Connected => self.connected = true,
            BackendInput::Item(item) => self.insert(item),
            BackendInput::ItemDeleted { id } => self.forget_where(|item| item.id == *id),
            BackendInput::ItemTruncated { id, text, .. } => self.truncate(id, text.as_deref()),
            BackendInput::Played { response, samples: 0, .. } => self.unheard(*response),
            _ => self.turn.note(input),
        }
    }

    /// Notes what the backend says.
    pub fn note_output(&mut self, output: &BackendOutput) {
        match output {
            BackendOutput::UserTranscript { turn, text, is_final: true } => self.heard(*turn, text),
            BackendOutput::Text { response, delta, .. } => {
                self.turn.answered();
                self.said(*response, delta);
            }
            BackendOutput::Audio { .. } => self.turn.answered(),
            BackendOutput::ToolCall { response, call } if call.is_final => {
                self.turn.answered();
                self.called(*response, call);
            }
            _ => {}
        }
    }

    /// Keeps what the backend wants back. Of an earlier one nothing is kept.
    pub fn note_snapshot(&mut self, snapshot: Vec<u8>) {
        self.snapshot = snapshot;
    }

    /// It was told what holds.
    #[must_use]
    pub fn has_settings(&self) -> bool {
        self.settings.is_some()
    }

    /// What holds.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.clone().unwrap_or_default()
    }

    /// The latest of the backend's snapshots; empty: there is none.
    #[must_use]
    pub fn snapshot(&self) -> &[u8] {
        &self.snapshot
    }

    /// What was said so far, oldest first, as messages, tool calls and their results.
    #[must_use]
    pub fn history(&self) -> Vec<Item> {
        let mut previous = None;
        let told = self.items.iter().filter_map(Remembered::told).map(|item| {
            let before = previous.replace(item.id.clone());
            Item { previous: before, ..item }
        });
        told.collect()
    }

    /// What has to be said again behind the history: that the user is there, and their turn that was not answered.
    #[must_use]
    pub fn unanswered(&self) -> Vec<BackendInput> {
        let connected = self.connected.then_some(BackendInput::Connected);
        connected.into_iter().chain(self.turn.inputs.iter().cloned()).collect()
    }

    fn insert(&mut self, item: &Item) {
        let behind =
            item.previous.as_ref().and_then(|previous| self.items.iter().rposition(|known| known.item.id == *previous));
        let at = match (behind, &item.previous) {
            (Some(behind), _) => behind + 1,
            (None, None) => 0,
            // It was forgotten: whatever stands behind it is newer than all that was.
            (None, Some(_)) => self.items.len(),
        };
        let remembered = self.early.of(item);
        self.bytes += remembered.size();
        self.items.insert(at, remembered);
        self.shrink();
    }

    fn shrink(&mut self) {
        while (self.items.len() > MAX_ITEMS || self.bytes > MAX_BYTES)
            && let Some(oldest) = self.items.pop_front()
        {
            self.bytes -= oldest.size();
        }
    }

    fn forget_where(&mut self, gone: impl Fn(&Item) -> bool) {
        let bytes = &mut self.bytes;
        self.items.retain(|known| {
            let stays = !gone(&known.item);
            *bytes -= if stays { 0 } else { known.size() };
            stays
        });
    }

    fn truncate(&mut self, id: &str, text: Option<&str>) {
        let Some(known) = self.items.iter_mut().rev().find(|known| known.item.id == id) else { return };
        known.cut = true;
        let Some(text) = text else { return };
        self.bytes = self.bytes + text.len() - known.text.len();
        text.clone_into(&mut known.text);
    }

    fn unheard(&mut self, response: ResponseId) {
        self.forget_where(
            |item| matches!(&item.kind, ItemKind::Output { response: of, call_id: None } if *of == response),
        );
    }

    fn heard(&mut self, turn: Option<TurnId>, text: &str) {
        let spoken = self.items.iter_mut().rev().find(|known| match &known.item.kind {
            ItemKind::Speech { turn: of } => turn.is_none_or(|turn| turn == *of),
            _ => false,
        });
        if let Some(known) = spoken {
            self.bytes = self.bytes + text.len() - known.text.len();
            text.clone_into(&mut known.text);
            self.shrink();
        }
    }

    fn said(&mut self, response: ResponseId, delta: &str) {
        let made = self.items.iter_mut().rev().find(
            |known| matches!(&known.item.kind, ItemKind::Output { response: of, call_id: None } if *of == response),
        );
        match made {
            None => self.early.said(response, delta),
            Some(known) if known.cut => {}
            Some(known) => {
                known.text.push_str(delta);
                self.bytes += delta.len();
                self.shrink();
            }
        }
    }

    fn called(&mut self, response: ResponseId, call: &ToolCall) {
        let made = self.items.iter_mut().rev().find(|known| {
            matches!(&known.item.kind, ItemKind::Output { response: of, call_id: Some(id) } if *of == response && *id == call.call_id)
        });
        let Some(known) = made else { return self.early.called(response, call) };
        self.bytes -= known.size();
        known.item.kind = kind(call.clone());
        self.bytes += known.size();
        self.shrink();
    }
}

fn kind(call: ToolCall) -> ItemKind {
    let ToolCall { call_id, name, arguments, .. } = call;
    ItemKind::ToolCall { call_id, name, arguments }
}

impl Early {
    /// Whether there is room for more of a response. Of an earlier one nothing is kept.
    fn takes(&mut self, response: ResponseId, bytes: usize) -> bool {
        if self.response != Some(response) {
            *self = Self { response: Some(response), ..Self::default() };
        }
        let fits = self.bytes + bytes <= MAX_EARLY;
        self.bytes += if fits { bytes } else { 0 };
        fits
    }

    fn said(&mut self, response: ResponseId, delta: &str) {
        if self.takes(response, delta.len()) {
            self.text.push_str(delta);
        }
    }

    fn called(&mut self, response: ResponseId, call: &ToolCall) {
        if self.takes(response, call.call_id.len() + call.name.len() + call.arguments.len()) {
            self.calls.push(call.clone());
        }
    }

    /// An item with what came of it.
    fn of(&mut self, item: &Item) -> Remembered {
        let mut remembered = Remembered { item: item.clone(), text: String::new(), cut: false };
        match &item.kind {
            ItemKind::Output { response, call_id: None } if self.response == Some(*response) => {
                remembered.text = std::mem::take(&mut self.text);
            }
            ItemKind::Output { response, call_id: Some(id) } if self.response == Some(*response) => {
                if let Some(at) = self.calls.iter().position(|call| call.call_id == *id) {
                    remembered.item.kind = kind(self.calls.swap_remove(at));
                }
            }
            _ => {}
        }
        remembered
    }
}

impl Remembered {
    /// Bytes that count.
    fn size(&self) -> usize {
        let kind = match &self.item.kind {
            ItemKind::Message { text, .. } => text.len(),
            ItemKind::ToolCall { name, arguments, .. } => name.len() + arguments.len(),
            ItemKind::ToolResult { output, .. } => output.len(),
            ItemKind::Speech { .. } | ItemKind::Output { .. } | ItemKind::Other => 0,
        };
        self.item.id.len() + self.item.json.len() + self.text.len() + kind
    }

    /// `None`: nothing is known of what it said.
    fn told(&self) -> Option<Item> {
        let role = match &self.item.kind {
            ItemKind::Speech { .. } => Role::User,
            ItemKind::Output { call_id: None, .. } => Role::Assistant,
            ItemKind::Output { call_id: Some(_), .. } => return None,
            _ => return Some(self.item.clone()),
        };
        let text = self.text.clone();
        let kind = ItemKind::Message { role, text };
        (!self.text.is_empty()).then(|| Item { kind, previous: None, ..self.item.clone() })
    }
}

impl Turn {
    fn note(&mut self, input: &BackendInput) {
        match input {
            BackendInput::SpeechStarted { .. } => {
                self.answered();
                self.open = true;
                self.inputs.push_back(input.clone());
            }
            BackendInput::Audio { pcm, .. } if self.open => {
                self.samples += pcm.len();
                self.inputs.push_back(input.clone());
                self.shrink();
            }
            BackendInput::SpeechStopped { .. } if self.open => self.inputs.push_back(input.clone()),
            BackendInput::Commit { .. } if self.open => {
                self.inputs.push_back(input.clone());
                self.open = false;
            }
            _ => {}
        }
    }

    fn shrink(&mut self) {
        while self.samples > MAX_AUDIO
            && let Some(at) = self.inputs.iter().position(|input| matches!(input, BackendInput::Audio { .. }))
            && let Some(BackendInput::Audio { pcm, .. }) = self.inputs.remove(at)
        {
            self.samples -= pcm.len();
        }
    }

    /// What follows is of another one.
    fn answered(&mut self) {
        if !self.open {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: &str, previous: Option<&str>, kind: ItemKind) -> BackendInput {
        let previous = previous.map(str::to_owned);
        BackendInput::Item(Box::new(Item { id: id.to_owned(), previous, kind, json: String::new() }))
    }

    fn message(role: Role, text: &str) -> ItemKind {
        ItemKind::Message { role, text: text.to_owned() }
    }

    fn texts(memory: &Memory) -> Vec<(String, ItemKind)> {
        memory.history().into_iter().map(|item| (item.id, item.kind)).collect()
    }

    fn talk(memory: &mut Memory) {
        let (turn, response) = (TurnId(1), ResponseId(1));
        memory.note_input(&item("a", None, ItemKind::Speech { turn }));
        let said = "How are you?".to_owned();
        memory.note_output(&BackendOutput::UserTranscript { turn: Some(turn), text: said, is_final: true });
        memory.note_input(&item("b", Some("a"), ItemKind::Output { response, call_id: None }));
        for delta in ["I am well. ", "And you?"] {
            memory.note_output(&BackendOutput::Text { response, delta: delta.to_owned(), words: Vec::new() });
        }
    }

    #[test]
    fn speech_is_remembered_by_its_words() {
        let mut memory = Memory::default();
        talk(&mut memory);
        let expected = [
            ("a".to_owned(), message(Role::User, "How are you?")),
            ("b".to_owned(), message(Role::Assistant, "I am well. And you?")),
        ];
        assert_eq!(texts(&memory), expected);
        assert_eq!(memory.history()[1].previous.as_deref(), Some("a"));
    }

    #[test]
    fn a_reply_is_remembered_as_far_as_it_was_heard() {
        let mut memory = Memory::default();
        talk(&mut memory);
        let cut = BackendInput::ItemTruncated { id: "b".to_owned(), audio_end_ms: 700, text: Some("I am".to_owned()) };
        memory.note_input(&cut);
        let late = BackendOutput::Text { response: ResponseId(1), delta: " Good.".to_owned(), words: Vec::new() };
        memory.note_output(&late);
        assert_eq!(texts(&memory)[1].1, message(Role::Assistant, "I am"));
        memory.note_input(&BackendInput::Played { response: ResponseId(1), samples: 0, heard_at: None });
        assert_eq!(texts(&memory).len(), 1);
    }

    #[test]
    fn what_came_of_a_response_before_its_items_is_remembered() {
        let mut memory = Memory::default();
        let response = ResponseId(1);
        let text = |of, delta: &str| BackendOutput::Text { response: of, delta: delta.to_owned(), words: Vec::new() };
        memory.note_output(&text(ResponseId(0), "Before. "));
        memory.note_output(&text(response, "Let me "));
        let call =
            ToolCall { call_id: "c".to_owned(), name: "look".to_owned(), arguments: "{}".to_owned(), is_final: true };
        memory.note_output(&BackendOutput::ToolCall { response, call });
        memory.note_input(&item("a", None, ItemKind::Output { response, call_id: None }));
        memory.note_output(&text(response, "look."));
        memory.note_input(&item("b", Some("a"), ItemKind::Output { response, call_id: Some("c".to_owned()) }));
        let called =
            ItemKind::ToolCall { call_id: "c".to_owned(), name: "look".to_owned(), arguments: "{}".to_owned() };
        let expected = [("a".to_owned(), message(Role::Assistant, "Let me look.")), ("b".to_owned(), called)];
        assert_eq!(texts(&memory), expected);
    }

    #[test]
    fn a_turn_without_an_answer_is_said_again_and_one_with_an_answer_is_not() {
        let mut memory = Memory::default();
        let turn = TurnId(4);
        let inputs = [
            BackendInput::SpeechStarted { turn },
            BackendInput::Audio { pcm: vec![1; 320], media_time: 0 },
            BackendInput::SpeechStopped { turn, from: 0, to: 960 },
            BackendInput::Commit { turn },
        ];
        let silence = BackendInput::Audio { pcm: vec![0; 320], media_time: 960 };
        for input in inputs.iter().chain([&silence]) {
            memory.note_input(input);
        }
        assert_eq!(memory.unanswered(), inputs);
        let audio = voice::AgentAudio::Pcm(vec![0; 320]);
        memory.note_output(&BackendOutput::Audio { response: ResponseId(1), audio });
        assert!(memory.unanswered().is_empty());
    }

    #[test]
    fn speech_that_goes_on_over_a_reply_is_kept() {
        let mut memory = Memory::default();
        memory.note_input(&BackendInput::SpeechStarted { turn: TurnId(1) });
        let audio = voice::AgentAudio::Pcm(vec![0; 320]);
        memory.note_output(&BackendOutput::Audio { response: ResponseId(1), audio });
        assert_eq!(memory.unanswered(), [BackendInput::SpeechStarted { turn: TurnId(1) }]);
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes() {
        let mut memory = Memory::default();
        for n in 0..40 {
            let previous = (n > 0).then(|| format!("i{}", n - 1));
            let text = "x".repeat(64 << 10);
            memory.note_input(&item(&format!("i{n}"), previous.as_deref(), message(Role::User, &text)));
        }
        let history = memory.history();
        assert!(memory.bytes <= MAX_BYTES);
        assert_eq!((history.len(), history.last().map(|item| item.id.as_str())), (15, Some("i39")));
        memory.note_input(&BackendInput::SpeechStarted { turn: TurnId(1) });
        for n in 0..40_u64 {
            memory.note_input(&BackendInput::Audio { pcm: vec![0; 16_000], media_time: n * 48_000 });
        }
        assert_eq!(memory.turn.samples, MAX_AUDIO);
        assert_eq!(memory.unanswered()[0], BackendInput::SpeechStarted { turn: TurnId(1) });
    }
}
