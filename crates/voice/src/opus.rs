//! Opus, the only module with `unsafe` in this crate: a safe wrapper around `unsafe-libopus` (libopus 1.3 in Rust).
//!
//! Everything is mono: a decoder made for one channel down-mixes stereo packets itself, in the codec's own domain.
//! Sample counts of packets are at 48 kHz, the RTP clock of Opus (RFC 7587 §4.1), whatever rate is decoded to.
//! A packet is data from the network: [`packet_samples`] judges it in safe code before libopus sees it.

#![allow(unsafe_code, reason = "the binding is a C API in Rust; this module is its only user")]

use std::ptr::NonNull;

use unsafe_libopus as ffi;

/// Longest packet in 48 kHz samples: 120 ms (RFC 6716 §3.2.5).
pub const MAX_PACKET_SAMPLES: u32 = 5760;

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

/// The duration of one packet in 48 kHz samples, `None` if it is no Opus packet. RFC 6716 §3.1 and §3.2:
///
/// ```text
///  0 1 2 3 4 5 6 7
/// +-+-+-+-+-+-+-+-+   config: mode, bandwidth, frame duration      s: stereo
/// | config  |s| c |   c: 0 one frame, 1 two equal, 2 two, 3 the number is in the low six bits of the next byte
/// +-+-+-+-+-+-+-+-+
/// ```
#[must_use]
pub fn packet_samples(packet: &[u8]) -> Option<u32> {
    let toc = *packet.first()?;
    let frames = match toc & 0b11 {
        0 => 1,
        1 | 2 => 2,
        _ => u32::from(packet.get(1)? & 0x3f),
    };
    let samples = frames * frame_samples(toc);
    (1..=MAX_PACKET_SAMPLES).contains(&samples).then_some(samples)
}

/// A packet without sound: DTX sends one or two bytes (RFC 6716 §2.1.9), each about 400 ms.
#[must_use]
pub fn is_dtx(packet: &[u8]) -> bool {
    packet.len() <= 2
}

/// The duration of one frame of a packet in 48 kHz samples: what its in-band copy can restore. 0 for an empty packet.
#[must_use]
pub fn packet_frame_samples(packet: &[u8]) -> u32 {
    packet.first().map_or(0, |&toc| frame_samples(toc))
}

/// RFC 6716 table 2: 480..2880 samples for SILK, 480 or 960 for hybrid, 120..960 for CELT.
fn frame_samples(toc: u8) -> u32 {
    let config = u32::from(toc >> 3);
    match config {
        0..12 => [480, 960, 1920, 2880][(config & 3) as usize],
        12..16 => [480, 960][(config & 1) as usize],
        _ => 120 << (config & 3),
    }
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
        // SAFETY: `error` outlives the call; rate and channels are in libopus' ranges.
        let state = unsafe { ffi::opus_encoder_create(rate, 1, ffi::OPUS_APPLICATION_VOIP, &raw mut error) };
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

    /// Follows the link's loss.
    pub fn set_loss_percent(&mut self, percent: i32) -> Result<(), CreateError> {
        self.set("loss_percent", ffi::OPUS_SET_PACKET_LOSS_PERC_REQUEST, percent)
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
        Ok(Self { state, rate })
    }

    /// Decodes a packet into the front of `out`, which is at least as long as the packet; samples written.
    pub fn decode(&mut self, packet: &[u8], out: &mut [i16]) -> Result<usize, DecodeError> {
        let samples = packet_samples(packet).ok_or(DecodeError::Malformed)?;
        let length = self.at_rate(samples);
        let out = out.get_mut(..length).ok_or(DecodeError::OutputSize(length))?;
        self.run(Some(packet), out, false)
    }

    /// Fills all of `out`, the time before `next`, from the copy of the lost frame that `next` carries; what is earlier than
    /// the copy reaches, or everything if it has none, is concealed.
    pub fn decode_fec(&mut self, next: &[u8], out: &mut [i16]) -> Result<usize, DecodeError> {
        packet_samples(next).ok_or(DecodeError::Malformed)?;
        self.concealable(out)?;
        self.run(Some(next), out, true)
    }

    /// Fills all of `out` with what the past makes likely; it fades within about 100 ms.
    pub fn conceal(&mut self, out: &mut [i16]) -> Result<usize, DecodeError> {
        self.concealable(out)?;
        self.run(None, out, false)
    }

    /// Forgets the past: the next packet begins a stream.
    pub fn reset(&mut self) {
        // SAFETY: the request takes no argument; the state is live and borrowed mutably.
        unsafe { ffi::opus_decoder_ctl!(self.state.as_ptr(), ffi::OPUS_RESET_STATE,) };
    }

    fn at_rate(&self, samples: u32) -> usize {
        (samples / (48_000 / self.rate)) as usize
    }

    fn concealable(&self, out: &[i16]) -> Result<(), DecodeError> {
        let unit = self.at_rate(120);
        let fits = !out.is_empty() && out.len().is_multiple_of(unit) && out.len() <= self.at_rate(48_000);
        if fits { Ok(()) } else { Err(DecodeError::OutputSize(out.len())) }
    }

    fn run(&mut self, packet: Option<&[u8]>, out: &mut [i16], fec: bool) -> Result<usize, DecodeError> {
        let samples = i32::try_from(out.len()).map_err(|_| DecodeError::OutputSize(out.len()))?;
        let (data, length) = packet.map_or((std::ptr::null(), 0), |packet| (packet.as_ptr(), packet.len()));
        let length = i32::try_from(length).map_err(|_| DecodeError::Malformed)?;
        // SAFETY: `data` holds `length` bytes or is null with length 0, `out` holds `samples` mono samples, libopus writes no
        // more than that, the state is live and borrowed mutably.
        let written =
            unsafe { ffi::opus_decode(self.state.as_ptr(), data, length, out.as_mut_ptr(), samples, i32::from(fec)) };
        match usize::try_from(written) {
            Ok(written) => Ok(written),
            Err(_) if written == ffi::OPUS_INVALID_PACKET => Err(DecodeError::Malformed),
            Err(_) => Err(DecodeError::Library(written)),
        }
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
