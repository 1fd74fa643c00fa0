//! The replay windows of the streams heard last.

use super::replay::Window;

/// A client sends one audio stream; a few more come of re-created tracks and RTX. 8 windows are 384 bytes, all that a
/// client can make us hold by changing its SSRC.
const MAX: usize = 8;

/// At most [`MAX`] windows by SSRC, the one used last in front, the last one displaced. A displaced stream that comes
/// back begins again with rollover counter 0.
#[derive(Debug, Default)]
pub(super) struct Streams(Vec<(u32, Window)>);

impl Streams {
    /// The highest authenticated index.
    pub(super) fn highest(&self, ssrc: u32) -> Option<u64> {
        self.find(ssrc).map(|at| self.0[at].1.highest())
    }

    /// Neither seen nor too old to tell. Streams not heard yet are fresh.
    pub(super) fn is_fresh(&self, ssrc: u32, index: u64) -> bool {
        self.find(ssrc).is_none_or(|at| self.0[at].1.is_fresh(index))
    }

    /// Marks an authenticated index, and admits its stream.
    pub(super) fn accept(&mut self, ssrc: u32, index: u64) {
        match self.find(ssrc) {
            Some(at) => {
                self.0[at].1.accept(index);
                if at > 0 {
                    self.0[..=at].rotate_right(1);
                }
            }
            None => {
                self.0.truncate(MAX - 1);
                self.0.insert(0, (ssrc, Window::new(index)));
            }
        }
    }

    fn find(&self, ssrc: u32) -> Option<usize> {
        self.0.iter().position(|stream| stream.0 == ssrc)
    }
}
