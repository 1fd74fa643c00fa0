//! The two halves of a session stream: one bidirectional stream per session and epoch.

use std::marker::PhantomData;

use prost::Message;

use super::error::StreamError;
use super::framing::{MessageReader, MessageWriter};
use super::stream_code;

/// Sends the messages of a session. Dropped, it finishes the stream after what was sent.
#[derive(Debug)]
pub struct SessionTx<M> {
    writer: MessageWriter,
    messages: PhantomData<fn(M)>,
}

impl<M: Message> SessionTx<M> {
    pub(super) fn new(writer: MessageWriter) -> Self {
        Self { writer, messages: PhantomData }
    }

    /// Sends a message; waits while the peer reads nothing. Cancel safe: a message whose send was dropped on the way goes
    /// out before the next one.
    ///
    /// # Errors
    /// [`StreamError::Oversize`] leaves the stream as it was; after any other it takes no more.
    pub async fn send(&mut self, message: &M) -> Result<(), StreamError> {
        self.writer.send(message).await
    }

    /// Ends this direction after what was sent.
    pub fn finish(mut self) {
        self.writer.finish();
    }

    /// Gives this direction up at once.
    pub fn reset(mut self) {
        self.writer.reset(stream_code::DONE);
    }
}

/// Receives the messages of a session. Dropped, it asks the peer to send no more.
#[derive(Debug)]
pub struct SessionRx<M> {
    reader: MessageReader,
    messages: PhantomData<fn() -> M>,
}

impl<M: Message + Default> SessionRx<M> {
    pub(super) fn new(reader: MessageReader) -> Self {
        Self { reader, messages: PhantomData }
    }

    /// The next message; `None` after the peer finished. Cancel safe.
    ///
    /// # Errors
    /// The stream or the link is gone, or what came is no message: then, and ever after.
    pub async fn recv(&mut self) -> Result<Option<M>, StreamError> {
        self.reader.message().await
    }
}
