//! The words of `voice` and of the protocol translated into each other.

use voice::{
    AgentAudio, BackendInput, BackendOutput, Failure, IncompleteReason, Item, ItemKind, Request, ResponseId, Role,
    Settings, TurnId, WordTime,
};

use super::proto::{self, input, item, output, speak};
use crate::Told;
use crate::driver::Beginning;

/// Rates of PCM that are resampled from, in Hz.
const RATES: std::ops::RangeInclusive<u32> = 8000..=48_000;

/// Bytes of what a backend wants back.
const SNAPSHOT_MAX: usize = 256 << 10;

pub(super) fn start(beginning: Beginning) -> proto::Input {
    let Beginning { session, settings: holds, history, snapshot, reopened } = beginning;
    let kind = input::Kind::Start(proto::Start {
        session: session.name,
        model: session.model,
        rate: session.rate,
        settings: Some(settings(&holds)),
        history: history.into_iter().map(item).collect(),
        snapshot,
        reopened,
    });
    proto::Input { kind: Some(kind) }
}

pub(super) fn input(input: BackendInput) -> proto::Input {
    use input::Kind;
    let kind = match input {
        BackendInput::Settings(holds) => Kind::Settings(settings(&holds)),
        BackendInput::Connected => Kind::Connected(proto::Connected {}),
        BackendInput::Audio { pcm, media_time } => Kind::Audio(audio(&pcm, media_time)),
        BackendInput::SpeechStarted { turn } => Kind::SpeechStarted(proto::SpeechStarted { turn: turn.0 }),
        BackendInput::Correction { pcm, media_time } => Kind::Correction(audio(&pcm, media_time)),
        BackendInput::Key { key, media_time } => Kind::Key(proto::Key { key: key.to_string(), media_time }),
        BackendInput::SpeechStopped { turn, from, to } => {
            Kind::SpeechStopped(proto::SpeechStopped { turn: turn.0, from, to })
        }
        BackendInput::Commit { turn } => Kind::Commit(proto::Commit { turn: turn.0 }),
        BackendInput::Item(told) => Kind::Item(item(*told)),
        BackendInput::ItemDeleted { id } => Kind::ItemDeleted(proto::ItemDeleted { id }),
        BackendInput::ItemTruncated { id, audio_end_ms, text } => {
            let text = text.unwrap_or_default();
            Kind::ItemTruncated(proto::ItemTruncated { id, audio_end_ms, text })
        }
        BackendInput::CreateResponse { response, request } => Kind::CreateResponse(create(response, request)),
        BackendInput::Cancel { response } => Kind::Cancel(proto::Cancel { response: response.0 }),
        BackendInput::Played { response, samples, heard_at } => {
            Kind::Played(proto::Played { response: response.0, samples, heard_at })
        }
        BackendInput::Close => Kind::Close(proto::Close {}),
    };
    proto::Input { kind: Some(kind) }
}

fn settings(settings: &Settings) -> proto::Settings {
    proto::Settings {
        transcribes_only: settings.transcribes_only,
        text_only: settings.text_only,
        instructions: settings.instructions.clone(),
        tools: settings.tools.clone(),
        tool_choice: settings.tool_choice.clone(),
        voice: settings.voice.clone(),
        speed: settings.speed,
        max_output_tokens: settings.max_output_tokens.unwrap_or_default(),
        transcription: settings.transcription.is_some(),
        json: settings.json.clone(),
    }
}

fn audio(pcm: &[i16], media_time: u64) -> proto::Audio {
    proto::Audio { pcm: pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect(), media_time }
}

fn create(response: ResponseId, request: Request) -> proto::CreateResponse {
    let Request { text_only, overrides } = request;
    let overrides = overrides.map(|overrides| *overrides).unwrap_or_default();
    proto::CreateResponse {
        response: response.0,
        text_only,
        out_of_band: overrides.out_of_band,
        instructions: overrides.instructions.unwrap_or_default(),
        json: overrides.json,
    }
}

fn item(told: Item) -> proto::Item {
    let kind = match told.kind {
        ItemKind::Speech { turn } => Some(item::Kind::Speech(proto::Speech { turn: turn.0 })),
        ItemKind::Output { response, call_id } => {
            let call_id = call_id.unwrap_or_default();
            Some(item::Kind::Made(proto::Made { response: response.0, call_id }))
        }
        ItemKind::Message { role, text } => {
            let role = match role {
                Role::System => proto::Role::System,
                Role::User => proto::Role::User,
                Role::Assistant => proto::Role::Assistant,
            };
            Some(item::Kind::Message(proto::Message { role: role.into(), text }))
        }
        ItemKind::ToolCall { call_id, name, arguments } => {
            let call = proto::ToolCall { response: 0, call_id, name, arguments, is_final: true };
            Some(item::Kind::ToolCall(call))
        }
        ItemKind::ToolResult { call_id, output } => Some(item::Kind::ToolResult(proto::ToolResult { call_id, output })),
        ItemKind::Other => None,
    };
    proto::Item { id: told.id, previous: told.previous.unwrap_or_default(), kind, json: told.json }
}

/// What the dialogue is told of an output. `rate`: of the backend's PCM, in Hz; it says so itself.
///
/// # Errors
/// It makes no sense: what is wrong, in one of few words.
pub(super) fn output(output: proto::Output, rate: &mut u32) -> Result<Told, &'static str> {
    use output::Kind;
    let told = match output.kind.ok_or("unknown")? {
        Kind::Ready(ready) => {
            let own = ready.capabilities.map_or(0, |capabilities| capabilities.rate);
            if own != 0 && !RATES.contains(&own) {
                return Err("rate");
            }
            *rate = if own == 0 { *rate } else { own };
            BackendOutput::Ready
        }
        Kind::Initiate(_) => BackendOutput::Initiate,
        Kind::ResponseStarted(started) => BackendOutput::ResponseStarted { response: ResponseId(started.response) },
        Kind::Audio(speak) => {
            let audio = match speak.form.ok_or("unknown")? {
                speak::Form::Pcm(data) => AgentAudio::Bytes { rate: *rate, data },
                speak::Form::Opus(opus) => AgentAudio::Opus(packets(opus)),
            };
            BackendOutput::Audio { response: ResponseId(speak.response), audio }
        }
        Kind::Text(text) => {
            let words = words(&text.delta, &text.words);
            BackendOutput::Text { response: ResponseId(text.response), delta: text.delta, words }
        }
        Kind::ToolCall(call) => {
            let response = ResponseId(call.response);
            let proto::ToolCall { call_id, name, arguments, is_final, .. } = call;
            if call_id.is_empty() || name.is_empty() {
                return Err("tool_call");
            }
            BackendOutput::ToolCall { response, call: voice::ToolCall { call_id, name, arguments, is_final } }
        }
        Kind::Backchannel(sound) => BackendOutput::Backchannel { frames: packets(sound.opus.ok_or("unknown")?) },
        Kind::Usage(usage) => BackendOutput::Usage {
            response: ResponseId(usage.response),
            usage: voice::Usage {
                input_text: usage.input_text,
                input_audio: usage.input_audio,
                input_image: usage.input_image,
                cached: usage.cached,
                output_text: usage.output_text,
                output_audio: usage.output_audio,
            },
        },
        Kind::ResponseDone(done) => {
            let response = ResponseId(done.response);
            match done.incomplete() {
                proto::Incomplete::Unspecified => BackendOutput::ResponseDone { response },
                proto::Incomplete::MaxOutputTokens => {
                    BackendOutput::ResponseIncomplete { response, reason: IncompleteReason::MaxOutputTokens }
                }
                proto::Incomplete::ContentFilter => {
                    BackendOutput::ResponseIncomplete { response, reason: IncompleteReason::ContentFilter }
                }
            }
        }
        Kind::UserTranscript(heard) => BackendOutput::UserTranscript {
            turn: (heard.turn != 0).then_some(TurnId(heard.turn)),
            text: heard.text,
            is_final: heard.is_final,
        },
        Kind::TurnVerdict(verdict) => {
            use proto::turn_verdict::Kind;
            BackendOutput::TurnVerdict(match verdict.kind.ok_or("unknown")? {
                Kind::Complete(value) => voice::TurnVerdict::Complete { probability: probability(value)? },
                Kind::Interruption(value) => voice::TurnVerdict::Interruption { probability: probability(value)? },
            })
        }
        Kind::Snapshot(snapshot) => {
            return if snapshot.data.len() > SNAPSHOT_MAX {
                Err("snapshot")
            } else {
                Ok(Told::Snapshot(snapshot.data))
            };
        }
        Kind::Fault(fault) => {
            let code = if fault.code.is_empty() { "backend_failed" } else { fault.code.as_str() };
            BackendOutput::Fault {
                response: (fault.response != 0).then_some(ResponseId(fault.response)),
                failure: Failure::new(code, fault.message),
                retryable: fault.retryable,
            }
        }
    };
    Ok(Told::Output(told))
}

fn packets(opus: proto::Opus) -> Vec<Vec<u8>> {
    opus.packets.into_iter().filter(|packet| !packet.is_empty()).collect()
}

fn probability(value: f32) -> Result<f32, &'static str> {
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err("verdict") }
}

/// Word times as far as they make sense: rising, inside the delta, at the borders of characters. None at all where one does not.
fn words(delta: &str, words: &[proto::Word]) -> Vec<WordTime> {
    let times: Vec<WordTime> = words
        .iter()
        .map(|word| WordTime { to: usize::try_from(word.to).unwrap_or(usize::MAX), end: word.end })
        .collect();
    let rising = times.windows(2).all(|pair| pair[0].to < pair[1].to && pair[0].end <= pair[1].end);
    let inside = times.iter().all(|time| delta.is_char_boundary(time.to));
    if rising && inside { times } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(kind: output::Kind) -> Result<Told, &'static str> {
        output(proto::Output { kind: Some(kind) }, &mut 16_000)
    }

    fn word(to: u32, end: u64) -> proto::Word {
        proto::Word { to, end }
    }

    #[test]
    fn pcm_has_the_rate_that_the_backend_said_and_else_that_of_the_start() {
        let mut rate = 16_000;
        let speak = |pcm: &[u8]| {
            let form = Some(speak::Form::Pcm(pcm.to_vec()));
            proto::Output { kind: Some(output::Kind::Audio(proto::Speak { response: 1, form })) }
        };
        let rate_of = |told| match told {
            Ok(Told::Output(BackendOutput::Audio { audio: AgentAudio::Bytes { rate, .. }, .. })) => rate,
            other => panic!("{other:?}"),
        };
        assert_eq!(rate_of(output(speak(&[0, 0, 1]), &mut rate)), 16_000);
        let ready = |rate| {
            let capabilities = Some(proto::Capabilities { rate, ..proto::Capabilities::default() });
            proto::Output { kind: Some(output::Kind::Ready(proto::Ready { capabilities })) }
        };
        assert_eq!(output(ready(22_050), &mut rate), Ok(Told::Output(BackendOutput::Ready)));
        assert_eq!(rate_of(output(speak(&[0]), &mut rate)), 22_050);
        assert_eq!(output(ready(4000), &mut rate), Err("rate"));
        assert_eq!(rate, 22_050);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        use output::Kind;
        let verdict = |value| {
            let kind = Some(proto::turn_verdict::Kind::Complete(value));
            Kind::TurnVerdict(proto::TurnVerdict { kind })
        };
        for (kind, odd) in [
            (Kind::Audio(proto::Speak { response: 1, form: None }), "unknown"),
            (Kind::ToolCall(proto::ToolCall { response: 1, ..proto::ToolCall::default() }), "tool_call"),
            (Kind::TurnVerdict(proto::TurnVerdict { kind: None }), "unknown"),
            (verdict(f32::NAN), "verdict"),
            (verdict(1.1), "verdict"),
            (Kind::Snapshot(proto::Snapshot { data: vec![0; SNAPSHOT_MAX + 1] }), "snapshot"),
            (Kind::Backchannel(proto::Backchannel { opus: None }), "unknown"),
        ] {
            assert_eq!(heard(kind.clone()), Err(odd), "{kind:?}");
        }
        assert_eq!(output(proto::Output { kind: None }, &mut 16_000), Err("unknown"));
    }

    #[test]
    fn word_times_that_make_no_sense_are_left_out() {
        for (times, kept) in [
            (vec![word(3, 10), word(7, 20)], 2),
            (vec![word(7, 10), word(3, 20)], 0),
            (vec![word(3, 20), word(7, 10)], 0),
            (vec![word(3, 10), word(99, 20)], 0),
            (vec![word(5, 10)], 0),
        ] {
            // The sixth byte is inside of a letter.
            assert_eq!(words("Yes, ä.", &times).len(), if times == [word(5, 10)] { 1 } else { kept }, "{times:?}");
        }
        assert!(words("Yes, ä.", &[word(6, 10)]).is_empty());
    }

    #[test]
    fn an_incomplete_response_says_why_and_an_unknown_reason_is_none() {
        let done = |incomplete| heard(output::Kind::ResponseDone(proto::ResponseDone { response: 3, incomplete }));
        let response = ResponseId(3);
        assert_eq!(done(0), Ok(Told::Output(BackendOutput::ResponseDone { response })));
        let reason = IncompleteReason::ContentFilter;
        assert_eq!(done(2), Ok(Told::Output(BackendOutput::ResponseIncomplete { response, reason })));
        assert_eq!(done(77), Ok(Told::Output(BackendOutput::ResponseDone { response })));
    }
}
