//! `proto/fronthaul/backend/v1` over gRPC.

use std::convert::Infallible;

use futures_util::{Sink, Stream};

use crate::driver::Beginning;
use crate::{Lost, Machine, Told};

/// Where such a backend is.
#[derive(Debug, Clone)]
pub struct Endpoint;

pub(crate) async fn open(
    _: &Endpoint,
    _: Beginning,
) -> Result<(Stub, impl Sink<(), Error = Infallible> + Unpin, impl Stream<Item = Result<(), Lost>> + Unpin), Lost> {
    std::future::ready(()).await;
    Ok((Stub, futures_util::sink::drain(), futures_util::stream::pending()))
}

pub(crate) struct Stub;
impl Machine for Stub {
    type Up = ();
    type Down = ();
    fn handle_input(&mut self, _: std::time::Instant, _: voice::BackendInput) {}
    fn handle_down(&mut self, _: std::time::Instant, (): ()) -> Result<(), Lost> {
        Ok(())
    }
    fn handle_timeout(&mut self, _: std::time::Instant) -> Result<(), Lost> {
        Ok(())
    }
    fn poll_up(&mut self) -> Option<()> {
        None
    }
    fn poll_output(&mut self) -> Option<Told> {
        None
    }
    fn poll_timeout(&self) -> Option<std::time::Instant> {
        None
    }
}
