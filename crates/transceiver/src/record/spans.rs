//! Records as OpenTelemetry spans.
//!
//! ```text
//! call                                     trace id = the session's id
//! ├─ turn                                  its record as attributes, its decisions as events
//! │  └─ mouth_to_ear                       from the user's last sound to the agent's first
//! │     └─ uplink | repair | silence | backend | encode | playout    end to end, no gap
//! └─ turn ...
//! ```
//!
//! Invariant: the parts lie end to end and last as long as `mouth_to_ear`, to the microsecond. Ids follow from the session,
//! its epoch and the numbers of turn and reply, so what is sent twice is one span, and a turn names the span of its call
//! before that is over.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use link::ids::{Epoch, SessionId};
use opentelemetry::trace::{Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use serde::Serialize;
use serde_json::Value;

use super::{ExportedTurn, TurnRecord};

/// Whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallName {
    pub(crate) session: SessionId,
    pub(crate) epoch: Epoch,
    pub(crate) model: Arc<str>,
}

/// What is over.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Over {
    Turn(Arc<TurnRecord>),
    /// The call, after so long.
    Call {
        lasted: Duration,
        turns: u64,
    },
}

/// Something that is over, in a call that began then.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub(crate) call: CallName,
    pub(crate) began: SystemTime,
    pub(crate) over: Over,
}

impl Told {
    /// Appends its spans.
    pub(crate) fn spans(&self, out: &mut Vec<SpanData>) {
        match &self.over {
            Over::Turn(record) => self.turn(record, out),
            Over::Call { lasted, turns } => {
                let mut span = self.span("call", self.id(""), SpanId::INVALID, self.began, self.began + *lasted);
                span.attributes = vec![
                    KeyValue::new("fronthaul.session", self.call.session.to_string()),
                    KeyValue::new("fronthaul.model", self.call.model.to_string()),
                    KeyValue::new("fronthaul.turns", signed(*turns)),
                ];
                out.push(span);
            }
        }
    }

    fn turn(&self, record: &TurnRecord, out: &mut Vec<SpanData>) {
        let mut exported = ExportedTurn::of(self.call.session, &self.call.model, record);
        let decisions = std::mem::take(&mut exported.decisions);
        let name = (record.turn.map(|turn| turn.0), record.response.map(|response| response.0));
        let id = self.id(("turn", name));
        let at = |ms| self.began + Duration::from_millis(ms);
        let over = at(exported.moments.over_ms.unwrap_or(exported.began_ms));
        let mut turn = self.span("turn", id, self.id(""), at(exported.began_ms), over);
        turn.attributes = attributes(&exported);
        turn.events.dropped_count = u32::try_from(exported.decisions_dropped).unwrap_or(u32::MAX);
        turn.events.events = decisions
            .iter()
            .map(|decision| Event::new(decision.kind.clone(), at(decision.at_ms), attributes(decision), 0))
            .collect();
        if exported.outcome == "failed" {
            turn.status = Status::error(exported.reason.clone().unwrap_or_default());
        }
        out.push(turn);
        let (Some(timing), Some(playing_ms)) = (exported.timing, exported.moments.playing_ms) else { return };
        let playing = at(playing_ms);
        let delay = self.id(("mouth_to_ear", name));
        let mut from = playing.checked_sub(Duration::from_micros(timing.total_us)).unwrap_or(SystemTime::UNIX_EPOCH);
        out.push(self.span("mouth_to_ear", delay, id, from, playing));
        for (part, us) in timing.parts() {
            let to = from + Duration::from_micros(us);
            out.push(self.span(part, self.id((part, name)), delay, from, to));
            from = to;
        }
    }

    fn span(&self, name: &'static str, id: SpanId, parent: SpanId, from: SystemTime, to: SystemTime) -> SpanData {
        // Systems with ids of 64 bits take the lower half.
        let trace = TraceId::from(u128::from(self.call.session.0));
        SpanData {
            span_context: SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: Cow::Borrowed(name),
            start_time: from,
            end_time: to,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("fronthaul").build(),
        }
    }

    fn id(&self, what: impl Hash) -> SpanId {
        let mut hasher = DefaultHasher::new();
        (self.call.session, self.call.epoch, what).hash(&mut hasher);
        // 0 is no id.
        SpanId::from(hasher.finish().max(1))
    }
}

/// What is exported, flat: `fronthaul.counts.red_ms`.
fn attributes(exported: &impl Serialize) -> Vec<KeyValue> {
    let mut attributes = Vec::new();
    if let Ok(value) = serde_json::to_value(exported) {
        flatten("fronthaul".to_owned(), value, &mut attributes);
    }
    attributes
}

fn flatten(name: String, value: Value, out: &mut Vec<KeyValue>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                flatten(format!("{name}.{field}"), value, out);
            }
        }
        Value::String(text) => out.push(KeyValue::new(name, text)),
        Value::Bool(whether) => out.push(KeyValue::new(name, whether)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => out.push(KeyValue::new(name, number)),
            // An f32 with three digits.
            (None, Some(number)) => out.push(KeyValue::new(name, (number * 1000.0).round() / 1000.0)),
            (None, None) => {}
        },
        // The decisions, which are events.
        Value::Array(_) | Value::Null => {}
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
