//! The responses of a call, and how its streams know them.
//!
//! Each request has a number of its own on the wire, rising over all streams of the call: what comes of a response that was cancelled, lost or
//! asked for again carries another number than the one that is being made, and is dropped.

use std::collections::VecDeque;

use voice::{BackendInput, BackendOutput, Failure, Item, ItemKind, Request, ResponseId};

/// Responses whose end may still be told of: more than a client plays at once.
const RECENT: usize = 16;

/// The responses of one call.
#[derive(Debug, Default)]
pub(crate) struct Responses {
    last: u64,
    current: Option<Current>,
    /// Ours, and on the wire; the newest last.
    recent: VecDeque<(ResponseId, ResponseId)>,
}

#[derive(Debug)]
struct Current {
    ours: ResponseId,
    wire: ResponseId,
    request: Request,
    /// The dialogue knows that it was accepted.
    started: bool,
    /// Something of it came.
    gave: bool,
    /// It was asked for again, because it ended with nothing.
    again: bool,
}

/// What to do with an output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Took {
    /// Tell the dialogue.
    Tell(BackendOutput),
    /// Nothing: it is of another response.
    Orphan,
    /// Nothing: the dialogue knows it.
    Drop,
    /// Ask the backend again: the response ended with nothing in it.
    Again(BackendInput),
}

impl Responses {
    /// The dialogue's word as the stream gets it.
    pub(crate) fn input(&mut self, input: BackendInput) -> Option<BackendInput> {
        Some(match input {
            BackendInput::CreateResponse { response, request } => {
                self.current = Some(Current {
                    ours: response,
                    wire: response,
                    request,
                    started: false,
                    gave: false,
                    again: false,
                });
                return self.ask();
            }
            BackendInput::Cancel { response } => {
                let current = self.current.take_if(|current| current.ours == response)?;
                BackendInput::Cancel { response: current.wire }
            }
            BackendInput::Played { response, samples, heard_at } => {
                BackendInput::Played { response: self.wire(response)?, samples, heard_at }
            }
            BackendInput::Item(item) => match item.kind {
                ItemKind::Output { response, call_id } => {
                    let kind = ItemKind::Output { response: self.wire(response)?, call_id };
                    BackendInput::Item(Box::new(Item { kind, ..*item }))
                }
                _ => BackendInput::Item(item),
            },
            other => other,
        })
    }

    /// Asks for the response that is being made under a new number. `None`: there is none.
    pub(crate) fn ask(&mut self) -> Option<BackendInput> {
        let current = self.current.as_mut()?;
        self.last += 1;
        current.wire = ResponseId(self.last);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((current.ours, current.wire));
        Some(BackendInput::CreateResponse { response: current.wire, request: current.request.clone() })
    }

    /// The stream's word as the dialogue gets it.
    pub(crate) fn output(&mut self, output: BackendOutput) -> Took {
        let Some(of) = response(&output) else { return Took::Tell(output) };
        if of == ResponseId::UNASKED {
            return Took::Tell(output);
        }
        let Some(current) = self.current.as_mut().filter(|current| current.wire == of) else {
            return Took::Orphan;
        };
        let ours = current.ours;
        match &output {
            BackendOutput::ResponseStarted { .. } if std::mem::replace(&mut current.started, true) => {
                return Took::Drop;
            }
            BackendOutput::ResponseDone { .. } if !current.gave && !current.again => {
                current.again = true;
                return self.ask().map_or(Took::Drop, Took::Again);
            }
            BackendOutput::ResponseDone { .. } if !current.gave => {
                self.current = None;
                let failure = Failure::new("empty_response", "the backend answered with nothing, twice");
                return Took::Tell(BackendOutput::Fault { response: Some(ours), failure, retryable: true });
            }
            BackendOutput::ResponseDone { .. }
            | BackendOutput::ResponseIncomplete { .. }
            | BackendOutput::Fault { .. } => self.current = None,
            BackendOutput::Audio { audio, .. } => current.gave |= !audio.is_empty(),
            BackendOutput::Text { delta, .. } => current.gave |= !delta.is_empty(),
            BackendOutput::ToolCall { .. } => current.gave = true,
            _ => {}
        }
        Took::Tell(named(output, ours))
    }

    /// The stream is gone. What is told of the response that was being made; one of which nothing came is asked for at the next stream.
    pub(crate) fn lost(&mut self) -> Option<BackendOutput> {
        let failure = || Failure::new("backend_lost", "the backend was lost in the middle of the response");
        if self.current.as_ref()?.gave { self.fail(failure()) } else { None }
    }

    /// No stream can be had: the response that waits fails.
    pub(crate) fn fail(&mut self, failure: Failure) -> Option<BackendOutput> {
        let current = self.current.take()?;
        Some(BackendOutput::Fault { response: Some(current.ours), failure, retryable: true })
    }

    fn wire(&self, ours: ResponseId) -> Option<ResponseId> {
        self.recent.iter().rev().find(|(of, _)| *of == ours).map(|(_, wire)| *wire)
    }
}

/// Of which response it is.
fn response(output: &BackendOutput) -> Option<ResponseId> {
    match output {
        BackendOutput::ResponseStarted { response }
        | BackendOutput::Audio { response, .. }
        | BackendOutput::Text { response, .. }
        | BackendOutput::ToolCall { response, .. }
        | BackendOutput::Usage { response, .. }
        | BackendOutput::ResponseDone { response }
        | BackendOutput::ResponseIncomplete { response, .. } => Some(*response),
        BackendOutput::Fault { response, .. } => *response,
        _ => None,
    }
}

fn named(output: BackendOutput, response: ResponseId) -> BackendOutput {
    match output {
        BackendOutput::ResponseStarted { .. } => BackendOutput::ResponseStarted { response },
        BackendOutput::Audio { audio, .. } => BackendOutput::Audio { response, audio },
        BackendOutput::Text { delta, words, .. } => BackendOutput::Text { response, delta, words },
        BackendOutput::ToolCall { call, .. } => BackendOutput::ToolCall { response, call },
        BackendOutput::Usage { usage, .. } => BackendOutput::Usage { response, usage },
        BackendOutput::ResponseDone { .. } => BackendOutput::ResponseDone { response },
        BackendOutput::ResponseIncomplete { reason, .. } => BackendOutput::ResponseIncomplete { response, reason },
        BackendOutput::Fault { failure, retryable, .. } => {
            BackendOutput::Fault { response: Some(response), failure, retryable }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use voice::AgentAudio;

    fn create(ours: u64) -> BackendInput {
        BackendInput::CreateResponse { response: ResponseId(ours), request: Request::default() }
    }

    fn sound(response: u64) -> BackendOutput {
        BackendOutput::Audio { response: ResponseId(response), audio: AgentAudio::Pcm(vec![1; 8]) }
    }

    fn done(response: u64) -> BackendOutput {
        BackendOutput::ResponseDone { response: ResponseId(response) }
    }

    #[test]
    fn what_still_comes_of_a_cancelled_response_is_dropped_though_another_one_was_asked_for() {
        let mut responses = Responses::default();
        assert_eq!(responses.input(create(7)), Some(create(1)));
        let cancel = responses.input(BackendInput::Cancel { response: ResponseId(7) });
        assert_eq!(cancel, Some(BackendInput::Cancel { response: ResponseId(1) }));
        assert_eq!(responses.input(create(8)), Some(create(2)));
        assert_eq!([responses.output(sound(1)), responses.output(done(1))], [Took::Orphan, Took::Orphan]);
        assert_eq!(responses.output(sound(2)), Took::Tell(sound(8)));
    }

    #[test]
    fn a_response_with_nothing_in_it_is_asked_for_again_once() {
        let mut responses = Responses::default();
        responses.input(create(7));
        assert_eq!(responses.output(done(1)), Took::Again(create(2)));
        let Took::Tell(BackendOutput::Fault { response, failure, .. }) = responses.output(done(2)) else {
            panic!("it is told")
        };
        assert_eq!((response, failure.code.as_str()), (Some(ResponseId(7)), "empty_response"));
        assert_eq!(responses.ask(), None);
    }

    #[test]
    fn a_lost_response_fails_if_some_of_it_came_and_is_asked_for_again_if_not() {
        let mut responses = Responses::default();
        responses.input(create(7));
        assert_eq!(responses.lost(), None);
        assert_eq!(responses.ask(), Some(create(2)));
        responses.output(sound(2));
        let fault = responses.lost();
        assert!(matches!(fault, Some(BackendOutput::Fault { response: Some(ResponseId(7)), .. })));
        assert_eq!(responses.ask(), None);
    }
}
