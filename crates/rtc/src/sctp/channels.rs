//! Which streams are channels, and DCEP's messages (RFC 8832).

use std::collections::BTreeMap;
use std::time::Duration;

use dcsctp::api::SendOptions;
use rtc_datachannel::message::Message;
use rtc_datachannel::message::message_channel_open::{ChannelType, DataChannelOpen};
use rtc_shared::marshal::Unmarshal;

use crate::ChannelId;
use crate::sdp::Negotiated;

/// Channels of one client at a time, 100 bytes each. Applications use one or two; browsers stop at 1024.
pub(super) const CHANNELS_MAX: usize = 300;

/// DATA_CHANNEL_ACK (RFC 8832 §5.2).
pub(super) const ACK: [u8; 1] = [2];

/// A stream in use.
#[derive(Debug)]
pub(super) enum Channel {
    /// Messages go both ways.
    Open(Delivery),
    /// Closed for both sides; our reset is not yet confirmed. An OPEN may use the stream again at once (case C03).
    Closing,
}

/// How messages of a channel are sent (RFC 8832 §5.1): the same both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delivery {
    unordered: bool,
    max_retransmissions: Option<u16>,
    lifetime: Option<Duration>,
}

impl Delivery {
    pub(super) fn send_options(self) -> SendOptions {
        SendOptions {
            unordered: self.unordered,
            lifetime: self.lifetime,
            max_retransmissions: self.max_retransmissions,
            lifecycle_id: None,
        }
    }
}

/// Reads a DATA_CHANNEL_OPEN; anything else is `None`.
pub(super) fn parse_open(mut payload: &[u8]) -> Option<DataChannelOpen> {
    match Message::unmarshal(&mut payload) {
        Ok(Message::DataChannelOpen(open)) => Some(open),
        _ => None,
    }
}

/// The channel table.
#[derive(Debug, Default)]
pub(super) struct Channels {
    streams: BTreeMap<ChannelId, Channel>,
}

impl Channels {
    pub(super) fn get(&self, channel: ChannelId) -> Option<&Channel> {
        self.streams.get(&channel)
    }

    pub(super) fn open(&self, channel: ChannelId) -> Option<Delivery> {
        match self.streams.get(&channel) {
            Some(Channel::Open(delivery)) => Some(*delivery),
            _ => None,
        }
    }

    /// Adds a channel and returns its label, or `None` when the table is full.
    pub(super) fn add(&mut self, channel: ChannelId, open: DataChannelOpen) -> Option<String> {
        if self.streams.len() >= CHANNELS_MAX && !self.streams.contains_key(&channel) {
            return None;
        }
        let parameter = open.reliability_parameter;
        let retransmissions = Some(u16::try_from(parameter).unwrap_or(u16::MAX));
        let lifetime = Some(Duration::from_millis(parameter.into()));
        let (unordered, max_retransmissions, lifetime) = match open.channel_type {
            ChannelType::ReliableUnordered => (true, None, None),
            ChannelType::PartialReliableRexmit => (false, retransmissions, None),
            ChannelType::PartialReliableRexmitUnordered => (true, retransmissions, None),
            ChannelType::PartialReliableTimed => (false, None, lifetime),
            ChannelType::PartialReliableTimedUnordered => (true, None, lifetime),
            _ => (false, None, None),
        };
        self.streams.insert(channel, Channel::Open(Delivery { unordered, max_retransmissions, lifetime }));
        Some(String::from_utf8_lossy(&open.label).into_owned())
    }

    /// Adds a channel that both sides agreed on; `false` when the stream carries one or the table is full.
    pub(super) fn add_negotiated(&mut self, channel: ChannelId, agreed: &Negotiated) -> bool {
        let full = self.streams.len() >= CHANNELS_MAX && !self.streams.contains_key(&channel);
        if full || self.open(channel).is_some() {
            return false;
        }
        let Negotiated { unordered, max_retransmissions, lifetime, .. } = *agreed;
        self.streams.insert(channel, Channel::Open(Delivery { unordered, max_retransmissions, lifetime }));
        true
    }

    /// Marks an open channel as closing; whether it was open.
    pub(super) fn begin_close(&mut self, channel: ChannelId) -> bool {
        match self.streams.get_mut(&channel) {
            Some(state @ Channel::Open(_)) => {
                *state = Channel::Closing;
                true
            }
            _ => false,
        }
    }

    /// Our reset is confirmed, or never will be: the stream is free, unless it carries a channel again.
    pub(super) fn reset_done(&mut self, channel: ChannelId) {
        if matches!(self.streams.get(&channel), Some(Channel::Closing)) {
            self.streams.remove(&channel);
        }
    }

    pub(super) fn all_open(&self) -> Vec<ChannelId> {
        let open = self.streams.iter().filter(|(_, channel)| matches!(channel, Channel::Open(_)));
        open.map(|(id, _)| *id).collect()
    }

    /// Empties the table and returns what was open.
    pub(super) fn take_open(&mut self) -> Vec<ChannelId> {
        let open = self.all_open();
        self.streams.clear();
        open
    }
}
