//! Readings of the two clocks in the units that travel on the wire.
//!
//! The pure machines take an [`Instant`] as an argument; the shells read it once per batch and derive the
//! rest here.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The low 32 bits of a monotonic microsecond count, for time stamps on the link.
///
/// The count starts at the first call of the process, wraps every 71.6 minutes and must be compared with
/// wrapping arithmetic, and only with values of the same process. An instant before that first call yields
/// the wrapped negative, so that differences stay right.
pub fn monotonic_micros(now: Instant) -> u32 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(|| now);
    match now.checked_duration_since(origin) {
        Some(elapsed) => low_bits(elapsed.as_micros()),
        None => low_bits(origin.duration_since(now).as_micros()).wrapping_neg(),
    }
}

/// Seconds since 1970 as 32 bits, enough until 2106; 0 when the system clock is before 1970.
pub fn unix_seconds() -> u32 {
    u32::try_from(since_epoch().as_secs()).unwrap_or(u32::MAX)
}

/// Microseconds since 1970; 0 when the system clock is before 1970.
pub fn unix_micros() -> u64 {
    u64::try_from(since_epoch().as_micros()).unwrap_or(u64::MAX)
}

fn since_epoch() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn low_bits(micros: u128) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are what is asked for")]
    let low = micros as u32;
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn differences_of_monotonic_micros_are_microseconds_in_both_directions() {
        let now = Instant::now() + Duration::from_secs(10);
        let base = monotonic_micros(now);
        assert_eq!(monotonic_micros(now + Duration::from_micros(1234)).wrapping_sub(base), 1234);
        assert_eq!(base.wrapping_sub(monotonic_micros(now - Duration::from_secs(20))), 20_000_000);
    }

    #[test]
    fn monotonic_micros_wrap_after_two_to_the_32() {
        let now = Instant::now();
        let wrap = Duration::from_micros(1 << 32);
        assert_eq!(monotonic_micros(now + wrap), monotonic_micros(now));
    }

    #[test]
    fn unix_readings_agree() {
        let seconds = u64::from(unix_seconds());
        let micros = unix_micros();
        assert!(micros / 1_000_000 - seconds <= 1, "{seconds} s against {micros} us");
    }
}
