//! Backends that do what none should, over real sockets: what their callers notice, and that it is bounded.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use backends::grpc::proto::{self, output};
use support::{Conversation, Rig, at, create, done, ended, fault, sound, speech};
use tonic::Status;
use voice::{BackendInput, BackendOutput, Item, ItemKind, ResponseId, Role};

async fn answers(mut call: Conversation) -> Result<(), Status> {
    call.ready().await;
    while let Some(response) = call.asked().await {
        call.say(speech(response, 320)).await;
        call.say(done(response)).await;
    }
    Ok(())
}

#[test]
fn one_that_breaks_whenever_it_is_asked_is_asked_three_times_and_then_the_next() {
    let streams = Arc::new(AtomicUsize::new(0));
    let rig = Rig::new();
    let counted = Arc::clone(&streams);
    let breaking = rig.serve(move |mut call| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            call.ready().await;
            call.asked().await;
            Err(Status::internal("poisoned"))
        }
    });
    let answering = rig.serve(answers);
    let mut caller = rig.call(vec![at(breaking), at(answering)]);
    caller.tell(create(1));
    let ready = BackendOutput::Ready;
    let readies = [ready.clone(), ready.clone(), ready.clone(), ready];
    assert_eq!(caller.hear_all(6), [&readies[..], &[sound(1, 320), ended(1)]].concat());
    assert_eq!(streams.load(Ordering::Relaxed), 3);
}

#[test]
fn one_that_breaks_at_once_alone_is_not_opened_without_pause_and_the_response_fails() {
    let streams = Arc::new(AtomicUsize::new(0));
    let rig = Rig::new();
    let counted = Arc::clone(&streams);
    let breaking = rig.serve(move |call| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            call.ready().await;
            Err(Status::unavailable("restarting"))
        }
    });
    let begun = Instant::now();
    let mut caller = rig.call(vec![at(breaking)]);
    caller.tell(create(1));
    let faults = std::iter::from_fn(|| Some(caller.hear())).filter(|output| *output != BackendOutput::Ready);
    let told: Vec<_> = faults.take(1).collect();
    assert_eq!(fault(&told[0]), (Some(1), "backend_unavailable"));
    // Three at once, and three each behind pauses of at least 50, 100 and 200 ms.
    while streams.load(Ordering::Relaxed) < 10 {
        caller.hear();
    }
    assert!(begun.elapsed() >= Duration::from_millis(350), "{:?}", begun.elapsed());
}

#[test]
fn one_that_reads_nothing_is_left_and_what_was_said_is_told_to_the_next() {
    let rig = Rig::new();
    let (told, hears) = std::sync::mpsc::channel();
    let address = rig.serve(move |mut call| {
        let told = told.clone();
        async move {
            call.ready().await;
            if call.number == 0 {
                return std::future::pending().await;
            }
            if let Some(proto::input::Kind::Start(start)) = call.next().await {
                told.send(start.history.len()).unwrap();
            }
            answers(call).await
        }
    });
    let mut caller = rig.call(vec![at(address)]);
    assert_eq!(caller.hear(), BackendOutput::Ready);
    let mut previous = None;
    // More than windows and sockets hold; what is remembered of it is bounded.
    for n in 0..40 {
        let kind = ItemKind::Message { role: Role::User, text: "x".repeat(100 << 10) };
        let id = format!("i{n}");
        let previous = previous.replace(id.clone());
        caller.tell(BackendInput::Item(Box::new(Item { id, previous, kind, json: String::new() })));
    }
    assert_eq!(caller.hear(), BackendOutput::Ready);
    assert_eq!(hears.recv().unwrap(), 10);
}

#[test]
fn a_flood_of_crumbs_waits_and_other_calls_are_answered() {
    let rig = Rig::new();
    let said = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&said);
    let flooding = rig.serve(move |mut call| {
        let counted = Arc::clone(&counted);
        async move {
            call.ready().await;
            let response = call.asked().await.unwrap();
            for bytes in (0..2).cycle() {
                call.say(speech(response, bytes)).await;
                if call.outputs.is_closed() {
                    break;
                }
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
    });
    let neighbor = rig.serve(answers);
    let mut caller = rig.call(vec![at(flooding)]);
    let mut other = rig.call(vec![at(neighbor)]);
    assert_eq!([caller.hear(), other.hear()], [BackendOutput::Ready, BackendOutput::Ready]);
    caller.tell(create(1));
    // Nobody asks for its sound: it is stuck when the count stands still.
    let mut before = 0;
    loop {
        other.tell(create(1));
        assert_eq!(other.hear_all(2), [sound(1, 320), ended(1)]);
        for _ in 0..200 {
            assert_eq!(caller.look(), None);
            std::thread::sleep(Duration::from_millis(1));
        }
        let now = said.load(Ordering::Relaxed);
        if std::mem::replace(&mut before, now) == now && now > 0 {
            break;
        }
    }
    // 32,768 in the seat, 256 on the way to it; and what 256 KiB of window hold in messages of about 15 bytes.
    assert!((30_000..70_000).contains(&before), "{before}");
}

#[test]
fn a_piece_that_is_too_large_ends_the_stream_and_the_call_goes_on() {
    let rig = Rig::new();
    let address = rig.serve(|mut call| async move {
        call.ready().await;
        while let Some(response) = call.asked().await {
            call.say(speech(response, 320)).await;
            if call.number == 0 {
                call.say(speech(response, 2 << 20)).await;
            }
            call.say(done(response)).await;
        }
        Ok(())
    });
    let mut caller = rig.call(vec![at(address)]);
    assert_eq!(caller.hear(), BackendOutput::Ready);
    caller.tell(create(1));
    assert_eq!(caller.hear(), sound(1, 320));
    assert_eq!(fault(&caller.hear()), (Some(1), "backend_lost"));
    assert_eq!(caller.hear(), BackendOutput::Ready);
    caller.tell(create(2));
    assert_eq!(caller.hear_all(2), [sound(2, 320), ended(2)]);
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let rig = Rig::new();
    let address = rig.serve(|mut call| async move {
        call.ready().await;
        let response = call.asked().await.unwrap();
        let outputs = [
            None,
            Some(speech(response + 7, 320)),
            Some(done(response + 7)),
            Some(output::Kind::Audio(proto::Speak { response, form: None })),
            Some(output::Kind::Snapshot(proto::Snapshot { data: vec![0; (256 << 10) + 1] })),
            Some(output::Kind::ToolCall(proto::ToolCall { response, ..proto::ToolCall::default() })),
            Some(speech(response, 321)),
            Some(done(response)),
            Some(speech(response, 320)),
            Some(done(response)),
        ];
        for kind in outputs {
            call.outputs.send(Ok(proto::Output { kind })).await.unwrap();
        }
        call.asked().await;
        call.say(speech(response + 1, 640)).await;
        while call.next().await.is_some() {}
        Ok(())
    });
    let mut caller = rig.call(vec![at(address)]);
    assert_eq!(caller.hear(), BackendOutput::Ready);
    caller.tell(create(1));
    assert_eq!(caller.hear_all(2), [sound(1, 321), ended(1)]);
    caller.tell(create(2));
    assert_eq!(caller.hear(), sound(2, 640));
}

#[test]
fn a_rate_that_cannot_be_played_is_no_backend() {
    let rig = Rig::new();
    let slow = rig.serve(|mut call| async move {
        let capabilities = Some(proto::Capabilities { rate: 4000, ..proto::Capabilities::default() });
        call.say(output::Kind::Ready(proto::Ready { capabilities })).await;
        while call.next().await.is_some() {}
        Ok(())
    });
    let answering = rig.serve(answers);
    let mut caller = rig.call(vec![at(slow), at(answering)]);
    caller.tell(create(1));
    assert_eq!(caller.hear_all(3), [BackendOutput::Ready, sound(1, 320), ended(1)]);
}

#[test]
fn a_snapshot_comes_back_at_the_next_stream_and_the_latest_counts() {
    let (told, hears) = std::sync::mpsc::channel();
    let rig = Rig::new();
    let address = rig.serve(move |mut call| {
        let told = told.clone();
        async move {
            let Some(proto::input::Kind::Start(start)) = call.next().await else { return Ok(()) };
            told.send(start.snapshot).unwrap();
            call.ready().await;
            if call.number == 0 {
                for data in [vec![1], vec![2, 3]] {
                    call.say(output::Kind::Snapshot(proto::Snapshot { data })).await;
                }
                return Ok(());
            }
            while call.next().await.is_some() {}
            Ok(())
        }
    });
    let mut caller = rig.call(vec![at(address)]);
    assert_eq!(caller.hear_all(2), [BackendOutput::Ready, BackendOutput::Ready]);
    assert_eq!([hears.recv().unwrap(), hears.recv().unwrap()], [vec![], vec![2, 3]]);
    // The break was hidden: there was no response.
    assert_eq!(caller.look(), None);
    caller.tell(BackendInput::Cancel { response: ResponseId(1) });
}
