//! Packets into repair, and what comes out.

use std::time::{Duration, Instant};

use voice::repair::{Late, Piece, Repair, Source};
use voice::{Codec, MediaFrame, RepairConfig};

/// What a piece was, without its times of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Got {
    Packet(u8),
    /// G.711 of so many samples.
    G711(u32),
    Fec(u32),
    Conceal(u32),
    Silence(u32),
    Skip(u32),
}

/// A stream of 20 ms packets; the second byte of each names it.
pub(crate) struct Stream {
    pub(crate) repair: Repair,
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    pub(crate) got: Vec<Got>,
    /// Media time and name of what came late.
    pub(crate) late: Vec<(u64, u8)>,
    media_time: u64,
}

pub(crate) const WIDEBAND_20_MS: u8 = 9 << 3;
/// First byte of a SILK frame that carries a copy of the one before.
pub(crate) const COPY: u8 = 0x40;

impl Stream {
    pub(crate) fn new() -> Self {
        Self::with(RepairConfig::default())
    }

    pub(crate) fn with(config: RepairConfig) -> Self {
        let start = Instant::now();
        Self { repair: Repair::new(config), start, now: start, got: Vec::new(), late: Vec::new(), media_time: 0 }
    }

    pub(crate) fn send(&mut self, seq: u16, timestamp: u32, name: u8) {
        self.send_toc(seq, timestamp, &[WIDEBAND_20_MS, COPY | name, 0]);
    }

    pub(crate) fn send_toc(&mut self, seq: u16, timestamp: u32, packet: &[u8]) {
        self.send_coded(Codec::Opus, seq, timestamp, packet);
    }

    /// The packets named, each 20 ms before the next: copies, oldest first, and the packet itself last.
    pub(crate) fn send_red(&mut self, seq: u16, timestamp: u32, names: &[u8]) {
        let blocks: Vec<[u8; 3]> = names.iter().map(|name| [WIDEBAND_20_MS, COPY | name, 0]).collect();
        let mut packet = Vec::new();
        for back in (1..names.len()).rev() {
            let offset = u32::try_from(back * 960).unwrap();
            packet.extend_from_slice(&(0x80 << 24 | 111 << 24 | offset << 10 | 3_u32).to_be_bytes());
        }
        packet.push(111);
        blocks.iter().for_each(|block| packet.extend_from_slice(block));
        self.send_coded(Codec::Red, seq, timestamp, &packet);
    }

    pub(crate) fn send_coded(&mut self, codec: Codec, seq: u16, timestamp: u32, payload: &[u8]) {
        let frame = MediaFrame { codec, ..MediaFrame::opus(seq, timestamp, payload) };
        let (got, media_time) = (&mut self.got, &mut self.media_time);
        let late = self.repair.handle(self.now, &frame, 0, &mut |piece| take(got, media_time, &piece));
        if let Some(Late { media_time, source: Source::Packet(packet), .. }) = late {
            self.late.push((media_time, packet.get(1).copied().unwrap_or(0) & !COPY));
        }
    }

    pub(crate) fn wait_ms(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        let (got, media_time) = (&mut self.got, &mut self.media_time);
        if self.repair.poll_timeout().is_some_and(|due| due <= self.now) {
            self.repair.handle_timeout(self.now, &mut |piece| take(got, media_time, &piece));
        }
    }

    pub(crate) fn taken(&mut self) -> Vec<Got> {
        std::mem::take(&mut self.got)
    }
}

fn take(got: &mut Vec<Got>, media_time: &mut u64, piece: &Piece<'_>) {
    assert_eq!(piece.media_time, *media_time, "media time has a gap");
    assert_eq!(piece.samples % 6, 0, "no whole sample at 8 kHz");
    *media_time += u64::from(piece.samples);
    got.push(match piece.source {
        Source::Packet(packet) => Got::Packet(packet.get(1).copied().unwrap_or(0) & !COPY),
        Source::G711(..) => Got::G711(piece.samples),
        Source::Fec(_) => Got::Fec(piece.samples),
        Source::Conceal => Got::Conceal(piece.samples),
        Source::Silence => Got::Silence(piece.samples),
        Source::Skip => Got::Skip(piece.samples),
    });
}
