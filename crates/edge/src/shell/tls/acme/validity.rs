//! How long a certificate lives (RFC 5280 §4.1.2.5): the one field of it that is read here.

/// Unix seconds of notBefore and notAfter. `None`: not a certificate.
pub(super) fn of(der: &[u8]) -> Option<(u64, u64)> {
    const VERSION: u8 = 0xa0;
    let (_, certificate, _) = element(der)?;
    let (_, mut tbs, _) = element(certificate)?;
    if tbs.first() == Some(&VERSION) {
        tbs = element(tbs)?.2;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        tbs = element(tbs)?.2;
    }
    let (_, validity, _) = element(tbs)?;
    let (from_tag, from, rest) = element(validity)?;
    let (until_tag, until, _) = element(rest)?;
    Some((time(from_tag, from)?, time(until_tag, until)?))
}

/// Tag, content and what follows of a DER element.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// `YYMMDDHHMMSSZ` as UTCTime, `YYYYMMDDHHMMSSZ` as GeneralizedTime.
fn time(tag: u8, text: &[u8]) -> Option<u64> {
    const UTC: u8 = 0x17;
    const GENERALIZED: u8 = 0x18;
    let digits = text.strip_suffix(b"Z")?;
    let number = |from: usize, length: usize| -> Option<u64> {
        std::str::from_utf8(digits.get(from..from + length)?).ok()?.parse().ok()
    };
    let (year, at) = match (tag, digits.len()) {
        (UTC, 12) => {
            let year = number(0, 2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, 2)
        }
        (GENERALIZED, 14) => (number(0, 4)?, 4),
        _ => return None,
    };
    let [month, day, hour, minute, second] =
        [number(at, 2)?, number(at + 2, 2)?, number(at + 4, 2)?, number(at + 6, 2)?, number(at + 8, 2)?];
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1970 by the proleptic Gregorian calendar, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let since = days.checked_sub(719_468)?;
    Some(since * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_unix_seconds() {
        for (tag, text, expected) in [
            (0x17, "700101000000Z", Some(0)),
            (0x17, "261130221530Z", Some(1_796_076_930)),
            (0x17, "000229120000Z", Some(951_825_600)),
            (0x18, "20500101000000Z", Some(2_524_608_000)),
            (0x17, "2611302215Z", None),
            (0x18, "99999999999999Z", None),
            (0x17, "26113022153xZ", None),
        ] {
            assert_eq!(time(tag, text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_certificate_says_how_long_it_lives() {
        let mut params = rcgen::CertificateParams::new(["edge.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 4, 1);
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        assert_eq!(of(certificate.der()), Some((1_767_225_600, 1_775_001_600)));
    }

    #[test]
    fn what_is_no_certificate_has_no_life() {
        let whole = rcgen::generate_simple_self_signed(["edge.example".to_owned()]).unwrap();
        for end in 0..whole.cert.der().len() {
            assert_eq!(of(&whole.cert.der()[..end]), None);
        }
        assert_eq!(of(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 1]), None);
    }
}
