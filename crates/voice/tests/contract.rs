//! What a backend says beside speech, and what is asked of it: the same over packets and over events.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::time::{Duration, Instant};

use voice::{
    Asked, BackendInput, BackendOutput, Config, Conversation, Event, Failure, IncompleteReason, Output, Overrides,
    Request, ResponseId, SampleFormat, Stream, StreamOutput, TurnConfig, TurnId, Usage,
};

const ONE: ResponseId = ResponseId(1);
const TWO: ResponseId = ResponseId(2);

/// A dialogue of either kind.
enum Dialogue {
    Packets(Box<Conversation>),
    Events(Box<Stream>),
}

struct Bench {
    dialogue: Dialogue,
    now: Instant,
    asked: Vec<BackendInput>,
    told: Vec<Event>,
}

/// One of each.
fn both() -> [Bench; 2] {
    let (now, config) = (Instant::now(), Config { turn: TurnConfig { server_vad: None }, ..Config::default() });
    let packets = Dialogue::Packets(Box::new(Conversation::new(now, config.clone())));
    let events = Dialogue::Events(Box::new(Stream::new(now, config)));
    [packets, events].map(|dialogue| Bench { dialogue, now, asked: Vec::new(), told: Vec::new() })
}

impl Bench {
    fn give(&mut self, output: BackendOutput) {
        match &mut self.dialogue {
            Dialogue::Packets(conversation) => conversation.handle_backend(self.now, output),
            Dialogue::Events(stream) => stream.handle_backend(self.now, output),
        }
        self.drain();
    }

    fn ask(&mut self, request: Request) -> bool {
        let asked = match &mut self.dialogue {
            Dialogue::Packets(conversation) => conversation.create_response_as(self.now, request).is_some(),
            Dialogue::Events(stream) => stream.create_response_as(self.now, request) == Asked::Done,
        };
        self.drain();
        asked
    }

    fn drain(&mut self) {
        match &mut self.dialogue {
            Dialogue::Packets(conversation) => {
                while let Some(output) = conversation.poll_output() {
                    match output {
                        Output::Backend(input) => self.asked.push(input),
                        Output::Event(event) => self.told.push(event),
                        _ => {}
                    }
                }
            }
            Dialogue::Events(stream) => {
                while let Some(output) = stream.poll_output() {
                    match output {
                        StreamOutput::Backend(input) => self.asked.push(input),
                        StreamOutput::Event(event) => self.told.push(event),
                        _ => {}
                    }
                }
            }
        }
    }

    /// What became of the responses, less the books of each.
    fn told(&mut self) -> Vec<Event> {
        let mut told = std::mem::take(&mut self.told);
        told.retain(|event| !matches!(event, Event::ReplyOver(_) | Event::PlayoutStopped { .. } | Event::Decision(_)));
        told
    }
}

fn created(response: ResponseId) -> Event {
    Event::ResponseCreated { response }
}

#[test]
fn a_request_reaches_the_backend_as_it_was_made() {
    let overrides = Overrides { out_of_band: true, instructions: Some("brief".to_owned()), json: "{}".to_owned() };
    let request = Request { text_only: true, overrides: Some(Box::new(overrides)) };
    for mut bench in both() {
        assert!(bench.ask(request.clone()));
        assert!(!bench.ask(Request::default()), "one is being made");
        assert_eq!(bench.asked, [BackendInput::CreateResponse { response: ONE, request: request.clone() }]);
    }
}

#[test]
fn a_backend_that_wants_to_speak_is_asked_to_unless_it_is_asked_already() {
    for mut bench in both() {
        bench.give(BackendOutput::Initiate);
        bench.give(BackendOutput::Initiate);
        assert_eq!(bench.asked, [BackendInput::CreateResponse { response: ONE, request: Request::default() }]);
        assert_eq!(bench.told(), [created(ONE)]);
    }
}

#[test]
fn usage_and_an_early_end_are_told_of_the_response_that_is_made_alone() {
    let usage = Usage { output_text: 7, ..Usage::default() };
    let reason = IncompleteReason::MaxOutputTokens;
    for mut bench in both() {
        bench.ask(Request::default());
        bench.give(BackendOutput::Usage { response: TWO, usage });
        bench.give(BackendOutput::ResponseIncomplete { response: TWO, reason });
        assert_eq!(bench.told(), [created(ONE)]);
        bench.give(BackendOutput::Usage { response: ONE, usage });
        bench.give(BackendOutput::ResponseIncomplete { response: ONE, reason });
        let ended = Event::ResponseIncomplete { response: ONE, generated: 0, reason };
        assert_eq!(bench.told(), [Event::ResponseUsage { response: ONE, usage }, ended]);
        bench.give(BackendOutput::Usage { response: ONE, usage });
        assert_eq!(bench.told(), []);
    }
}

#[test]
fn a_fault_ends_its_own_response_or_the_one_that_is_made_or_none() {
    let failure = Failure::new("overloaded", "too much");
    let fault = |response| BackendOutput::Fault { response, failure: failure.clone(), retryable: false };
    for mut bench in both() {
        bench.ask(Request::default());
        bench.give(fault(Some(TWO)));
        assert_eq!(bench.told(), [created(ONE)]);
        bench.give(fault(Some(ONE)));
        assert_eq!(bench.told(), [Event::ResponseFailed { response: ONE, failure: failure.clone() }]);
        bench.give(fault(Some(ONE)));
        assert_eq!(bench.told(), [], "it is over");
        bench.give(fault(None));
        assert_eq!(bench.told(), [Event::BackendFailed(failure.clone())]);
        bench.ask(Request::default());
        bench.give(fault(None));
        assert_eq!(bench.told(), [created(TWO), Event::ResponseFailed { response: TWO, failure: failure.clone() }]);
    }
}

#[test]
fn words_belong_to_the_turn_they_name_and_else_to_the_last() {
    let [_, mut bench] = both();
    let Dialogue::Events(stream) = &mut bench.dialogue else { panic!("it is the second") };
    for _ in 0..2 {
        stream.append(bench.now, SampleFormat::Pcm16, &[0; 9600]);
        while stream.listen(bench.now) {}
        stream.commit(bench.now);
        bench.now += Duration::from_millis(10);
    }
    bench.drain();
    bench.told();
    let words = |turn| BackendOutput::UserTranscript { turn, text: "yes".to_owned(), is_final: true };
    for (named, told) in [(None, 2), (Some(1), 1), (Some(2), 2), (Some(9), 2)] {
        bench.give(words(named.map(TurnId)));
        let event = Event::UserTranscript { turn: TurnId(told), text: "yes".to_owned(), is_final: true };
        assert_eq!(bench.told(), [event]);
    }
}
