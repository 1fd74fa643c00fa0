//! Datagrams out of a byte stream (RFC 4571 §2).
//!
//! ```text
//!  0        2
//! ┌────────┬─────────────┐
//! │ LENGTH │ datagram    │  LENGTH in bytes, big endian, without itself; 0 is a frame that says nothing
//! └────────┴─────────────┘
//! ```

/// The longest datagram taken: what the UDP socket takes too. No client sends more than its MTU.
pub const FRAME_MAX: usize = 2048;

/// Bytes of one connection in memory: the longest frame, and as much again behind it.
pub(super) const BUFFER: usize = 4096;

const LENGTH: usize = 2;

/// A frame says to be longer than [`FRAME_MAX`]: it will never be whole here, so the connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oversize;

/// The bytes of one connection that are not used up.
#[derive(Debug)]
pub struct Deframer {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Default for Deframer {
    fn default() -> Self {
        Self { buffer: vec![0; BUFFER].into_boxed_slice(), start: 0, end: 0 }
    }
}

impl Deframer {
    /// Continues where another one stopped; what does not fit was never whole there.
    #[must_use]
    pub fn with(received: &[u8]) -> Self {
        let mut deframer = Self::default();
        let length = received.len().min(BUFFER);
        deframer.buffer[..length].copy_from_slice(&received[..length]);
        deframer.end = length;
        deframer
    }

    /// Room to read into; never empty after [`Self::next`] said `None`.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes were read into [`Self::space`].
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(BUFFER);
    }

    /// The next datagram, to be opened in place.
    ///
    /// # Errors
    /// [`Oversize`].
    #[expect(clippy::should_implement_trait, reason = "it lends")]
    pub fn next(&mut self) -> Result<Option<&mut [u8]>, Oversize> {
        let Some(length) = self.length()? else { return Ok(None) };
        let begin = self.start + LENGTH;
        self.start = begin + length;
        Ok(Some(&mut self.buffer[begin..begin + length]))
    }

    /// The next datagram, which stays.
    ///
    /// # Errors
    /// [`Oversize`].
    pub fn first(&mut self) -> Result<Option<&[u8]>, Oversize> {
        let Some(length) = self.length()? else { return Ok(None) };
        let begin = self.start + LENGTH;
        Ok(Some(&self.buffer[begin..begin + length]))
    }

    /// What is not used up.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Length of the first whole frame that says something; those that do not are skipped.
    fn length(&mut self) -> Result<Option<usize>, Oversize> {
        loop {
            let Some(head) = self.rest().first_chunk::<LENGTH>() else { return Ok(None) };
            let length = usize::from(u16::from_be_bytes(*head));
            if length > FRAME_MAX {
                return Err(Oversize);
            }
            if length > 0 {
                return Ok((self.rest().len() >= LENGTH + length).then_some(length));
            }
            self.start += LENGTH;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(deframer: &mut Deframer, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Oversize> {
        let mut frames = Vec::new();
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let space = deframer.space();
            let count = space.len().min(bytes.len());
            assert!(count > 0, "no room although every frame was taken");
            space[..count].copy_from_slice(&bytes[..count]);
            deframer.filled(count);
            bytes = &bytes[count..];
            while let Some(frame) = deframer.next()? {
                frames.push(frame.to_vec());
            }
        }
        Ok(frames)
    }

    fn framed(datagrams: &[&[u8]]) -> Vec<u8> {
        let frame = |d: &&[u8]| [&u16::try_from(d.len()).unwrap().to_be_bytes()[..], d].concat();
        datagrams.iter().flat_map(frame).collect()
    }

    #[test]
    fn frames_come_out_whole_however_the_stream_is_cut() {
        let long = [7; FRAME_MAX];
        let sent: [&[u8]; 4] = [&[1], &long, &[2; 1200], &long];
        let stream = framed(&sent);
        for cut in [1, 2, 3, 700, 4096, stream.len()] {
            let mut deframer = Deframer::default();
            let frames: Vec<_> = stream.chunks(cut).flat_map(|part| feed(&mut deframer, part).unwrap()).collect();
            assert_eq!(frames, sent, "cut into {cut}");
        }
    }

    #[test]
    fn frames_of_no_bytes_are_skipped() {
        let mut deframer = Deframer::default();
        assert_eq!(feed(&mut deframer, &[0; 10_000]).unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(feed(&mut deframer, &framed(&[&[5, 6]])).unwrap(), [[5, 6]]);
    }

    #[test]
    fn a_frame_longer_than_any_datagram_ends_it_at_its_head() {
        for length in [FRAME_MAX + 1, 65_535] {
            let head = u16::try_from(length).unwrap().to_be_bytes();
            assert_eq!(feed(&mut Deframer::default(), &head), Err(Oversize));
        }
    }

    #[test]
    fn another_one_continues_with_what_is_left() {
        let stream = framed(&[&[1; 10], &[2; 20]]);
        let mut deframer = Deframer::default();
        let space = deframer.space();
        space[..stream.len()].copy_from_slice(&stream);
        deframer.filled(stream.len());
        assert_eq!(deframer.first().unwrap(), Some(&[1; 10][..]));
        let mut other = Deframer::with(deframer.rest());
        assert_eq!(other.next().unwrap().unwrap(), [1; 10]);
        assert_eq!(Deframer::with(other.rest()).next().unwrap().unwrap(), [2; 20]);
    }
}
