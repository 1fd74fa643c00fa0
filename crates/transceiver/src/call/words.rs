//! The words of `voice` and `realtime` translated into each other.

use realtime::{
    CancelReason, Command, CreateRefusal, Dialect, Input, Item, Modality, ModelSettings, ResponseRequest, TurnDetection,
};
use voice::{
    BackendInput, Event, Failure, FlushReason, IncompleteReason, ItemKind, Overrides, Request, ResponseId, Role,
    ServerVad, Settings, ToolCall, TurnConfig, TurnId, Usage,
};

/// Answers the commands of a call that has no dialogue.
pub(super) fn refuse(api: &mut realtime::Session, command: &Command) {
    match command {
        Command::CreateResponse(_) => api.handle(Input::CreateRefused(CreateRefusal::Unsupported)),
        Command::Cancel => api.handle(Input::CancelRefused),
        Command::CommitInput => api.handle(Input::CommitRefused),
        Command::AppendInput { .. } => api.handle(Input::AppendRefused),
        Command::UpdateTurn(_)
        | Command::UpdateModel(_)
        | Command::ClearOutput
        | Command::ClearInput
        | Command::AddItem(_)
        | Command::DeleteItem { .. }
        | Command::TruncateItem { .. }
        | Command::ClientDelay { .. } => {}
    }
}

/// Turn detection as configured, in the API's words.
pub(super) fn api_vad(config: &voice::Config) -> realtime::Vad {
    config.turn.server_vad.as_ref().map_or_else(realtime::Vad::default, |vad| realtime::Vad {
        threshold: vad.threshold,
        prefix_padding_ms: vad.prefix_padding_ms,
        silence_duration_ms: vad.silence_duration_ms,
        idle_timeout_ms: vad.idle_timeout_ms,
        eagerness: vad.eagerness.map(|eagerness| match eagerness {
            voice::Eagerness::Low => realtime::Eagerness::Low,
            voice::Eagerness::Medium => realtime::Eagerness::Medium,
            voice::Eagerness::High => realtime::Eagerness::High,
            voice::Eagerness::Auto => realtime::Eagerness::Auto,
        }),
        create_response: vad.create_response,
        interrupt_response: vad.interrupt_response,
    })
}

/// Turns that neither ask for answers nor interrupt.
pub(super) fn one_sided(config: &voice::Config) -> TurnConfig {
    let vad = config.turn.server_vad.clone().unwrap_or_default();
    TurnConfig { server_vad: Some(ServerVad { create_response: false, interrupt_response: false, ..vad }) }
}

/// What holds for a session.
pub(super) fn settings(model: ModelSettings) -> Settings {
    Settings {
        transcribes_only: model.transcribes_only,
        text_only: model.modality == Modality::Text,
        instructions: model.instructions,
        tools: model.tools,
        tool_choice: model.tool_choice,
        voice: model.voice,
        speed: model.speed,
        max_output_tokens: model.max_output_tokens,
        transcription: model.transcription,
        json: model.json,
    }
}

/// What the client asks of one response.
pub(super) fn request(request: ResponseRequest) -> Request {
    let ResponseRequest { modality, out_of_band, instructions, json } = request;
    let overrides = (!json.is_empty()).then(|| Box::new(Overrides { out_of_band, instructions, json }));
    Request { text_only: modality == Modality::Text, overrides }
}

/// An item of the conversation.
pub(super) fn item(item: Item) -> BackendInput {
    use realtime::ItemKind as Kind;
    let kind = match item.kind {
        Kind::Speech { turn } => ItemKind::Speech { turn: TurnId(turn) },
        Kind::Output { response, call_id } => ItemKind::Output { response: ResponseId(response), call_id },
        Kind::Message { role, text } => {
            let role = match role {
                realtime::Role::System => Role::System,
                realtime::Role::User => Role::User,
                realtime::Role::Assistant => Role::Assistant,
            };
            ItemKind::Message { role, text }
        }
        Kind::ToolCall { call_id, name, arguments } => ItemKind::ToolCall { call_id, name, arguments },
        Kind::ToolResult { call_id, output } => ItemKind::ToolResult { call_id, output },
        Kind::Other => ItemKind::Other,
    };
    BackendInput::Item(Box::new(voice::Item { id: item.id, previous: item.previous, kind, json: item.json }))
}

pub(super) fn turn_config(turn: TurnDetection) -> TurnConfig {
    let server_vad = match turn {
        TurnDetection::Manual => None,
        TurnDetection::Vad(vad) => Some(ServerVad {
            threshold: vad.threshold,
            prefix_padding_ms: vad.prefix_padding_ms,
            silence_duration_ms: vad.silence_duration_ms,
            idle_timeout_ms: vad.idle_timeout_ms,
            eagerness: vad.eagerness.map(|eagerness| match eagerness {
                realtime::Eagerness::Low => voice::Eagerness::Low,
                realtime::Eagerness::Medium => voice::Eagerness::Medium,
                realtime::Eagerness::High => voice::Eagerness::High,
                realtime::Eagerness::Auto => voice::Eagerness::Auto,
            }),
            create_response: vad.create_response,
            interrupt_response: vad.interrupt_response,
        }),
    };
    TurnConfig { server_vad }
}

/// What the API is told of an event. `None`: nothing.
pub(super) fn input_of(event: Event) -> Option<Input> {
    Some(match event {
        Event::Decision(_) | Event::InputSilent { .. } | Event::AudioMislabeled { .. } => return None,
        Event::KeyPressed { key, audio_ms } => Input::KeyPressed { key, audio_ms },
        Event::SpeechStarted { turn, audio_start_ms } => Input::SpeechStarted { turn: turn.0, audio_start_ms },
        Event::SpeechStopped { turn, audio_end_ms } => Input::SpeechStopped { turn: turn.0, audio_end_ms },
        Event::Committed { turn } => Input::Committed { turn: turn.0 },
        Event::IdleTimeout { turn, audio_start_ms, audio_end_ms } => {
            Input::IdleTimeout { turn: turn.0, audio_start_ms, audio_end_ms }
        }
        Event::ResponseCreated { response } => Input::ResponseCreated { response: response.0 },
        Event::ResponseAudioStarted { response, .. } => Input::ResponseAudioStarted { response: response.0 },
        Event::ResponseText { response, delta } => Input::ResponseText { response: response.0, delta },
        Event::ToolCall { response, call: ToolCall { call_id, name, arguments, is_final } } => {
            let response = response.0;
            if is_final {
                Input::ToolCallDone { response, call_id, name, arguments }
            } else {
                Input::ToolCallDelta { response, call_id, name, delta: arguments }
            }
        }
        Event::UserTranscript { turn, text, is_final: true } => {
            Input::UserTranscriptDone { turn: turn.0, transcript: text }
        }
        Event::UserTranscript { turn, text, is_final: false } => Input::UserTranscript { turn: turn.0, delta: text },
        Event::ResponseUsage { response, usage } => Input::ResponseUsage { response: response.0, usage: tokens(usage) },
        Event::ResponseDone { response, .. } => Input::ResponseDone { response: response.0 },
        Event::ResponseIncomplete { response, reason, .. } => {
            let reason = match reason {
                IncompleteReason::MaxOutputTokens => realtime::IncompleteReason::MaxOutputTokens,
                IncompleteReason::ContentFilter => realtime::IncompleteReason::ContentFilter,
            };
            Input::ResponseIncomplete { response: response.0, reason }
        }
        Event::ResponseCancelled { response, reason } => {
            let reason = match reason {
                FlushReason::TurnDetected => CancelReason::TurnDetected,
                FlushReason::ClientCancelled => CancelReason::ClientCancelled,
            };
            Input::ResponseCancelled { response: response.0, reason }
        }
        Event::ResponseFailed { response, failure } => {
            Input::ResponseFailed { response: response.0, failure: told(failure) }
        }
        Event::BackendFailed(failure) => Input::ModelFailed(told(failure)),
        Event::PlayoutStarted { response } => Input::PlayoutStarted { response: response.0 },
        Event::PlayoutStopped { response } => Input::PlayoutStopped { response: response.0 },
        Event::PlayoutCleared { response, .. } => Input::PlayoutCleared { response: response.0 },
        Event::Truncated { response, played_end, text, .. } => {
            Input::Truncated { response: response.0, audio_end_ms: played_end / 48, transcript: text }
        }
        Event::ReplyOver(balance) => Input::ReplyOver { response: balance.response.0 },
    })
}

fn told(failure: Failure) -> realtime::Failure {
    let Failure { kind, code, message } = failure;
    realtime::Failure { kind, code, message }
}

fn tokens(usage: Usage) -> realtime::Usage {
    let Usage { input_text, input_audio, input_image, cached, output_text, output_audio } = usage;
    realtime::Usage { input_text, input_audio, input_image, cached, output_text, output_audio }
}
