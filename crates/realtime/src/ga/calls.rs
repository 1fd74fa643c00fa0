//! Calls of tools: output items of a response beside its message.

use serde_json::json;

use super::response::{Call, CallState, Response};
use super::session::Session;
use crate::limits::{MAX_CALLS, MAX_NAME_BYTES};

impl Session {
    /// Runs `action` on a call that is being made, named now if it is not known. Clients want its item, with name and `call_id`, ahead of its arguments.
    pub(super) fn tool_call(
        &mut self,
        number: u64,
        call_id: &str,
        name: &str,
        action: impl FnOnce(&mut Self, &mut Response, usize),
    ) {
        self.with_active(number, |session, response| {
            let known = response.calls.iter().position(|call| call.call_id == call_id);
            let index = match known {
                Some(index) if response.calls[index].state == CallState::Making => index,
                Some(_) => {
                    session.counters.stale_inputs += 1;
                    return;
                }
                None => {
                    let nameable = [call_id, name].iter().all(|it| !it.is_empty() && it.len() <= MAX_NAME_BYTES);
                    if !nameable || response.calls.len() == MAX_CALLS {
                        session.counters.overflows += 1;
                        return;
                    }
                    session.begin_call(response, call_id, name)
                }
            };
            action(session, response, index);
        });
    }

    fn begin_call(&mut self, response: &mut Response, call_id: &str, name: &str) -> usize {
        let mut call = Call {
            place: self.new_place(response),
            call_id: call_id.to_owned(),
            name: name.to_owned(),
            arguments: String::new(),
            state: CallState::Making,
        };
        let item = call.json();
        self.add_output(response, &mut call.place, &item, Some(call_id.to_owned()));
        response.calls.push(call);
        response.calls.len() - 1
    }

    /// More of a call's arguments. Too many end it: half of a call must not be made.
    pub(super) fn more_arguments(&mut self, response: &mut Response, index: usize, delta: &str) {
        if delta.is_empty() {
            return;
        }
        if !response.take_arguments(delta) {
            self.counters.overflows += 1;
            return self.end_call(response, index, CallState::Incomplete);
        }
        let call = &mut response.calls[index];
        call.arguments.push_str(delta);
        let body = json!({"response_id": response.id, "item_id": call.place.id, "output_index": call.place.output_index,
                          "call_id": call.call_id, "delta": delta});
        self.emit("response.function_call_arguments.delta", body);
    }

    /// The call is complete: these are its arguments, whatever the pieces were.
    pub(super) fn all_arguments(&mut self, response: &mut Response, index: usize, arguments: String) {
        if response.calls[index].arguments.is_empty() {
            self.more_arguments(response, index, &arguments);
        } else if response.calls[index].arguments != arguments && !response.take_arguments(&arguments) {
            self.counters.overflows += 1;
            self.end_call(response, index, CallState::Incomplete);
        }
        if response.calls[index].state != CallState::Making {
            return;
        }
        let call = &mut response.calls[index];
        call.arguments = arguments;
        let body = json!({"response_id": response.id, "item_id": call.place.id, "output_index": call.place.output_index,
                          "call_id": call.call_id, "name": call.name, "arguments": call.arguments});
        self.emit("response.function_call_arguments.done", body);
        self.end_call(response, index, CallState::Done);
    }

    /// The response ends: calls that are not complete will not be.
    pub(super) fn end_calls(&mut self, response: &mut Response) {
        for index in 0..response.calls.len() {
            if response.calls[index].state == CallState::Making {
                self.end_call(response, index, CallState::Incomplete);
            }
        }
    }

    fn end_call(&mut self, response: &mut Response, index: usize, state: CallState) {
        response.calls[index].state = state;
        let call = &response.calls[index];
        self.end_output(response, &call.place, &call.json());
    }
}
