//! A client's packets and what a backend gets of them.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use voice::opus::{Encoder, EncoderConfig, MAX_PACKET_BYTES};
use voice::{
    BackendInput, ClientView, Codec, Config, Conversation, MediaFrame, Output, Playout, Received, Stats, Utterance,
};

/// A packet lasts 20 ms: 320 samples at 16 kHz.
pub(crate) const PACKET: usize = 320;
const PTIME: Duration = Duration::from_millis(20);

/// What a browser sends of speech: 32 kbit/s, complexity 5, in-band copies when `loss_percent` is above zero.
pub(crate) fn encode(pcm: &[i16], loss_percent: i32) -> anyhow::Result<Vec<Vec<u8>>> {
    let fec = loss_percent > 0;
    let config = EncoderConfig { rate: 16_000, bitrate: 32_000, fec, loss_percent, ..EncoderConfig::default() };
    let mut encoder = Encoder::new(config)?;
    let mut frame = [0; PACKET];
    let mut packet = [0; MAX_PACKET_BYTES];
    let one = |pcm: &[i16]| {
        frame.fill(0);
        frame[..pcm.len()].copy_from_slice(pcm);
        let length = encoder.encode(&frame, &mut packet)?;
        Ok(packet[..length].to_vec())
    };
    pcm.chunks(PACKET).map(one).collect()
}

/// The packet numbered `index` as it comes to a conversation.
pub(crate) fn frame(index: usize, payload: &[u8]) -> MediaFrame<'_> {
    #[expect(clippy::cast_possible_truncation, reason = "both wrap on the wire too")]
    let (seq, rtp_timestamp) = (index as u16, (index * 960) as u32);
    MediaFrame { marker: index == 0, ..MediaFrame::opus(seq, rtp_timestamp, payload) }
}

/// The packet numbered `index` behind copies of the `copies` before it (RFC 2198 §3), as Chromium packs them.
fn red(packets: &[Vec<u8>], index: usize, copies: usize) -> Vec<u8> {
    /// Opus, as browsers number it.
    const PAYLOAD_TYPE: u8 = 111;
    let first = index.saturating_sub(copies);
    let mut out = Vec::new();
    for (back, copy) in packets[first..index].iter().enumerate().map(|(at, copy)| (index - first - at, copy)) {
        #[expect(clippy::cast_possible_truncation, reason = "14 bits hold 17 packets, 10 bits any of 32 kbit/s")]
        let word = 1 << 31 | u32::from(PAYLOAD_TYPE) << 24 | (back as u32 * 960) << 10 | copy.len() as u32;
        out.extend(word.to_be_bytes());
    }
    out.push(PAYLOAD_TYPE);
    packets[first..=index].iter().for_each(|block| out.extend(block));
    out
}

/// What came of a stream.
#[derive(Debug)]
pub(crate) struct Heard {
    /// At 16 kHz, from the first packet sent.
    pub(crate) pcm: Vec<i16>,
    /// Counts of the conversation.
    pub(crate) stats: Stats,
    /// Longest time a sample waited behind the arrival of the packet that carries it, in 48 kHz samples.
    pub(crate) waited: u64,
}

/// Sends `packets` but those that `lost` names through a conversation whose turns the client ends, one each 20 ms; with RED if
/// there are to be copies.
pub(crate) fn deliver(packets: &[Vec<u8>], lost: &[bool], copies: usize) -> anyhow::Result<Heard> {
    let start = Instant::now();
    let mut config = Config::default();
    config.turn.server_vad = None;
    let mut conversation = Conversation::new(start, config);
    let first = lost.iter().position(|lost| !lost).ok_or_else(|| anyhow!("all is lost"))?;
    let mut heard = Heard { pcm: vec![0; first * PACKET], stats: Stats::default(), waited: 0 };
    for (index, payload) in packets.iter().enumerate().filter(|(index, _)| !lost[*index]) {
        let now = start + PTIME * u32::try_from(index)?;
        while let Some(due) = conversation.poll_timeout().filter(|due| *due <= now) {
            conversation.handle_timeout(due);
            take(&mut conversation, &mut heard);
        }
        if copies > 0 {
            let payload = red(packets, index, copies);
            conversation.handle_media(now, MediaFrame { codec: Codec::Red, ..frame(index, &payload) }, 0);
        } else {
            conversation.handle_media(now, frame(index, payload), 0);
        }
        take(&mut conversation, &mut heard);
        let came = (index + 1) * PACKET;
        heard.waited = heard.waited.max(came.saturating_sub(heard.pcm.len()) as u64 * 3);
    }
    heard.stats = conversation.stats();
    heard.pcm.resize(packets.len() * PACKET, 0);
    Ok(heard)
}

/// What came of a stream whose packets come out of order or again.
#[derive(Debug)]
pub(crate) struct Waits {
    /// At each packet's arrival, how far behind the newest one is what left repair.
    pub(crate) waited_ms: Vec<f64>,
    /// Counts of the conversation.
    pub(crate) stats: Stats,
    /// Packets that were missing when the next came.
    pub(crate) missing: usize,
}

/// Sends `packets` one each 20 ms. With `answer_ms` NACK is agreed, that is the round trip, and one packet in twenty comes only so
/// long after the next; if they are `overtaken`, one in thirteen comes 3 ms after the next.
pub(crate) fn disordered(packets: &[Vec<u8>], answer_ms: Option<u64>, overtaken: bool) -> anyhow::Result<Waits> {
    let start = Instant::now();
    let mut config = Config::default();
    config.turn.server_vad = None;
    config.repair.nack = answer_ms.is_some();
    // All of it is one turn, the longest that there is.
    config.max_turn_ms = 600_000;
    let mut conversation = Conversation::new(start, config);
    if let Some(answer_ms) = answer_ms {
        let client = ClientView {
            rtt_us: u32::try_from(answer_ms * 1000)?,
            delay_us: None,
            received: Received::default(),
            loss: 0,
            told: 0,
            transport_wide: true,
        };
        let report = Playout::Report { utterance: Utterance(1), sent: 0, limit: 0, client: Some(client) };
        conversation.handle_playout(start, report);
    }
    let mut missing = 0;
    let late = |index: usize| match answer_ms {
        Some(answer_ms) if index % 20 == 10 => Some(20 + answer_ms),
        _ if overtaken && index % 13 == 5 => Some(23),
        _ => None,
    };
    let mut arrivals: Vec<(u64, usize)> = Vec::new();
    for index in 0..packets.len() {
        let late = late(index).filter(|_| index + 1 < packets.len());
        missing += usize::from(late.is_some());
        arrivals.push((20 * index as u64 + late.unwrap_or(0), index));
    }
    arrivals.sort_unstable();
    let mut heard = Heard { pcm: Vec::new(), stats: Stats::default(), waited: 0 };
    let (mut newest, mut waited_ms) = (0, Vec::new());
    for (ms, index) in arrivals {
        let now = start + Duration::from_millis(ms);
        while let Some(due) = conversation.poll_timeout().filter(|due| *due <= now) {
            conversation.handle_timeout(due);
            take(&mut conversation, &mut heard);
        }
        conversation.handle_media(now, frame(index, &packets[index]), 0);
        take(&mut conversation, &mut heard);
        newest = newest.max(index);
        let behind = ((newest + 1) * PACKET).saturating_sub(heard.pcm.len());
        waited_ms.push(behind as f64 / 16.0);
    }
    Ok(Waits { waited_ms, stats: conversation.stats(), missing })
}

fn take(conversation: &mut Conversation, heard: &mut Heard) {
    while let Some(output) = conversation.poll_output() {
        if let Output::Backend(BackendInput::Audio { pcm, .. }) = output {
            heard.pcm.extend(pcm);
        }
    }
}
