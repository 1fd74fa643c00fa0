//! Calls with gRPC backends over real sockets: what the dialogue gets of backends that answer, die, hang and refuse.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use backends::grpc::proto::{self, input, output};
use backends::{Kind, Local, Target, Timeouts};
use support::{Rig, at, create, done, ended, fault, sound, speech};
use tonic::Status;
use voice::{AgentAudio, BackendInput, BackendOutput, Item, ItemKind, ResponseId, Role, TurnId};

/// Waiting for what must come.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn a_call_is_told_in_order_and_its_answer_comes_back() {
    let (told, hears) = mpsc::channel();
    let rig = Rig::new();
    let address = rig.serve(move |mut call| {
        let told = told.clone();
        async move {
            call.ready().await;
            while let Some(input) = call.next().await {
                if let input::Kind::CreateResponse(create) = &input {
                    call.say(output::Kind::ResponseStarted(proto::ResponseStarted { response: create.response })).await;
                    call.say(speech(create.response, 640)).await;
                    call.say(done(create.response)).await;
                }
                told.send(input).unwrap();
            }
            Ok(())
        }
    });
    let mut caller = rig.call(vec![at(address)]);
    assert_eq!(caller.hear(), BackendOutput::Ready);
    let turn = TurnId(1);
    for input in [
        BackendInput::Connected,
        BackendInput::SpeechStarted { turn },
        BackendInput::Audio { pcm: vec![-2, 3], media_time: 960 },
        BackendInput::SpeechStopped { turn, from: 960, to: 1920 },
        BackendInput::Commit { turn },
        create(7),
    ] {
        caller.tell(input);
    }
    let response = ResponseId(7);
    assert_eq!(caller.hear_all(3), [BackendOutput::ResponseStarted { response }, sound(7, 640), ended(7)]);
    caller.tell(BackendInput::Close);
    let told: Vec<_> = (0..8).map(|_| hears.recv_timeout(PATIENCE).unwrap()).collect();
    let settings = proto::Settings { instructions: "Be brief.".to_owned(), ..proto::Settings::default() };
    let start = proto::Start {
        session: "00000000000000ff".to_owned(),
        model: "agent".to_owned(),
        rate: 16_000,
        settings: Some(settings),
        ..proto::Start::default()
    };
    let expected = [
        input::Kind::Start(start),
        input::Kind::Connected(proto::Connected {}),
        input::Kind::SpeechStarted(proto::SpeechStarted { turn: 1 }),
        input::Kind::Audio(proto::Audio { pcm: vec![0xfe, 0xff, 3, 0], media_time: 960 }),
        input::Kind::SpeechStopped(proto::SpeechStopped { turn: 1, from: 960, to: 1920 }),
        input::Kind::Commit(proto::Commit { turn: 1 }),
        input::Kind::CreateResponse(proto::CreateResponse { response: 1, ..proto::CreateResponse::default() }),
        input::Kind::Close(proto::Close {}),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_backend_that_dies_in_a_reply_fails_it_and_its_successor_knows_what_was_said() {
    let (told, hears) = mpsc::channel();
    let rig = Rig::new();
    let address = rig.serve(move |mut call| {
        let told = told.clone();
        async move {
            if let Some(input::Kind::Start(start)) = call.next().await {
                told.send(start).unwrap();
            }
            call.ready().await;
            let response = call.asked().await.unwrap();
            let text =
                |delta: &str| output::Kind::Text(proto::Text { response, delta: delta.to_owned(), words: Vec::new() });
            call.say(text("Hello. ")).await;
            call.say(speech(response, 320)).await;
            if call.number == 0 {
                return Err(Status::unavailable("killed"));
            }
            call.say(done(response)).await;
            while call.next().await.is_some() {}
            Ok(())
        }
    });
    let mut caller = rig.call(vec![at(address)]);
    assert_eq!(caller.hear(), BackendOutput::Ready);
    caller.tell(create(1));
    let kind = ItemKind::Output { response: ResponseId(1), call_id: None };
    let item = Item { id: "item_1".to_owned(), previous: None, kind, json: String::new() };
    caller.tell(BackendInput::Item(Box::new(item.clone())));
    let text = |response| BackendOutput::Text {
        response: ResponseId(response),
        delta: "Hello. ".to_owned(),
        words: Vec::new(),
    };
    let told = caller.hear_all(4);
    assert_eq!(told[..2], [text(1), sound(1, 320)], "what was given is played");
    assert_eq!((fault(&told[2]), &told[3]), ((Some(1), "backend_lost"), &BackendOutput::Ready));
    caller.tell(create(2));
    assert_eq!(caller.hear_all(3), [text(2), sound(2, 320), ended(2)]);
    let starts: Vec<proto::Start> = (0..2).map(|_| hears.recv_timeout(PATIENCE).unwrap()).collect();
    let message = proto::Message { role: proto::Role::Assistant.into(), text: "Hello. ".to_owned() };
    let history = vec![proto::Item {
        id: "item_1".to_owned(),
        kind: Some(proto::item::Kind::Message(message)),
        ..proto::Item::default()
    }];
    assert_eq!((starts[0].history.len(), starts[0].reopened), (0, 0));
    assert_eq!((&starts[1].history, starts[1].reopened), (&history, 1));
}

#[test]
fn a_backend_that_dies_before_it_answers_is_asked_again_with_the_turn_and_nobody_notices() {
    let (told, hears) = mpsc::channel();
    let rig = Rig::new();
    let address = rig.serve(move |mut call| {
        let told = told.clone();
        async move {
            call.ready().await;
            while let Some(input) = call.next().await {
                told.send((call.number, input.clone())).unwrap();
                if let input::Kind::CreateResponse(create) = input {
                    if call.number == 0 {
                        return Err(Status::internal("crashed"));
                    }
                    call.say(speech(create.response, 320)).await;
                    call.say(done(create.response)).await;
                }
            }
            Ok(())
        }
    });
    let mut caller = rig.call(vec![at(address)]);
    assert_eq!(caller.hear(), BackendOutput::Ready);
    let turn = TurnId(1);
    caller.tell(BackendInput::SpeechStarted { turn });
    caller.tell(BackendInput::Audio { pcm: vec![5; 320], media_time: 0 });
    caller.tell(BackendInput::Commit { turn });
    caller.tell(create(3));
    assert_eq!(caller.hear_all(3), [BackendOutput::Ready, sound(3, 320), ended(3)]);
    let all = std::iter::from_fn(|| hears.recv_timeout(PATIENCE).ok());
    let second: Vec<_> = all.filter(|(number, _)| *number == 1).map(|(_, input)| input).take(5).collect();
    assert!(matches!(
        second[..],
        [
            input::Kind::Start(_),
            input::Kind::SpeechStarted(_),
            input::Kind::Audio(_),
            input::Kind::Commit(_),
            input::Kind::CreateResponse(proto::CreateResponse { response: 2, .. })
        ]
    ));
}

#[test]
fn nothing_of_a_cancelled_reply_comes_though_the_backend_goes_on_with_it() {
    let rig = Rig::new();
    let address = rig.serve(|mut call| async move {
        call.ready().await;
        let first = call.asked().await.unwrap();
        call.say(speech(first, 320)).await;
        let second = call.asked().await.unwrap();
        for _ in 0..20 {
            call.say(speech(first, 322)).await;
        }
        call.say(done(first)).await;
        call.say(speech(second, 640)).await;
        call.say(done(second)).await;
        while call.next().await.is_some() {}
        Ok(())
    });
    let mut caller = rig.call(vec![at(address)]);
    assert_eq!(caller.hear(), BackendOutput::Ready);
    caller.tell(create(1));
    assert_eq!(caller.hear(), sound(1, 320));
    caller.tell(BackendInput::Cancel { response: ResponseId(1) });
    caller.tell(create(2));
    assert_eq!(caller.hear_all(2), [sound(2, 640), ended(2)]);
}

#[test]
fn a_backend_that_floods_waits_and_a_cancel_gets_through() {
    let rig = Rig::new();
    let address = rig.serve(|mut call| async move {
        call.ready().await;
        let response = call.asked().await.unwrap();
        for _ in 0..200 {
            // 100 MiB, far more than is kept.
            call.say(speech(response, 512 << 10)).await;
        }
        let response = call.asked().await.unwrap();
        call.say(speech(response, 640)).await;
        while call.next().await.is_some() {}
        Ok(())
    });
    let neighbor = rig.serve(|mut call| async move {
        call.ready().await;
        while let Some(response) = call.asked().await {
            call.say(speech(response, 320)).await;
            call.say(done(response)).await;
        }
        Ok(())
    });
    let mut caller = rig.call(vec![at(address)]);
    let mut other = rig.call(vec![at(neighbor)]);
    assert_eq!([caller.hear(), other.hear()], [BackendOutput::Ready, BackendOutput::Ready]);
    caller.tell(create(1));
    assert!(caller.hear() == sound(1, 512 << 10));
    other.tell(create(1));
    assert_eq!(other.hear_all(2), [sound(1, 320), ended(1)], "its neighbor is answered");
    caller.tell(BackendInput::Cancel { response: ResponseId(1) });
    caller.tell(create(2));
    assert!(caller.hear() == sound(2, 640));
}

#[test]
fn an_empty_reply_is_asked_for_once_more_and_a_second_one_is_told() {
    let rig = Rig::new();
    let address = rig.serve(|mut call| async move {
        call.ready().await;
        while let Some(response) = call.asked().await {
            // The second works, the third and the fourth do not.
            if response == 2 {
                call.say(speech(response, 320)).await;
            }
            call.say(done(response)).await;
        }
        Ok(())
    });
    let mut caller = rig.call(vec![at(address)]);
    assert_eq!(caller.hear(), BackendOutput::Ready);
    caller.tell(create(1));
    assert_eq!(caller.hear_all(2), [sound(1, 320), ended(1)]);
    caller.tell(create(2));
    assert_eq!(fault(&caller.hear()), (Some(2), "empty_response"));
}

#[test]
fn one_that_never_says_ready_is_left_for_the_next() {
    let rig = Rig::new();
    let silent = rig.serve(|mut call| async move {
        while call.next().await.is_some() {}
        Ok(())
    });
    let refusing = rig.serve(|_| async { Err(Status::unauthenticated("no key")) });
    let answering = rig.serve(|mut call| async move {
        call.ready().await;
        while let Some(response) = call.asked().await {
            call.say(speech(response, 320)).await;
            call.say(done(response)).await;
        }
        Ok(())
    });
    let mut caller = rig.call(vec![at(silent), at(refusing), at(answering)]);
    caller.tell(create(1));
    assert_eq!(caller.hear_all(3), [BackendOutput::Ready, sound(1, 320), ended(1)]);
}

#[test]
fn where_nobody_answers_the_response_fails_and_a_machine_of_ours_may_stand_in() {
    let rig = Rig::new();
    // Bound and closed again: nobody listens there.
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut caller = rig.call(vec![at(nowhere)]);
    caller.tell(create(1));
    // It may be told before that there is nobody, once.
    let first = caller.hear();
    let told = if fault(&first).0.is_none() { caller.hear() } else { first };
    assert_eq!(fault(&told), (Some(1), "backend_unavailable"));

    /// Answers each request with one sample.
    #[derive(Default)]
    struct Brief(std::collections::VecDeque<BackendOutput>);
    impl voice::Backend for Brief {
        fn handle(&mut self, input: BackendInput) {
            if let BackendInput::CreateResponse { response, .. } = input {
                let audio = AgentAudio::Pcm(vec![9]);
                self.0.extend([BackendOutput::Audio { response, audio }, BackendOutput::ResponseDone { response }]);
            }
        }
        fn poll(&mut self, _: std::time::Instant, _: voice::Wanted) -> Option<BackendOutput> {
            self.0.pop_front()
        }
    }
    let local = Target {
        name: "brief".into(),
        kind: Kind::Local(Local(Arc::new(|| Box::<Brief>::default()))),
        timeouts: Timeouts::default(),
    };
    let mut caller = rig.call(vec![at(nowhere), local]);
    caller.tell(create(1));
    let audio = AgentAudio::Pcm(vec![9]);
    assert_eq!(caller.hear_all(2), [BackendOutput::Audio { response: ResponseId(1), audio }, ended(1)]);
    let item = Item {
        id: "a".to_owned(),
        previous: None,
        kind: ItemKind::Message { role: Role::User, text: "Hello".to_owned() },
        json: String::new(),
    };
    caller.tell(BackendInput::Item(Box::new(item)));
    caller.tell(create(2));
    assert_eq!(caller.hear_all(2).len(), 2);
}
