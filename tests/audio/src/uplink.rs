//! A client's packets and what a backend gets of them.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use voice::opus::{Encoder, EncoderConfig, MAX_PACKET_BYTES};
use voice::{BackendInput, Config, Conversation, MediaFrame, Output, Stats};

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

/// Sends `packets` but those that `lost` names through a conversation whose turns the client ends, one each 20 ms.
pub(crate) fn deliver(packets: &[Vec<u8>], lost: &[bool]) -> anyhow::Result<Heard> {
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
        conversation.handle_media(now, frame(index, payload), 0);
        take(&mut conversation, &mut heard);
        let came = (index + 1) * PACKET;
        heard.waited = heard.waited.max(came.saturating_sub(heard.pcm.len()) as u64 * 3);
    }
    heard.stats = conversation.stats();
    heard.pcm.resize(packets.len() * PACKET, 0);
    Ok(heard)
}

fn take(conversation: &mut Conversation, heard: &mut Heard) {
    while let Some(output) = conversation.poll_output() {
        if let Output::Backend(BackendInput::Audio { pcm, .. }) = output {
            heard.pcm.extend(pcm);
        }
    }
}
