//! What is counted: each scene prepares its inputs, then takes [`TURNS`] turns inside one function that is never inlined.
//! A scene has a process of its own: callgrind stops collecting after the first of several functions.

use std::hint::black_box;
use std::net::SocketAddr;

use edge::worker::Worker;
use link::datagram::{Batch, BatchWriter, Codec, MediaUp, parse};
use link::ids::Slot;
use link::route::RouteKeys;
use rtc::exposed::{Receiver, Sender, contexts};
use rtc::stun::{Check, IntegrityKey};
use rtc::{Path, SrtpProfile};

use crate::client::{Rig, UNIX};

/// Turns of a scene: a growth of a table here or there does not count.
pub(crate) const TURNS: u32 = 500;

/// Calls that are set up.
const SET_UPS: u32 = 20;

/// Frames in one link datagram.
const BATCH: u16 = 8;

/// A scene: the name of its row, the function that is counted, and what prepares and calls it.
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) function: &'static str,
    pub(crate) play: fn(),
    pub(crate) turns: u32,
}

impl Scene {
    const fn new(name: &'static str, function: &'static str, play: fn()) -> Self {
        Self { name, function, play, turns: TURNS }
    }
}

/// In the order of the table.
pub(crate) const ALL: [Scene; 15] = [
    Scene::new("echo", "instructions::scenes::count_echo", echo),
    Scene::new("known_path_bad_tag", "instructions::scenes::count_bad_tag", bad_tag),
    Scene::new("unknown_path", "instructions::scenes::count_unknown_path", unknown_path),
    Scene::new("forged_token", "instructions::scenes::count_forged_token", forged_token),
    Scene::new("noise", "instructions::scenes::count_noise", noise),
    Scene::new("check", "instructions::scenes::count_check", check),
    Scene { turns: SET_UPS, ..Scene::new("set_up", "instructions::client::count_set_up", set_up) },
    Scene::new("seal_aes_256_gcm", "instructions::scenes::count_seal_gcm_256", gcm_256),
    Scene::new("open_aes_256_gcm", "instructions::scenes::count_open_gcm_256", gcm_256),
    Scene::new("seal_aes_128_gcm", "instructions::scenes::count_seal_gcm_128", gcm_128),
    Scene::new("open_aes_128_gcm", "instructions::scenes::count_open_gcm_128", gcm_128),
    Scene::new("seal_aes_128_cm", "instructions::scenes::count_seal_cm", cm),
    Scene::new("open_aes_128_cm", "instructions::scenes::count_open_cm", cm),
    Scene::new("link_push_8_frames", "instructions::scenes::count_push", push),
    Scene::new("link_parse_8_frames", "instructions::scenes::count_parse", parse_batch),
];

fn echo() {
    let mut rig = Rig::connected();
    // Past the growth of what grows once.
    let mut first = rig.speech(50);
    warm_up(&mut rig, &mut first);
    let mut speech = rig.speech(TURNS);
    count_echo(&mut rig, &mut speech);
    assert!(rig.worker.stats().media_sent >= u64::from(TURNS));
}

fn bad_tag() {
    let mut rig = Rig::connected();
    let mut forged = forged_speech(&mut rig);
    expect_dropped(&mut rig, |rig| count_bad_tag(rig, &mut forged));
}

fn unknown_path() {
    let mut rig = Rig::connected();
    let mut forged = forged_speech(&mut rig);
    expect_dropped(&mut rig, |rig| count_unknown_path(rig, stranger(rig), &mut forged));
}

fn forged_token() {
    let mut rig = Rig::connected();
    let mut check = rig.check.clone();
    let token = check.windows(rig.ufrag.len()).position(|part| part == rig.ufrag.as_bytes()).expect("a USERNAME");
    // Another character of the alphabet somewhere in the sealed part.
    check[token + 20] = if check[token + 20] == b'A' { b'B' } else { b'A' };
    expect_dropped(&mut rig, |rig| count_forged_token(rig, stranger(rig), &mut repeated(&check)));
}

fn noise() {
    let mut rig = Rig::connected();
    expect_dropped(&mut rig, |rig| count_noise(rig, stranger(rig), &mut repeated(&[200; 100])));
}

fn check() {
    let rig = Rig::connected();
    count_check(&rig.keys, &IntegrityKey::new(&rig.password), &repeated(&rig.check));
}

/// From the offer to the open channel: what the edge does, without HTTP and the kernel.
fn set_up() {
    for _ in 0..SET_UPS {
        Rig::with_channel();
    }
}

fn gcm_256() {
    let (mut sender, mut receiver) = keys(SrtpProfile::AeadAes256Gcm, 2 * (32 + 12));
    let mut packets = packets();
    count_seal_gcm_256(&mut sender, &mut packets);
    count_open_gcm_256(&mut receiver, &mut packets);
}

fn gcm_128() {
    let (mut sender, mut receiver) = keys(SrtpProfile::AeadAes128Gcm, 2 * (16 + 12));
    let mut packets = packets();
    count_seal_gcm_128(&mut sender, &mut packets);
    count_open_gcm_128(&mut receiver, &mut packets);
}

fn cm() {
    let (mut sender, mut receiver) = keys(SrtpProfile::Aes128CmSha1_80, 2 * (16 + 14));
    let mut packets = packets();
    count_seal_cm(&mut sender, &mut packets);
    count_open_cm(&mut receiver, &mut packets);
}

fn push() {
    count_push(&mut BatchWriter::media_up());
}

fn parse_batch() {
    let mut writer = BatchWriter::media_up();
    for seq in 0..BATCH {
        assert!(writer.push_frame(&frame(seq)));
    }
    count_parse(&writer.take(0));
}

fn forged_speech(rig: &mut Rig) -> Vec<Vec<u8>> {
    let mut forged = rig.speech(TURNS);
    for last in forged.iter_mut().filter_map(|packet| packet.last_mut()) {
        *last ^= 1;
    }
    forged
}

fn stranger(rig: &Rig) -> Path {
    Path { remote: SocketAddr::from(([203, 0, 113, 9], 999)), ..rig.path }
}

fn expect_dropped(rig: &mut Rig, count: impl FnOnce(&mut Rig)) {
    let before = rig.worker.stats().discarded_total();
    count(rig);
    assert_eq!(rig.worker.stats().discarded_total() - before, u64::from(TURNS), "each datagram is counted");
}

fn warm_up(rig: &mut Rig, packets: &mut [Vec<u8>]) {
    let Rig { worker, now, path, .. } = rig;
    let mut out = Vec::new();
    for packet in packets {
        worker.handle_datagram(*now, UNIX, *path, packet);
        while worker.poll_transmit(&mut out).is_some() {}
    }
}

/// A frame's whole way through the core: found, opened, sealed, handed out.
#[inline(never)]
fn count_echo(rig: &mut Rig, packets: &mut [Vec<u8>]) {
    let Rig { worker, now, path, .. } = rig;
    let mut out = Vec::with_capacity(2048);
    for packet in packets {
        worker.handle_datagram(*now, UNIX, *path, packet);
        black_box(worker.poll_transmit(&mut out));
    }
}

#[inline(never)]
fn count_bad_tag(rig: &mut Rig, packets: &mut [Vec<u8>]) {
    let path = rig.path;
    distinct::<0>();
    drop_all(&mut rig.worker, rig.now, path, packets);
}

#[inline(never)]
fn count_unknown_path(rig: &mut Rig, path: Path, packets: &mut [Vec<u8>]) {
    distinct::<1>();
    drop_all(&mut rig.worker, rig.now, path, packets);
}

#[inline(never)]
fn count_forged_token(rig: &mut Rig, path: Path, packets: &mut [Vec<u8>]) {
    distinct::<2>();
    drop_all(&mut rig.worker, rig.now, path, packets);
}

#[inline(never)]
fn count_noise(rig: &mut Rig, path: Path, packets: &mut [Vec<u8>]) {
    distinct::<3>();
    drop_all(&mut rig.worker, rig.now, path, packets);
}

/// Keeps functions of one body from being made one by the compiler.
#[inline(always)]
fn distinct<const N: u8>() {
    black_box(N);
}

#[inline(always)]
fn drop_all(worker: &mut Worker, now: std::time::Instant, path: Path, packets: &mut [Vec<u8>]) {
    for packet in packets {
        worker.handle_datagram(now, UNIX, path, packet);
    }
}

/// What every check costs before it is answered: read, its token opened, its integrity verified.
#[inline(never)]
fn count_check(keys: &RouteKeys, integrity: &IntegrityKey, checks: &[Vec<u8>]) {
    for datagram in checks {
        let check = Check::parse(datagram).expect("a check");
        assert!(keys.open(check.local_ufrag()).is_some() && check.verify(integrity));
    }
}

macro_rules! srtp {
    ($number:literal, $seal:ident, $open:ident) => {
        #[inline(never)]
        fn $seal(sender: &mut Sender, packets: &mut [Vec<u8>]) {
            distinct::<$number>();
            for packet in packets {
                sender.seal_rtp(packet);
            }
        }

        #[inline(never)]
        fn $open(receiver: &mut Receiver, packets: &mut [Vec<u8>]) {
            distinct::<$number>();
            for packet in packets {
                assert_eq!(receiver.open_rtp(packet), Ok(112));
            }
        }
    };
}

srtp!(0, count_seal_gcm_256, count_open_gcm_256);
srtp!(1, count_seal_gcm_128, count_open_gcm_128);
srtp!(2, count_seal_cm, count_open_cm);

#[inline(never)]
fn count_push(writer: &mut BatchWriter) {
    for turn in 0..TURNS {
        for seq in 0..BATCH {
            black_box(writer.push_frame(&frame(seq)));
        }
        black_box(writer.take(turn));
    }
}

#[inline(never)]
fn count_parse(batch: &[u8]) {
    for _ in 0..TURNS {
        let Ok(Batch::MediaUp { frames, .. }) = parse(black_box(batch)) else { return };
        for frame in frames {
            let _ = black_box(frame);
        }
    }
}

fn repeated(datagram: &[u8]) -> Vec<Vec<u8>> {
    (0..TURNS).map(|_| datagram.to_vec()).collect()
}

fn frame<'a>(seq: u16) -> MediaUp<'a> {
    MediaUp {
        slot: Slot(300),
        epoch: 1,
        codec: Codec::Opus,
        marker: false,
        seq,
        rtp_timestamp: 960,
        audio_level: Some(40),
        age_us: 120,
        payload: &[7; 100],
    }
}

fn keys(profile: SrtpProfile, bytes: u8) -> (Sender, Receiver) {
    let material: Vec<u8> = (0..bytes).collect();
    let (sender, _) = contexts(profile, &material, true).expect("keys");
    let (_, receiver) = contexts(profile, &material, false).expect("keys");
    (sender, receiver)
}

/// RTP packets with 100 bytes of payload and room for a tag.
fn packets() -> Vec<Vec<u8>> {
    let packet = |seq: u32| {
        let mut packet = Vec::with_capacity(160);
        packet.extend_from_slice(&[0x80, 111]);
        packet.extend_from_slice(&seq.to_be_bytes()[2..]);
        packet.extend_from_slice(&[0; 8]);
        packet.extend_from_slice(&[7; 100]);
        packet
    };
    (0..TURNS).map(packet).collect()
}
