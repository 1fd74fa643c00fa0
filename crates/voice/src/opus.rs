//! Opus, the only module with `unsafe` in this crate: a safe wrapper around `unsafe-libopus` (libopus 1.3 in Rust).
//!
//! Everything is mono: a decoder made for one channel down-mixes stereo packets itself, in the codec's own domain.
//! Sample counts of packets are at 48 kHz, the RTP clock of Opus (RFC 7587 §4.1), whatever rate is decoded to.
//! A packet is data from the network: safe code judges it before libopus sees it. Concealment is ours (why: `conceal.rs`), and
//! so libopus is never asked for one: no packet, an in-band copy that is not there and frames of no or one byte do not reach it.

#![allow(unsafe_code, reason = "the binding is a C API in Rust; this module is its only user")]

mod conceal;
mod packet;
#[cfg(test)]
mod tests;

use std::ptr::NonNull;

#[expect(clippy::unsafe_removed_from_name, reason = "each call stands in an unsafe block")]
use unsafe_libopus as ffi;

use conceal::Concealment;
use packet::{Frames, is_celt, is_silence};
pub use packet::{MAX_PACKET_SAMPLES, copy_samples, is_dtx, packet_frame_samples, packet_samples};

/// Room for any packet [`Encoder::encode`] makes: one 20 ms frame has at most 1275 bytes (RFC 6716 §3.2.1).
pub const MAX_PACKET_BYTES: usize = 1276;

/// Rates libopus reads and writes and this crate uses.
const RATES: [u32; 3] = [16_000, 24_000, 48_000];

/// How to encode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderConfig {
    /// Rate of the PCM: 16000, 24000 or 48000. Defaults to 48000.
    pub rate: u32,
    /// Target of the variable bitrate in bit/s. Defaults to 24000.
    pub bitrate: i32,
    /// 0..=10, CPU for quality. Defaults to 5.
    pub complexity: i32,
    /// In-band copies of the preceding frame; spends bitrate only when `loss_percent` is above zero. Defaults to true.
    pub fec: bool,
    /// Expected loss of the link in percent. Defaults to 0.
    pub loss_percent: i32,
    /// Nothing but a short packet each 400 ms in silence. Defaults to false.
    pub dtx: bool,
}

impl Default for EncoderConfig {
    fn default() -> Self {
        Self { rate: 48_000, bitrate: 24_000, complexity: 5, fec: true, loss_percent: 0, dtx: false }
    }
}

/// No codec for these settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// Not 16000, 24000 or 48000.
    #[error("Opus runs at 16000, 24000 or 48000 Hz here, not at {0}")]
    Rate(u32),
    /// A setting is out of libopus' range.
    #[error("libopus refused {setting} = {value}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What was asked for.
        value: i32,
    },
    /// libopus could not make its state.
    #[error("libopus failed with code {0}")]
    Library(i32),
}

/// PCM was not encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Not 2.5, 5, 10, 20, 40 or 60 ms of samples.
    #[error("{0} samples are no Opus frame")]
    FrameSize(usize),
    /// libopus gave up, mostly because `out` is too small.
    #[error("libopus failed with code {0}")]
    Library(i32),
}

/// A packet was not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not an Opus packet.
    #[error("no Opus packet")]
    Malformed,
    /// `out` is shorter than the packet's duration, or no multiple of 2.5 ms for a concealment.
    #[error("{0} samples do not fit the packet")]
    OutputSize(usize),
    /// libopus gave up.
    #[error("libopus failed with code {0}")]
    Library(i32),
}

/// One stream's encoder.
pub struct Encoder {
    state: NonNull<ffi::OpusEncoder>,
    rate: u32,
}

// SAFETY: the state is one heap block without thread-bound parts, owned by this value alone and reached only through `&mut self`.
unsafe impl Send for Encoder {}

impl Encoder {
    /// A mono encoder for speech.
    pub fn new(config: EncoderConfig) -> Result<Self, CreateError> {
        let rate = i32_rate(config.rate)?;
        let mut error = ffi::OPUS_OK;
        // Told below that it is speech, so the speech codec is chosen all the same. What `VOIP` adds is a high-pass for
        // microphones, which turns the phase of low voices; a backend's speech needs none.
        // SAFETY: `error` outlives the call; rate and channels are in libopus' ranges.
        let state = unsafe { ffi::opus_encoder_create(rate, 1, ffi::OPUS_APPLICATION_AUDIO, &raw mut error) };
        let state = NonNull::new(state).ok_or(CreateError::Library(error))?;
        let mut encoder = Self { state, rate: config.rate };
        for (setting, request, value) in [
            ("bitrate", ffi::OPUS_SET_BITRATE_REQUEST, config.bitrate),
            ("vbr", ffi::OPUS_SET_VBR_REQUEST, 1),
            ("signal", ffi::OPUS_SET_SIGNAL_REQUEST, ffi::OPUS_SIGNAL_VOICE),
            ("complexity", ffi::OPUS_SET_COMPLEXITY_REQUEST, config.complexity),
            ("fec", ffi::OPUS_SET_INBAND_FEC_REQUEST, i32::from(config.fec)),
            ("loss_percent", ffi::OPUS_SET_PACKET_LOSS_PERC_REQUEST, config.loss_percent),
            ("dtx", ffi::OPUS_SET_DTX_REQUEST, i32::from(config.dtx)),
        ] {
            encoder.set(setting, request, value)?;
        }
        Ok(encoder)
    }

    /// Changes the target of the variable bitrate, in bit/s.
    pub fn set_bitrate(&mut self, bitrate: i32) -> Result<(), CreateError> {
        self.set("bitrate", ffi::OPUS_SET_BITRATE_REQUEST, bitrate)
    }

    /// Follows the link's loss.
    pub fn set_loss_percent(&mut self, percent: i32) -> Result<(), CreateError> {
        self.set("loss_percent", ffi::OPUS_SET_PACKET_LOSS_PERC_REQUEST, percent)
    }

    /// Sends nothing but a short packet each 400 ms in silence, or all of it.
    pub fn set_dtx(&mut self, dtx: bool) -> Result<(), CreateError> {
        self.set("dtx", ffi::OPUS_SET_DTX_REQUEST, i32::from(dtx))
    }

    /// Encodes one frame of 2.5 to 60 ms into `out` ([`MAX_PACKET_BYTES`] is enough up to 20 ms); the packet's length.
    pub fn encode(&mut self, pcm: &[i16], out: &mut [u8]) -> Result<usize, EncodeError> {
        let unit = (self.rate / 400) as usize;
        if !pcm.len().is_multiple_of(unit) || ![1, 2, 4, 8, 16, 24].contains(&(pcm.len() / unit)) {
            return Err(EncodeError::FrameSize(pcm.len()));
        }
        let samples = i32::try_from(pcm.len()).map_err(|_| EncodeError::FrameSize(pcm.len()))?;
        let room = i32::try_from(out.len()).unwrap_or(i32::MAX);
        // SAFETY: `pcm` holds `samples` mono samples, `out` holds `room` bytes, the state is live and borrowed mutably.
        let length = unsafe { ffi::opus_encode(self.state.as_ptr(), pcm.as_ptr(), samples, out.as_mut_ptr(), room) };
        usize::try_from(length).map_err(|_| EncodeError::Library(length))
    }

    /// Forgets the past: the next frame begins a stream.
    pub fn reset(&mut self) {
        // SAFETY: the request takes no argument; the state is live and borrowed mutably.
        unsafe { ffi::opus_encoder_ctl!(self.state.as_ptr(), ffi::OPUS_RESET_STATE,) };
    }

    fn set(&mut self, setting: &'static str, request: i32, value: i32) -> Result<(), CreateError> {
        // SAFETY: every request used here takes one i32; the state is live and borrowed mutably.
        let code = unsafe { ffi::opus_encoder_ctl!(self.state.as_ptr(), request, value) };
        if code == ffi::OPUS_OK { Ok(()) } else { Err(CreateError::Setting { setting, value }) }
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: the state came from `opus_encoder_create` and is not used afterwards.
        unsafe { ffi::opus_encoder_destroy(self.state.as_ptr()) }
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("rate", &self.rate).finish_non_exhaustive()
    }
}

/// One stream's decoder. Packets, concealments and FEC go in, in media order.
pub struct Decoder {
    state: NonNull<ffi::OpusDecoder>,
    rate: u32,
    concealment: Concealment,
    /// The last packet was coded without SILK.
    celt: bool,
}

// SAFETY: as for `Encoder`.
unsafe impl Send for Decoder {}

impl Decoder {
    /// A mono decoder to `rate`: 16000, 24000 or 48000.
    pub fn new(rate: u32) -> Result<Self, CreateError> {
        let hertz = i32_rate(rate)?;
        let mut error = ffi::OPUS_OK;
        // SAFETY: `error` outlives the call; rate and channels are in libopus' ranges.
        let state = unsafe { ffi::opus_decoder_create(hertz, 1, &raw mut error) };
        let state = NonNull::new(state).ok_or(CreateError::Library(error))?;
        Ok(Self { state, rate, concealment: Concealment::new(rate), celt: false })
    }

    /// Decodes a packet into the front of `out`, which is at least as long as the packet; samples written.
    pub fn decode(&mut self, packet: &[u8], out: &mut [i16]) -> Result<usize, DecodeError> {
        let samples = packet_samples(packet).ok_or(DecodeError::Malformed)?;
        let frames = Frames::parse(packet).ok_or(DecodeError::Malformed)?;
        let length = self.at_rate(samples);
        let out = out.get_mut(..length).ok_or(DecodeError::OutputSize(length))?;
        let celt = is_celt(packet);
        if celt && !std::mem::replace(&mut self.celt, celt) {
            // Without the frame that prepares a change of mode, libopus would conceal its begin.
            if self.concealment.is_active() {
                self.reset_library();
            } else if is_silence(packet) {
                self.reset_library();
                self.concealment.ring_out(out);
                return Ok(length);
            }
        }
        self.celt = celt;
        let empty = |index: usize| frames.get(packet, index).is_none_or(|frame| frame.len() <= 1);
        if (0..frames.count()).any(empty) {
            return self.decode_apart(packet, &frames, out);
        }
        self.run(packet, out, false)?;
        self.concealment.real(out);
        Ok(length)
    }

    /// Takes note of sound that came another way, so that a concealment goes on from it.
    pub fn heard(&mut self, pcm: &mut [i16]) {
        self.concealment.real(pcm);
    }

    /// Fills all of `out`, the time before `next`, from the copy of the lost frame that `next` carries; what is earlier than
    /// the copy reaches, or everything if it has none, is concealed.
    pub fn decode_fec(&mut self, next: &[u8], out: &mut [i16]) -> Result<usize, DecodeError> {
        packet_samples(next).ok_or(DecodeError::Malformed)?;
        self.concealable(out)?;
        let copy = self.at_rate(copy_samples(next));
        if copy == 0 || copy > out.len() || self.celt {
            return self.conceal(out);
        }
        let (before, copied) = out.split_at_mut(out.len() - copy);
        if !before.is_empty() {
            self.concealment.fill(before);
        }
        if self.run(next, copied, true).is_ok() {
            self.concealment.real(copied);
        } else {
            self.concealment.fill(copied);
        }
        Ok(out.len())
    }

    /// Fills all of `out` with what the past makes likely; it is silence after 100 ms.
    pub fn conceal(&mut self, out: &mut [i16]) -> Result<usize, DecodeError> {
        self.concealable(out)?;
        self.concealment.fill(out);
        Ok(out.len())
    }

    /// Forgets the past: the next packet begins a stream.
    pub fn reset(&mut self) {
        self.reset_library();
        self.concealment.reset();
        self.celt = false;
    }

    /// A packet with frames that say nothing, frame by frame.
    fn decode_apart(&mut self, packet: &[u8], frames: &Frames, out: &mut [i16]) -> Result<usize, DecodeError> {
        let mut single = [0; MAX_PACKET_BYTES];
        single[0] = packet[0] & !0b11;
        let length = out.len() / frames.count();
        for (index, out) in out.chunks_exact_mut(length).enumerate() {
            let frame = frames.get(packet, index).unwrap_or_default();
            let room = single.get_mut(1..=frame.len()).ok_or(DecodeError::Malformed)?;
            room.copy_from_slice(frame);
            if frame.len() > 1 && self.run(&single[..=frame.len()], out, false).is_ok() {
                self.concealment.real(out);
            } else {
                self.concealment.fill(out);
            }
        }
        Ok(out.len())
    }

    fn at_rate(&self, samples: u32) -> usize {
        (samples / (48_000 / self.rate)) as usize
    }

    fn concealable(&self, out: &[i16]) -> Result<(), DecodeError> {
        let unit = self.at_rate(120);
        let fits = !out.is_empty() && out.len().is_multiple_of(unit) && out.len() <= self.at_rate(48_000);
        if fits { Ok(()) } else { Err(DecodeError::OutputSize(out.len())) }
    }

    /// Has libopus fill `out`, which is as long as the packet, or as its copy if `fec`.
    fn run(&mut self, packet: &[u8], out: &mut [i16], fec: bool) -> Result<(), DecodeError> {
        let samples = i32::try_from(out.len()).map_err(|_| DecodeError::OutputSize(out.len()))?;
        let length = i32::try_from(packet.len()).map_err(|_| DecodeError::Malformed)?;
        // SAFETY: `packet` holds `length` bytes, `out` holds `samples` mono samples and libopus writes no more than that; the
        // state is live and borrowed mutably.
        let written = unsafe {
            ffi::opus_decode(self.state.as_ptr(), packet.as_ptr(), length, out.as_mut_ptr(), samples, i32::from(fec))
        };
        match written {
            _ if written == samples => Ok(()),
            ffi::OPUS_INVALID_PACKET => Err(DecodeError::Malformed),
            _ => Err(DecodeError::Library(written)),
        }
    }

    fn reset_library(&mut self) {
        // SAFETY: the request takes no argument; the state is live and borrowed mutably.
        unsafe { ffi::opus_decoder_ctl!(self.state.as_ptr(), ffi::OPUS_RESET_STATE,) };
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: the state came from `opus_decoder_create` and is not used afterwards.
        unsafe { ffi::opus_decoder_destroy(self.state.as_ptr()) }
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("rate", &self.rate).finish_non_exhaustive()
    }
}

fn i32_rate(rate: u32) -> Result<i32, CreateError> {
    if !RATES.contains(&rate) {
        return Err(CreateError::Rate(rate));
    }
    i32::try_from(rate).map_err(|_| CreateError::Rate(rate))
}
