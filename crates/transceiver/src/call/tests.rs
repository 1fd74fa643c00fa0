//! What a call tells its backend.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use link::ids::Slot;
use link::proto::{Closed, EdgeMessage, OpenRequest, edge_message};
use voice::{BackendInput, BackendOutput};

use super::dialogue::Dialogue;
use super::{Call, CallConfig, CallOutput, Mode};
use crate::backend::Backend;

/// A backend that notes what it is told.
#[derive(Clone, Default)]
struct Spy(Arc<Mutex<Vec<BackendInput>>>);

impl Backend for Spy {
    fn handle(&mut self, input: BackendInput) {
        self.0.lock().unwrap().push(input);
    }

    fn poll(&mut self, _: Instant) -> Option<BackendOutput> {
        None
    }
}

fn spied(now: Instant) -> (Call, Spy) {
    let (spy, config) = (Spy::default(), CallConfig::default());
    let mut call = Call::new(now, config.clone(), &OpenRequest::default(), Slot(1), 1);
    let turn = call.api.turn_detection();
    call.mode = Mode::Dialogue(Box::new(Dialogue::new(now, config.voice, turn, Box::new(spy.clone()))));
    (call, spy)
}

#[test]
fn the_backend_is_told_once_that_the_session_is_over_whoever_ends_it() {
    let now = Instant::now();
    let closed = || EdgeMessage { kind: Some(edge_message::Kind::Closed(Closed::default())) };
    let ends: [fn(&mut Call, Instant, EdgeMessage); 2] =
        [|call, now, closed| call.handle_message(now, closed), |call, _, _| call.close("drain")];
    for end in ends {
        let (mut call, spy) = spied(now);
        end(&mut call, now, closed());
        call.close("again");
        call.handle_message(now, closed());
        assert_eq!(*spy.0.lock().unwrap(), [BackendInput::Close]);
        let ended = std::iter::from_fn(|| call.poll_output()).filter(|output| *output == CallOutput::Ended).count();
        assert_eq!(ended, 1);
    }
}
