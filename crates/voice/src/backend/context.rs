//! What a backend knows before and beside speech: settings, items, and what is asked of one response.
//!
//! Bounds are those of the API's machine, which makes all of it: settings are 192 KiB as JSON, and a request or an item is at most the client's
//! message of 1 MiB. What a backend keeps of it is for the backend to bound.

use super::{ResponseId, TurnId};

/// What holds for a session. What is known here is typed; the rest is in the JSON.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// The user's words alone are wanted: no response is ever asked for.
    pub transcribes_only: bool,
    /// Responses are wanted as text, unless one is asked for as speech.
    pub text_only: bool,
    /// What the model is to be and to do.
    pub instructions: String,
    /// The tools it may call: a JSON array.
    pub tools: String,
    /// Which of them, as JSON.
    pub tool_choice: String,
    /// Its voice, by name; JSON if the client named it otherwise.
    pub voice: String,
    /// How fast it speaks, 0.25 to 1.5.
    pub speed: f64,
    /// At most so many tokens in a response. `None`: any number.
    pub max_output_tokens: Option<u32>,
    /// The user's words are wanted: the settings for that, as JSON.
    pub transcription: Option<String>,
    /// All of the session as its client sees it: a JSON object, fields not known here among it (`temperature`...).
    pub json: String,
}

/// What one response is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// It is wanted as text: sound of it is not played.
    pub text_only: bool,
    /// What the client asks of this one alone. `None`: the settings hold.
    pub overrides: Option<Box<Overrides>>,
}

/// What a client asks of one response alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// It does not become part of the conversation.
    pub out_of_band: bool,
    /// Instead of the settings' instructions.
    pub instructions: Option<String>,
    /// The request as the client wrote it, a JSON object: input, tools and what else there is.
    pub json: String,
}

/// An item of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its name, by which it is deleted and truncated.
    pub id: String,
    /// The item that it stands behind. `None`: it is the first.
    pub previous: Option<String>,
    /// What it is.
    pub kind: ItemKind,
    /// All of it as the client wrote it: a JSON object. Empty: it was made here.
    pub json: String,
}

/// What an item is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemKind {
    /// The user's speech; told behind the turn's [`Commit`](super::BackendInput::Commit).
    Speech {
        /// Which stretch.
        turn: TurnId,
    },
    /// What the backend makes in a response; told when its first word or sound comes.
    Output {
        /// Which.
        response: ResponseId,
        /// The call of a tool. `None`: the response's message.
        call_id: Option<String>,
    },
    /// Something written, or said before this session.
    Message {
        /// By whom.
        role: Role,
        /// Its texts and transcripts, one per line; images and audio are in the JSON.
        text: String,
    },
    /// A call of a tool from before this session.
    ToolCall {
        /// Names the call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// JSON text.
        arguments: String,
    },
    /// What a tool returned.
    ToolResult {
        /// Of which call.
        call_id: String,
        /// As the tool wrote it.
        output: String,
    },
    /// Of another type, which the JSON tells.
    Other,
}

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The application.
    System,
    /// The user.
    User,
    /// The agent.
    Assistant,
}
