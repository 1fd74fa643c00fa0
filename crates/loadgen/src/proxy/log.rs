//! The packet log: what a path's two ends could see of each datagram, one JSON object per line.
//!
//! A line is written when its datagram leaves the proxy, so lines of one direction stand in order. Only what travels in the
//! clear is read: kinds by first byte (RFC 7983 §7), STUN's class and attributes, DTLS record headers, RTP headers.
//!
//! ```text
//! client            proxy                edge
//!   | -- up, t_us --> | ---- edge_us ----> |
//!   | <- down, t_us - | <--- edge_us ----- |
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// Way of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client.
    Up,
    /// To the client.
    Down,
}

/// One datagram, or one chunk of TCP.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Entry {
    /// Unix time in microseconds at the client's side: what it sent when it came, what it gets when it left.
    t_us: u64,
    /// The same at the edge's side.
    edge_us: u64,
    dir: Direction,
    #[serde(flatten)]
    what: What,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dropped: bool,
}

/// What the datagram is.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct What {
    kind: &'static str,
    len: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    stun: Option<Stun>,
    /// What each DTLS record holds, those inside STUN included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    records: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u16>,
    /// RFC 6464: -dBov, 0 is loudest.
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<u8>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Stun {
    class: &'static str,
    /// The last four bytes of the transaction id: enough to pair a response with its request.
    transaction: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    nominates: bool,
    /// Bytes of DTLS inside (SPED's DATA attribute).
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<usize>,
    /// DTLS datagrams that are acknowledged (SPED's ACK attribute).
    #[serde(skip_serializing_if = "Option::is_none")]
    acks: Option<usize>,
}

/// A log file that several tasks write to.
#[derive(Debug, Clone)]
pub(super) struct Log {
    file: Arc<Mutex<File>>,
    audio_level_id: u8,
}

impl Log {
    pub(super) fn create(path: &Path, audio_level_id: u8) -> io::Result<Self> {
        Ok(Self { file: Arc::new(Mutex::new(File::create(path)?)), audio_level_id })
    }

    fn write(&self, entry: &Entry) {
        let (Ok(mut line), Ok(mut file)) = (serde_json::to_vec(entry), self.file.lock()) else { return };
        line.push(b'\n');
        // A full disk costs the log, not the call.
        let _ = file.write_all(&line);
    }
}

pub(super) fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

/// Writes down a datagram that leaves.
pub(super) fn passed(log: &Option<Log>, dir: Direction, datagram: &[u8], came_us: u64) {
    let Some(log) = log else { return };
    log.write(&entry(dir, describe(datagram, log.audio_level_id), came_us, unix_us(), false));
}

/// Writes down a datagram that never arrives, with the time at which it would have.
pub(super) fn lost(log: &Option<Log>, dir: Direction, datagram: &[u8], came_us: u64, delay: Duration) {
    let Some(log) = log else { return };
    let would = came_us + u64::try_from(delay.as_micros()).unwrap_or(0);
    log.write(&entry(dir, describe(datagram, log.audio_level_id), came_us, would, true));
}

/// Writes down a chunk of TCP that leaves.
pub(super) fn http(log: &Option<Log>, dir: Direction, len: usize, came_us: u64) {
    let Some(log) = log else { return };
    log.write(&entry(dir, What { kind: "http", len, ..What::default() }, came_us, unix_us(), false));
}

fn entry(dir: Direction, what: What, came_us: u64, left_us: u64, dropped: bool) -> Entry {
    let (t_us, edge_us) = match dir {
        Direction::Up => (came_us, left_us),
        Direction::Down => (left_us, came_us),
    };
    Entry { t_us, edge_us, dir, what, dropped }
}

fn describe(datagram: &[u8], audio_level_id: u8) -> What {
    let mut what = What { kind: "unknown", len: datagram.len(), ..What::default() };
    match datagram {
        [0..=3, ..] => {
            what.kind = "stun";
            what.stun = stun(datagram, &mut what.records);
        }
        [20..=63, ..] => {
            what.kind = "dtls";
            what.records = records(datagram);
        }
        [128..=191, 192..=223, ..] => what.kind = "srtcp",
        [128..=191, ..] => {
            what.kind = "srtp";
            what.seq = word(datagram, 2);
            what.level = audio_level(datagram, audio_level_id);
        }
        _ => {}
    }
    what
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// RFC 8489 §5: type, length, cookie, transaction id, then attributes padded to four bytes.
fn stun(message: &[u8], dtls: &mut Vec<&'static str>) -> Option<Stun> {
    let class = match word(message, 0)? & 0x0110 {
        0x0000 => "request",
        0x0010 => "indication",
        0x0100 => "response",
        _ => "error",
    };
    let transaction = u32::from_be_bytes(message.get(16..20)?.try_into().ok()?);
    let mut stun = Stun { class, transaction, ..Stun::default() };
    let mut rest = message.get(20..)?;
    while let (Some(kind), Some(length)) = (word(rest, 0), word(rest, 2)) {
        let length = usize::from(length);
        let Some(value) = rest.get(4..4 + length) else { break };
        match kind {
            0x0025 => stun.nominates = true,
            0xc070 => {
                stun.data = Some(length);
                dtls.extend(records(value));
            }
            0xc071 => stun.acks = Some(length / 4),
            _ => {}
        }
        rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(stun)
}

/// The records of a DTLS datagram: RFC 6347 §4.1 and, for DTLS 1.3's short headers, RFC 9147 §4.
fn records(mut datagram: &[u8]) -> Vec<&'static str> {
    let mut found = Vec::new();
    while let Some(&first) = datagram.first() {
        let (what, header, length) = match first {
            // 001CSLEE: connection id (never here), 16-bit sequence, length present, low bits of the epoch.
            0x20..=0x3f => {
                let header = if first & 0x08 == 0 { 2 } else { 3 };
                let what = if first & 0x03 == 3 { "data" } else { "handshake" };
                if first & 0x04 == 0 {
                    found.push(what);
                    break;
                }
                (what, header + 2, word(datagram, header))
            }
            _ => {
                let encrypted = word(datagram, 3) != Some(0);
                let what = match (first, datagram.get(13)) {
                    (20, _) => "change_cipher_spec",
                    (21, _) => "alert",
                    (22, Some(1)) if !encrypted => "client_hello",
                    (22, Some(2)) if !encrypted => "server_hello",
                    (22, _) => "handshake",
                    (23, _) => "data",
                    (26, _) => "ack",
                    _ => "unknown",
                };
                (what, 13, word(datagram, 11))
            }
        };
        let Some(length) = length else { break };
        found.push(what);
        datagram = datagram.get(header + usize::from(length)..).unwrap_or_default();
    }
    found
}

/// RFC 6464 in a one-byte-header extension block (RFC 8285 §4.2). Extensions are not encrypted in SRTP.
fn audio_level(packet: &[u8], id: u8) -> Option<u8> {
    if packet.first()? & 0x10 == 0 {
        return None;
    }
    let block = packet.get(12 + 4 * usize::from(packet[0] & 0x0f)..)?;
    if block.get(..2)? != [0xbe, 0xde] {
        return None;
    }
    let words = word(block, 2)?;
    let mut elements = block.get(4..4 + 4 * usize::from(words))?;
    while let Some((&head, rest)) = elements.split_first() {
        if head == 0 {
            elements = rest;
            continue;
        }
        let length = usize::from(head & 0x0f) + 1;
        if head >> 4 == id {
            return rest.first().map(|byte| byte & 0x7f);
        }
        elements = rest.get(length..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives_every_cut(datagram: &[u8]) {
        for cut in 0..datagram.len() {
            let _ = describe(&datagram[..cut], 1);
        }
    }

    #[test]
    fn datagrams_are_told_apart_and_audio_levels_read() {
        let mut rtp = vec![0x90, 111, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0xbe, 0xde, 0, 2];
        rtp.extend([0x31, 1, 2, 0x10, 0x80 | 42, 0, 0, 0]);
        let expected = What { kind: "srtp", len: 24, seq: Some(0x1234), level: Some(42), ..What::default() };
        assert_eq!(describe(&rtp, 1), expected);
        for (datagram, kind) in [(&[0, 1][..], "stun"), (&[22], "dtls"), (&[0x80, 200], "srtcp"), (&[], "unknown")] {
            assert_eq!(describe(datagram, 1).kind, kind);
        }
        survives_every_cut(&rtp);
    }

    #[test]
    fn records_of_a_flight_are_named() {
        let mut flight = vec![22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0];
        // DTLS 1.3: epoch 2 with a 16-bit sequence and a length, then epoch 3 up to the end.
        flight.extend([0x2e, 0, 1, 0, 3, 9, 9, 9, 0x23, 1, 9, 9]);
        assert_eq!(records(&flight), ["server_hello", "handshake", "data"]);
        survives_every_cut(&flight);
    }

    #[test]
    fn dtls_inside_a_check_is_seen() {
        let mut check = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
        check.extend([0x00, 0x25, 0, 0]);
        check.extend([0xc0, 0x71, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
        check.extend([0xc0, 0x70, 0, 14, 22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]);
        let what = describe(&check, 1);
        let expected = Stun { class: "request", transaction: 7, nominates: true, data: Some(14), acks: Some(2) };
        assert_eq!((what.stun, what.records), (Some(expected), vec!["client_hello"]));
        survives_every_cut(&check);
    }
}
