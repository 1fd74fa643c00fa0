//! Benches: what a server costs and how late its frames are, beside a control in the same run.
//!
//! ```text
//! edge    the edge echoes: callers ──WebRTC──▶ edge
//! path    the whole road:  callers ──WebRTC──▶ edge ══QUIC══▶ transceivers (loopback backend), and back
//! voice   a transceiver that does all of its work: decodes, detects and encodes, for callers who speak
//! setup   a storm of set-ups beside running calls
//! peer    any server that answers offers posted to it
//! echo    the controls themselves: plain UDP, and UDP in batches
//! ```
//!
//! Callers are str0m's (ICE, DTLS, SCTP, RTCP); their audio is sealed and opened with rtc-srtp beside it ([`tap`]), so that
//! one core of callers can keep one core of a server busy. Times are worth comparing within one run alone: each run has
//! its control, before and after.

mod call;
mod chart;
mod control;
mod dialer;
mod driver;
mod figures;
mod hearing;
mod media;
mod process;
mod pulse;
mod recordings;
mod report;
mod run;
mod servers;
mod storm;
mod sweep;
mod tap;
mod voice;

pub use control::{EchoKind, echo};
pub use figures::{Percentiles, Traffic};
pub use process::Placement;
pub use recordings::Talk;
pub use report::{Control, Machine, Report};
pub use run::{Options, edge, path, peer};
pub use servers::TRANSCEIVER_SEATS;
pub use storm::{SetupReport, setup};
pub use sweep::{Point, Sweep, sweep};
pub use voice::{VoiceReport, sweep_voice, voice};
