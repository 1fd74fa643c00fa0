//! What is measured, and what it is held to.

use serde::Serialize;

/// One number and its promise.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    /// Stable, for programs.
    pub(crate) name: String,
    /// `None`: not measured.
    pub(crate) value: Option<f64>,
    /// Of `value` and `bound`.
    pub(crate) unit: &'static str,
    /// The most it may be. `None`: reported only.
    pub(crate) bound: Option<f64>,
    /// It was measured and is within its bound.
    pub(crate) ok: bool,
    /// How to read it.
    pub(crate) note: String,
}

/// A number that may be `bound` at most.
pub(crate) fn held(name: &str, value: f64, unit: &'static str, bound: f64, note: impl Into<String>) -> Figure {
    let value = rounded(value);
    Figure { name: name.into(), value: Some(value), unit, bound: Some(bound), ok: value <= bound, note: note.into() }
}

/// A number for the reader alone.
pub(crate) fn told(name: &str, value: f64, unit: &'static str, note: impl Into<String>) -> Figure {
    Figure { name: name.into(), value: Some(rounded(value)), unit, bound: None, ok: true, note: note.into() }
}

/// Three digits behind the point are more than any of these measurements is good for.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The value below which `part` of `values` lie; 0 of none.
pub(crate) fn percentile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let index = (part * values.len() as f64).ceil() as usize;
    values.get(index.saturating_sub(1)).copied().unwrap_or_default()
}

/// 0 of none.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
