//! Connections to gRPC backends that end as servers, load balancers and firewalls end them.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use backends::grpc::proto::{self, input, output};
use support::proxy::{CALM, Event, PLAIN, Proxy};
use support::{Caller, Conversation, Rig, at, create, done, ended, fault, sound, speech};
use tonic::Status;
use voice::{BackendInput, BackendOutput, Item, ItemKind, ResponseId, Role};

/// Answers with as many pieces of speech as streams were open before, and one more; then with words.
async fn answers(mut call: Conversation) -> Result<(), Status> {
    call.ready().await;
    while let Some(response) = call.asked().await {
        call.say(speech(response, 320 * (call.number + 1))).await;
        call.say(done(response)).await;
    }
    Ok(())
}

/// A server behind a proxy.
fn behind<F>(rig: &Rig, script: impl Fn(Conversation) -> F + Send + Sync + 'static) -> Proxy
where
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    let server = rig.serve(script);
    rig.block_on(Proxy::start(server))
}

fn asks(caller: &mut Caller, response: u64) -> [BackendOutput; 2] {
    caller.tell(create(response));
    [caller.hear(), caller.hear()]
}

#[test]
fn a_plain_goaway_lets_calls_finish_and_new_ones_get_another_connection() {
    let rig = Rig::new();
    let proxy = behind(&rig, answers);
    let target = at(proxy.address);
    let mut first = rig.call(vec![target.clone()]);
    assert_eq!(first.hear(), BackendOutput::Ready);
    proxy.happens(Event::GoAway { reason: PLAIN });
    assert_eq!(asks(&mut first, 1), [sound(1, 320), ended(1)]);
    // By now the frame was read: the answer came behind it.
    let mut second = rig.call(vec![target]);
    assert_eq!(second.hear(), BackendOutput::Ready);
    assert_eq!(asks(&mut second, 1), [sound(1, 640), ended(1)]);
    assert_eq!(asks(&mut first, 2), [sound(2, 320), ended(2)], "the old stream goes on");
    assert_eq!(proxy.connections(), 2);
}

#[test]
fn a_server_that_wants_calm_in_a_reply_fails_it_alone_and_is_told_all_at_another_connection() {
    let (told, hears) = std::sync::mpsc::channel();
    let rig = Rig::new();
    let proxy = behind(&rig, move |mut call| {
        let told = told.clone();
        async move {
            let start = call.next().await;
            call.ready().await;
            told.send(start).unwrap();
            while let Some(response) = call.asked().await {
                let delta = "Well. ".to_owned();
                call.say(output::Kind::Text(proto::Text { response, delta, words: Vec::new() })).await;
                call.say(speech(response, 320)).await;
            }
            Ok(())
        }
    });
    let mut caller = rig.call(vec![at(proxy.address)]);
    assert_eq!(caller.hear(), BackendOutput::Ready);
    caller.tell(create(1));
    let kind = ItemKind::Output { response: ResponseId(1), call_id: None };
    let item = Item { id: "item_1".to_owned(), previous: None, kind, json: String::new() };
    caller.tell(BackendInput::Item(Box::new(item)));
    let words = BackendOutput::Text { response: ResponseId(1), delta: "Well. ".to_owned(), words: Vec::new() };
    assert_eq!(caller.hear_all(2), [words, sound(1, 320)]);
    // As gRPC's servers do it: the frame, and then the connection is closed.
    proxy.happens(Event::GoAway { reason: CALM });
    proxy.happens(Event::Reset);
    assert_eq!(fault(&caller.hear()), (Some(1), "backend_lost"));
    assert_eq!(caller.hear(), BackendOutput::Ready);
    let starts = [hears.recv().unwrap(), hears.recv().unwrap()];
    let message = proto::Message { role: proto::Role::Assistant.into(), text: "Well. ".to_owned() };
    let item = proto::Item {
        id: "item_1".to_owned(),
        kind: Some(proto::item::Kind::Message(message)),
        ..proto::Item::default()
    };
    let settings = proto::Settings { instructions: "Be brief.".to_owned(), ..proto::Settings::default() };
    let start = |history, reopened| {
        let (session, model) = ("00000000000000ff".to_owned(), "agent".to_owned());
        let settings = Some(settings.clone());
        Some(input::Kind::Start(proto::Start {
            session,
            model,
            rate: 16_000,
            settings,
            history,
            snapshot: Vec::new(),
            reopened,
        }))
    };
    assert_eq!(starts, [start(Vec::new(), 0), start(vec![item], 1)]);
}

#[test]
fn an_idle_connection_that_is_dropped_without_a_word_is_made_again_and_nobody_notices() {
    let rig = Rig::new();
    let proxy = behind(&rig, answers);
    let mut caller = rig.call(vec![at(proxy.address)]);
    assert_eq!(caller.hear(), BackendOutput::Ready);
    assert_eq!(asks(&mut caller, 1), [sound(1, 320), ended(1)]);
    proxy.happens(Event::Reset);
    assert_eq!(caller.hear(), BackendOutput::Ready);
    assert_eq!(asks(&mut caller, 2), [sound(2, 640), ended(2)]);
}

#[test]
fn where_what_lies_between_forwards_nothing_any_more_the_call_gets_a_new_connection() {
    let rig = Rig::new();
    let proxy = behind(&rig, answers);
    let target = at(proxy.address);
    let mut caller = rig.call(vec![target.clone()]);
    assert_eq!(caller.hear(), BackendOutput::Ready);
    proxy.happens(Event::Swallow);
    // More than windows and sockets hold: audio that nobody takes would be dropped.
    let text = "x".repeat(100 << 10);
    for n in 0..40 {
        let kind = ItemKind::Message { role: Role::User, text: text.clone() };
        let item = Item { id: format!("i{n}"), previous: None, kind, json: String::new() };
        caller.tell(BackendInput::Item(Box::new(item)));
    }
    assert_eq!(caller.hear(), BackendOutput::Ready);
    assert_eq!(asks(&mut caller, 1), [sound(1, 640), ended(1)]);
    assert_eq!(proxy.connections(), 2);
}
