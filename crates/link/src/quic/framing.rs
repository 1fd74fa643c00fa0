//! Messages on a stream: protobuf behind its length as a protobuf varint.
//!
//! Both halves are cancel safe. A receive that is dropped has taken nothing; a send that is dropped leaves the rest of
//! its message in the writer, and the next send goes after it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost::Message;
use quinn::{RecvStream, SendStream, VarInt};

use super::error::StreamError;
use super::stats::Counts;
use super::stream_code;

/// Bytes taken from quinn at once; what a reader holds is below this and one message together.
const READ_BYTES: usize = 16 * 1024;
/// A writer keeps the buffer of a message up to this size.
const KEEP_BYTES: usize = 16 * 1024;

/// Reads messages up to a bound.
#[derive(Debug)]
pub(super) struct MessageReader {
    stream: RecvStream,
    /// What the stream gave and was not read: whole messages are taken from it without a copy.
    chunk: Bytes,
    /// A message whose end is in a chunk that has not come; empty, or all there is.
    partial: BytesMut,
    limit: usize,
    counts: Arc<Counts>,
    /// Set at the first error and at the end: there is nothing after them.
    ended: Option<Result<(), StreamError>>,
}

impl MessageReader {
    pub(super) fn new(stream: RecvStream, limit: usize, counts: Arc<Counts>) -> Self {
        Self { stream, chunk: Bytes::new(), partial: BytesMut::new(), limit, counts, ended: None }
    }

    /// Applies from the next message on.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The first byte of a stream. `None`: it ended before.
    pub(super) async fn kind(&mut self) -> Result<Option<u8>, StreamError> {
        while self.chunk.is_empty() {
            if !self.fill().await? {
                return Ok(None);
            }
        }
        let first = self.chunk.split_to(1).first().copied();
        if self.chunk.is_empty() {
            self.chunk = Bytes::new();
        }
        Ok(first)
    }

    /// What came after the messages that were read, and the stream.
    pub(super) fn into_parts(self) -> (Bytes, RecvStream) {
        let early = if self.partial.is_empty() { self.chunk } else { self.partial.freeze() };
        (early, self.stream)
    }

    /// The next message. `None`: the peer finished the stream after a whole one.
    pub(super) async fn message<M: Message + Default>(&mut self) -> Result<Option<M>, StreamError> {
        if let Some(ended) = &self.ended {
            return ended.clone().map(|()| None);
        }
        match self.read().await {
            Ok(Some(message)) => Ok(Some(message)),
            Ok(None) => {
                self.ended = Some(Ok(()));
                Ok(None)
            }
            Err(error) => {
                let code = match &error {
                    StreamError::Oversize { .. } => {
                        self.counts.messages_oversize.add_one();
                        stream_code::OVERSIZE
                    }
                    StreamError::Malformed | StreamError::Truncated => {
                        self.counts.messages_malformed.add_one();
                        stream_code::MALFORMED
                    }
                    _ => stream_code::DONE,
                };
                self.stop(code);
                self.chunk = Bytes::new();
                self.partial = BytesMut::new();
                self.ended = Some(Err(error.clone()));
                Err(error)
            }
        }
    }

    /// Asks the peer to send no more.
    pub(super) fn stop(&mut self, code: u32) {
        // An error says that the stream has ended, which is what is wanted.
        let _ = self.stream.stop(VarInt::from_u32(code));
    }

    async fn read<M: Message + Default>(&mut self) -> Result<Option<M>, StreamError> {
        loop {
            let have = if self.partial.is_empty() { &self.chunk[..] } else { &self.partial };
            if let Some((prefix, len)) = length(have, self.limit)?
                && have.len() >= prefix + len
            {
                if !self.partial.is_empty() {
                    self.chunk = std::mem::take(&mut self.partial).freeze();
                }
                let body = self.chunk.split_to(prefix + len).slice(prefix..);
                if self.chunk.is_empty() {
                    // Even an empty one would keep the received packet's memory.
                    self.chunk = Bytes::new();
                }
                return M::decode(body).map(Some).map_err(|_| StreamError::Malformed);
            }
            // No room is made for the length that a peer claims, only for what it sends.
            if !self.fill().await? {
                let nothing = self.chunk.is_empty() && self.partial.is_empty();
                return if nothing { Ok(None) } else { Err(StreamError::Truncated) };
            }
        }
    }

    /// Takes what the stream has. `false`: it is finished.
    async fn fill(&mut self) -> Result<bool, StreamError> {
        let Some(next) = self.stream.read_chunk(READ_BYTES, true).await? else { return Ok(false) };
        if self.chunk.is_empty() && self.partial.is_empty() {
            self.chunk = next.bytes;
        } else {
            self.partial.extend_from_slice(&std::mem::take(&mut self.chunk));
            self.partial.extend_from_slice(&next.bytes);
        }
        Ok(true)
    }
}

/// Length of the prefix and of the message after it. `None`: not all of the prefix is there.
fn length(buffer: &[u8], limit: usize) -> Result<Option<(usize, usize)>, StreamError> {
    let mut len = 0;
    // The bounds are below 2^21: three digits of seven bits.
    for (at, byte) in buffer.iter().take(3).enumerate() {
        len |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return if len <= limit {
                Ok(Some((at + 1, len)))
            } else {
                Err(StreamError::Oversize { bytes: len, limit })
            };
        }
    }
    if buffer.len() < 3 { Ok(None) } else { Err(StreamError::Oversize { bytes: len, limit }) }
}

/// Writes messages up to a bound.
#[derive(Debug)]
pub(super) struct MessageWriter {
    stream: SendStream,
    /// The message that is being written; written up to `written`.
    buffer: Vec<u8>,
    written: usize,
    limit: usize,
}

impl MessageWriter {
    pub(super) fn new(stream: SendStream, limit: usize) -> Self {
        Self { stream, buffer: Vec::new(), written: 0, limit }
    }

    /// Starts a stream with its kind and header.
    pub(super) async fn open(
        stream: SendStream,
        limit: usize,
        kind: u8,
        header: &impl Message,
    ) -> Result<Self, StreamError> {
        let mut writer = Self::new(stream, limit);
        writer.buffer.push(kind);
        writer.append(header)?;
        writer.flush().await?;
        Ok(writer)
    }

    pub(super) async fn send(&mut self, message: &impl Message) -> Result<(), StreamError> {
        let bytes = message.encoded_len();
        if bytes > self.limit {
            return Err(StreamError::Oversize { bytes, limit: self.limit });
        }
        self.flush().await?;
        self.append(message)?;
        self.flush().await
    }

    /// Ends the stream after what was sent.
    pub(super) fn finish(&mut self) {
        // An error says that the stream has ended, which is what is wanted.
        let _ = self.stream.finish();
    }

    /// Gives the stream up, what was sent and not yet read included.
    pub(super) fn reset(&mut self, code: u32) {
        let _ = self.stream.reset(VarInt::from_u32(code));
    }

    fn append(&mut self, message: &impl Message) -> Result<(), StreamError> {
        message.encode_length_delimited(&mut self.buffer).map_err(|_| StreamError::Malformed)
    }

    async fn flush(&mut self) -> Result<(), StreamError> {
        while self.written < self.buffer.len() {
            self.written += self.stream.write(&self.buffer[self.written..]).await?;
        }
        self.written = 0;
        self.buffer.clear();
        self.buffer.shrink_to(KEEP_BYTES);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_when_it_is_whole_and_refused_beyond_its_bound() {
        assert_eq!(length(&[], 10), Ok(None));
        assert_eq!(length(&[0], 10), Ok(Some((1, 0))));
        assert_eq!(length(&[10, 1], 10), Ok(Some((1, 10))));
        assert_eq!(length(&[11], 10), Err(StreamError::Oversize { bytes: 11, limit: 10 }));
        assert_eq!(length(&[0x80], 1 << 20), Ok(None));
        assert_eq!(length(&[0x80, 0x80], 1 << 20), Ok(None));
        assert_eq!(length(&[0x80, 0x80, 0x40], 1 << 20), Ok(Some((3, 1 << 20))));
        assert!(matches!(length(&[0x81, 0x80, 0x40], 1 << 20), Err(StreamError::Oversize { .. })));
        assert!(matches!(length(&[0xff, 0xff, 0xff], 1 << 20), Err(StreamError::Oversize { .. })));
        assert!(matches!(length(&[0x80, 0x80, 0x80, 0], 1 << 20), Err(StreamError::Oversize { .. })));
    }
}
