//! What came in since the last response began, as far as the turns of a script ask for it.
//!
//! Texts are not kept: what turns look for in them is looked up when they come.

use std::collections::VecDeque;
use std::fmt;

use voice::{Item, ItemKind, Request, Role, Settings};

use super::format::{Turn, When};

/// Calls whose results may still come: twice what one response may make.
const MAX_CALLS: usize = 64;

/// Notes of what came, and which turns it fits.
#[derive(Debug)]
pub(super) struct Came {
    speech: bool,
    messages: u32,
    results: u32,
    /// Of each turn: a message and a result that it asks for came.
    fits: Vec<Fits>,
    /// Calls by `call_id`, with the tool's name, oldest first.
    calls: VecDeque<(String, String)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Fits {
    text: bool,
    result: bool,
}

impl Came {
    pub(super) fn new(turns: usize) -> Self {
        let fits = vec![Fits::default(); turns];
        Self { speech: false, messages: 0, results: 0, fits, calls: VecDeque::new() }
    }

    /// A spoken turn is complete.
    pub(super) fn speech(&mut self) {
        self.speech = true;
    }

    /// A call was made, here or before the session.
    pub(super) fn call(&mut self, call_id: &str, tool: &str) {
        if self.calls.len() == MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back((call_id.to_owned(), tool.to_owned()));
    }

    /// The conversation has another item.
    pub(super) fn item(&mut self, item: &Item, turns: &[Turn]) {
        match &item.kind {
            ItemKind::Message { role: Role::User, text } => {
                self.messages += 1;
                let text = text.to_lowercase();
                for (fits, turn) in self.fits.iter_mut().zip(turns) {
                    fits.text |= turn.when.text.as_deref().is_some_and(|wanted| text.contains(wanted));
                }
            }
            ItemKind::ToolCall { call_id, name, .. } => self.call(call_id, name),
            ItemKind::ToolResult { call_id, output } => self.result(call_id, output, turns),
            ItemKind::Speech { .. } | ItemKind::Output { .. } | ItemKind::Message { .. } | ItemKind::Other => {}
        }
    }

    fn result(&mut self, call_id: &str, output: &str, turns: &[Turn]) {
        self.results += 1;
        let Some((_, tool)) = self.calls.iter().find(|(id, _)| id == call_id) else { return };
        let output = output.to_lowercase();
        for (fits, turn) in self.fits.iter_mut().zip(turns) {
            let When { tool_result, output: wanted, .. } = &turn.when;
            let wanted = wanted.as_deref().unwrap_or_default();
            fits.result |= tool_result.as_ref() == Some(tool) && output.contains(wanted);
        }
    }

    /// The first turn that fits and is not played. `request`: what is asked for; none while the user's turn is not answered yet.
    pub(super) fn choose(
        &self,
        turns: &[Turn],
        played: &[bool],
        settings: &Settings,
        request: Option<&Request>,
    ) -> Option<usize> {
        let own = request.and_then(|request| request.overrides.as_ref()?.instructions.as_ref());
        let instructions = own.unwrap_or(&settings.instructions).to_lowercase();
        (0..turns.len()).find(|&index| {
            let (turn, fits) = (&turns[index], self.fits[index]);
            let When { speech, text, tool_result, output: _, instructions: wanted, start } = &turn.when;
            let free = turn.repeat || !played[index];
            free && !start
                && speech.is_none_or(|speech| speech == self.speech)
                && (text.is_none() || fits.text)
                && (tool_result.is_none() || fits.result)
                && wanted.as_deref().is_none_or(|wanted| instructions.contains(wanted))
        })
    }

    /// A response begins: what came is answered by it.
    pub(super) fn answered(&mut self) {
        (self.speech, self.messages, self.results) = (false, 0, 0);
        self.fits.fill(Fits::default());
    }
}

/// For those who look why no turn fits.
impl fmt::Display for Came {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let speech = if self.speech { "speech" } else { "no speech" };
        write!(f, "{speech}, {} messages, {} tool results", self.messages, self.results)
    }
}
