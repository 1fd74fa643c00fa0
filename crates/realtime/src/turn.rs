//! How turns are found, in no dialect's words.

/// How turns are found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TurnDetection {
    /// The client commits by itself.
    Manual,
    /// Silence ends a turn.
    Vad(Vad),
}

/// Numbers of `server_vad`; `semantic_vad` has an eagerness instead of a silence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vad {
    /// Speech probability from which audio counts as speech.
    pub threshold: f32,
    /// Audio before the onset that belongs to the turn.
    pub prefix_padding_ms: u32,
    /// Silence that ends a turn of `server_vad`.
    pub silence_duration_ms: u32,
    /// `server_vad` answers a silence of this length after a response.
    pub idle_timeout_ms: Option<u32>,
    /// `semantic_vad`, and how soon it takes silence for the end.
    pub eagerness: Option<Eagerness>,
    /// The end of a turn asks for a response.
    pub create_response: bool,
    /// Speech interrupts a response.
    pub interrupt_response: bool,
}

/// `eagerness` of `semantic_vad`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eagerness {
    /// Lets the user take their time.
    Low,
    /// In between.
    Medium,
    /// Answers soon.
    High,
    /// The same as medium.
    Auto,
}

impl Eagerness {
    pub(crate) const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Auto];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Auto => "auto",
        }
    }
}

impl Default for Vad {
    /// The API's own.
    fn default() -> Self {
        Self {
            threshold: 0.5,
            prefix_padding_ms: 300,
            silence_duration_ms: 500,
            idle_timeout_ms: None,
            eagerness: None,
            create_response: true,
            interrupt_response: true,
        }
    }
}
