//! The RFCs' own vectors.

use super::super::*;

const RFC_3711: &str = include_str!("../../../../../tests/vectors/srtp-rfc3711.txt");
const RFC_7714: &str = include_str!("../../../../../tests/vectors/srtp-rfc7714.txt");

fn vector(file: &str, name: &str) -> Vec<u8> {
    let line = file.lines().find(|line| line.split('=').next().unwrap().trim() == name).unwrap();
    let hex = line.split('=').nth(1).unwrap().trim();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn array<const N: usize>(file: &str, name: &str) -> [u8; N] {
    vector(file, name).try_into().unwrap()
}

#[test]
fn the_keystream_is_that_of_rfc_3711_b2() {
    let cm = Cm::new(&array(RFC_3711, "cm_key"), &[0; 20], array(RFC_3711, "cm_salt")).unwrap();
    // Sealing zeros behind the 12-byte header shows the keystream.
    let mut packet = vec![0; 12 + 0xff02 * 16];
    cm.seal_rtp(&mut packet, 12, 0, 0).unwrap();
    for block in [0, 1, 2, 0xfeff, 0xff00, 0xff01] {
        let expected = vector(RFC_3711, &format!("block_{block:04x}"));
        assert_eq!(packet[12 + block * 16..][..16], expected, "block {block:04x}");
    }
}

#[test]
fn session_keys_are_those_of_rfc_3711_b3() {
    let direction = Direction::new(&vector(RFC_3711, "kdf_key"), &vector(RFC_3711, "kdf_salt")).unwrap();
    for (label, name) in [
        (kdf::RTP.encryption, "kdf_encryption"),
        (kdf::RTP.salt, "kdf_session_salt"),
        (kdf::RTP.authentication, "kdf_authentication"),
    ] {
        let expected = vector(RFC_3711, name);
        let mut derived = vec![0xaa; expected.len()];
        direction.derive(label, &mut derived).unwrap();
        assert_eq!(derived, expected, "{name}");
    }
}

#[test]
fn gcm_packets_are_those_of_rfc_7714_16() {
    for bits in ["128", "256"] {
        let gcm = Gcm::new(&vector(RFC_7714, &format!("key_{bits}")), array(RFC_7714, "salt")).unwrap();
        let (plain, sealed) = (vector(RFC_7714, "rtp"), vector(RFC_7714, &format!("srtp_{bits}")));
        let mut packet = plain.clone();
        gcm.seal_rtp(&mut packet, 12, 0x5501_a0b2, 0xf17b).unwrap();
        assert_eq!(packet, sealed, "sealed with {bits} bits");
        assert_eq!(gcm.open_rtp(&mut packet, 12, 0x5501_a0b2, 0xf17b), Ok(plain.len()));
        assert_eq!(packet[..plain.len()], plain, "opened with {bits} bits");
    }
}

#[test]
fn gcm_packets_are_those_of_rfc_7714_17() {
    for bits in ["128", "256"] {
        let gcm = Gcm::new(&vector(RFC_7714, &format!("key_{bits}")), array(RFC_7714, "salt")).unwrap();
        let (plain, sealed) = (vector(RFC_7714, "rtcp"), vector(RFC_7714, &format!("srtcp_{bits}")));
        let mut packet = plain.clone();
        assert_eq!(gcm.seal_rtcp(&mut packet, 0x4d61_7273, 0x5d4), Some(()));
        assert_eq!(packet, sealed, "sealed with {bits} bits");
        assert_eq!(gcm::rtcp_index(&sealed), Ok(0x5d4));
        let mut opened = sealed.clone();
        let length = gcm.open_rtcp(&mut opened, 0x4d61_7273, 0x5d4).unwrap();
        assert_eq!(opened[..length], plain, "opened with {bits} bits");
    }
}
