//! What a world is to be like.

use std::time::Duration;

use sim::{Conditions, Loss};

/// The network between clients and edge, one way.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Access {
    /// Defaults to 0.
    pub delay: Duration,
    /// Added to it, at most. Defaults to 0.
    pub jitter: Duration,
    /// Probability of loss. Defaults to 0.
    pub loss: f64,
    /// Probability to come 30 ms late. Defaults to 0.
    pub reorder: f64,
}

/// The link, one way.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Link {
    /// Defaults to 0.
    pub delay: Duration,
    /// Added to it, at most. Defaults to 0.
    pub jitter: Duration,
    /// Probability that a packet is lost: a datagram is gone then, a piece of a stream late by a retransmission, which is
    /// three times the delay. Defaults to 0.
    pub loss: f64,
    /// Probability that a datagram comes 30 ms late. Defaults to 0.
    pub reorder: f64,
}

/// A transceiver to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePlan {
    /// Its id. The edge asks the one with the lowest first.
    pub id: u32,
    /// Calls it takes.
    pub seats: usize,
    /// It leases seats and refuses whoever comes.
    pub refusing: bool,
}

/// A world to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Of every random choice.
    pub seed: u64,
    /// Workers of the edge.
    pub workers: usize,
    /// Transceivers.
    pub nodes: Vec<NodePlan>,
    /// From clients to the edge and back.
    pub access: Access,
    /// From the edge to transceivers and back.
    pub link: Link,
    /// The edge may hold playout by itself, as far as it has a say.
    pub edge_reflex: bool,
    /// The same of the transceivers.
    pub transceiver_reflex: bool,
}

impl Default for Plan {
    /// One worker, one transceiver, 10 ms to the edge and 5 ms from there, and nothing goes wrong.
    fn default() -> Self {
        Self {
            seed: 1,
            workers: 1,
            nodes: vec![NodePlan { id: 1, seats: 100, refusing: false }],
            access: Access { delay: Duration::from_millis(10), ..Access::default() },
            link: Link { delay: Duration::from_millis(5), ..Link::default() },
            edge_reflex: false,
            transceiver_reflex: false,
        }
    }
}

impl Access {
    pub(crate) fn conditions(self) -> Conditions {
        let loss = if self.loss > 0.0 { Loss::Uniform(self.loss) } else { Loss::None };
        let Self { delay, jitter, reorder, .. } = self;
        Conditions { delay, jitter, loss, reorder, ..Conditions::default() }
    }
}

impl Link {
    pub(crate) fn datagrams(self) -> Conditions {
        let loss = if self.loss > 0.0 { Loss::Uniform(self.loss) } else { Loss::None };
        let Self { delay, jitter, reorder, .. } = self;
        Conditions { delay, jitter, loss, reorder, ..Conditions::default() }
    }

    /// A lost packet is sent again after about a round trip and a half: the streams on the wire see it come late.
    pub(crate) fn streams(self) -> Conditions {
        let Self { delay, jitter, loss, .. } = self;
        Conditions { delay, jitter, reorder: loss, reorder_delay: delay * 3, ..Conditions::default() }
    }
}
