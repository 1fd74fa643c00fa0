//! How clients are asked to send their audio, and what the edge does about it by itself.

use daemon::Problems;
use rtc::{Redundancy, Uplink};
use serde::Deserialize;

/// The `[media]` table. What answers say, a running call keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MediaConfig {
    /// Copies of packets against loss (RFC 2198), where a client offers them: `off`, `offered`, `prefer`. Defaults to `prefer`.
    pub red: Red,
    /// Most that a client's Opus may take on average, in bit/s; 0 leaves it to the client. Defaults to 0.
    pub max_average_bitrate_bps: u32,
    /// Clients send next to nothing in silence. Defaults to false.
    pub dtx: bool,
    /// Whether playout holds at once when the user's level rises, before the transceiver says so. Defaults to false.
    pub reflex: bool,
}

/// What becomes of offered RED.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Red {
    /// Not taken.
    Off,
    /// Taken behind Opus: browsers do not send it then.
    Offered,
    /// Taken before Opus: browsers send it.
    Prefer,
}

impl Default for MediaConfig {
    fn default() -> Self {
        Self { red: Red::Prefer, max_average_bitrate_bps: 0, dtx: false, reflex: false }
    }
}

impl MediaConfig {
    pub(super) fn check(&self, problems: &mut Problems) {
        let bitrate = self.max_average_bitrate_bps;
        problems.require(
            bitrate == 0 || (6000..=510_000).contains(&bitrate),
            "media.max_average_bitrate_bps",
            bitrate,
            "Opus codes 6000 to 510000 bit/s (RFC 7587, section 6.1)",
            "choose 16000 to 32000 for speech, or 0 for no limit",
        );
    }

    /// The same for answers.
    #[must_use]
    pub fn uplink(&self) -> Uplink {
        let red = match self.red {
            Red::Off => Redundancy::Off,
            Red::Offered => Redundancy::Offered,
            Red::Prefer => Redundancy::Prefer,
        };
        Uplink { max_average_bitrate: self.max_average_bitrate_bps, dtx: self.dtx, red }
    }
}
