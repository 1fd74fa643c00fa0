//! The two ends of an utterance stream: one unidirectional stream per response item's audio.

use super::error::StreamError;
use super::framing::{MessageReader, MessageWriter};
use super::stream_code;
use crate::proto::UtteranceFrame;

/// Sends the frames of an utterance. Dropped, it finishes the stream: reset it if its last frame was not sent.
#[derive(Debug)]
pub struct UtteranceTx {
    writer: MessageWriter,
}

impl UtteranceTx {
    pub(super) fn new(writer: MessageWriter) -> Self {
        Self { writer }
    }

    /// Sends a frame; waits while the peer reads nothing. Cancel safe like [`super::SessionTx::send`].
    ///
    /// # Errors
    /// [`StreamError::Oversize`] leaves the stream as it was; after any other it takes no more.
    pub async fn send(&mut self, frame: &UtteranceFrame) -> Result<(), StreamError> {
        self.writer.send(frame).await
    }

    /// Ends the utterance after what was sent.
    pub fn finish(mut self) {
        self.writer.finish();
    }

    /// Gives the utterance up: saves the bytes that are on the way. What the edge plays of it, Flush alone decides.
    pub fn reset(mut self) {
        self.writer.reset(stream_code::DONE);
    }
}

/// How an utterance stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UtteranceEnd {
    /// The last frame was received.
    Finished,
    /// The transceiver gave it up, the link is gone, or what came is no frame.
    Broken(StreamError),
}

/// Receives the frames of an utterance. Dropped, it asks the peer to send no more.
#[derive(Debug)]
pub struct UtteranceRx {
    reader: MessageReader,
    end: Option<UtteranceEnd>,
}

impl UtteranceRx {
    pub(super) fn new(reader: MessageReader) -> Self {
        Self { reader, end: None }
    }

    /// The next frame; `None` at the end, whose kind [`UtteranceRx::end`] tells. Cancel safe.
    pub async fn recv(&mut self) -> Option<UtteranceFrame> {
        match self.reader.message().await {
            Ok(Some(frame)) => Some(frame),
            Ok(None) => {
                self.end = Some(UtteranceEnd::Finished);
                None
            }
            Err(error) => {
                self.end = Some(UtteranceEnd::Broken(error));
                None
            }
        }
    }

    /// How the stream ended; `None` before [`UtteranceRx::recv`] gave `None`.
    #[must_use]
    pub fn end(&self) -> Option<&UtteranceEnd> {
        self.end.as_ref()
    }
}
