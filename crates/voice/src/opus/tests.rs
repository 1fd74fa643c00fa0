//! What needs an encoder that the crate does not offer.

use super::{Decoder, MAX_PACKET_BYTES, ffi};

/// 20 ms of interleaved stereo at 48 kHz as packets.
fn stereo_packets(frames: usize, sample: impl Fn(usize) -> [i16; 2]) -> Vec<Vec<u8>> {
    let mut error = 0;
    // SAFETY: `error` outlives the call; rate and channels are in libopus' ranges.
    let encoder = unsafe { ffi::opus_encoder_create(48_000, 2, ffi::OPUS_APPLICATION_VOIP, &raw mut error) };
    assert!(!encoder.is_null(), "code {error}");
    let packets = (0..frames).map(|frame| {
        let pcm: Vec<i16> = (0..960).flat_map(|index| sample(frame * 960 + index)).collect();
        let mut packet = vec![0; MAX_PACKET_BYTES];
        // SAFETY: `pcm` holds 960 samples of both channels, `packet` holds 1276 bytes, the encoder is live.
        let length = unsafe { ffi::opus_encode(encoder, pcm.as_ptr(), 960, packet.as_mut_ptr(), 1276) };
        packet.truncate(usize::try_from(length).expect("an encoded frame"));
        packet
    });
    let packets = packets.collect();
    // SAFETY: the encoder came from `opus_encoder_create` and is not used afterwards.
    unsafe { ffi::opus_encoder_destroy(encoder) };
    packets
}

#[test]
fn a03_left_only_stereo_keeps_its_pitch_and_half_its_level() {
    const HERTZ: f64 = 300.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a small tone")]
    let tone = |index: usize| (10_000.0 * (index as f64 / 48_000.0 * HERTZ * std::f64::consts::TAU).sin()) as i16;
    let packets = stereo_packets(50, |index| [tone(index), 0]);
    assert!(packets.iter().all(|packet| packet[0] & 4 != 0), "stereo in the first byte");
    let mut decoder = Decoder::new(16_000).expect("a decoder");
    let mut heard = Vec::new();
    let mut out = [0; 320];
    for packet in &packets {
        assert_eq!(decoder.decode(packet, &mut out), Ok(320));
        heard.extend_from_slice(&out);
    }
    let second_half = &heard[8000..];
    let crossings = second_half.windows(2).filter(|pair| pair[0] < 0 && pair[1] >= 0).count();
    let loudest = second_half.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0);
    assert!((149..=151).contains(&crossings), "{crossings} periods in half a second");
    assert!((4000..6500).contains(&loudest), "{loudest}");
}
