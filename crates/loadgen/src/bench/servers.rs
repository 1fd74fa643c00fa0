//! The edge, and transceivers behind it, as a bench starts them: one worker, ports of the kernel's choice, a state of their own.

use std::net::{Ipv4Addr, SocketAddr};

use super::process::{Placement, Scratch, daemon};
use crate::process::Daemon;

/// The kernel takes free ports; the daemons say which.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Allocations of the edge's worker threads.
const ALLOCATIONS: &str = "fronthaul_edge_worker_allocations_total";

/// Calls that a transceiver is given seats for.
pub const TRANSCEIVER_SEATS: usize = 1024;

/// An edge under test.
pub(crate) struct Edge {
    server: Daemon,
    http: SocketAddr,
    model: &'static str,
}

/// What an edge is to be.
pub(crate) struct Wanted<'a> {
    /// Where it runs.
    pub(crate) core: Option<usize>,
    /// Room for echoed calls; transceivers have their own.
    pub(crate) seats: usize,
    /// Who answers: `echo`, or a model of the transceivers.
    pub(crate) model: &'static str,
    pub(crate) transceivers: &'a [Transceiver],
    /// Further keys.
    pub(crate) set: &'a [String],
}

/// A transceiver behind it.
pub(crate) struct Transceiver {
    pub(crate) server: Daemon,
    id: usize,
    link: SocketAddr,
}

impl Edge {
    pub(crate) fn start(placement: &Placement, scratch: &Scratch, wanted: &Wanted<'_>) -> anyhow::Result<Self> {
        let &Wanted { core, seats, model, transceivers, set } = wanted;
        let listed: Vec<String> =
            transceivers.iter().map(|t| format!("{{ id = {}, address = \"{}\" }}", t.id, t.link)).collect();
        let mut keys = vec![
            format!("http_bind=\"{ANY}\""),
            format!("admin_bind=\"{ANY}\""),
            format!("media_bind=\"{ANY}\""),
            "workers=1".to_owned(),
            format!("echo_seats={seats}"),
            // All offers come from one address.
            format!("limits.unclaimed_calls_per_source={seats}"),
            format!("state_dir=\"{}\"", scratch.0.display()),
            format!("transceivers=[{}]", listed.join(", ")),
            "log.level=\"warn\"".to_owned(),
            format!("models={{ {model} = \"{model}\" }}"),
            format!("default_model=\"{model}\""),
        ];
        keys.extend_from_slice(set);
        let server = daemon("edge", placement, core, &scratch.0, &arguments("edge", keys))?;
        Ok(Self { http: server.port("http")?, server, model })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Where callers post their offers.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1/realtime/calls?model={}", self.http, self.model)
    }

    /// A metric of its; 0 of what was never counted.
    pub(crate) fn metric(&self, name: &str) -> anyhow::Result<f64> {
        Ok(self.server.metric(name)?.unwrap_or_default())
    }

    /// Allocations of its worker threads so far; none when it does not count them.
    pub(crate) fn allocations(&self) -> anyhow::Result<Option<f64>> {
        self.server.metric(ALLOCATIONS)
    }
}

impl Transceiver {
    /// `count` transceivers with room for `seats` calls in all, on `core`.
    pub(crate) fn start(
        placement: &Placement,
        core: Option<usize>,
        scratch: &Scratch,
        count: usize,
        seats: usize,
        set: &[String],
    ) -> anyhow::Result<Vec<Self>> {
        let least = seats.div_ceil(TRANSCEIVER_SEATS);
        anyhow::ensure!(count >= least, "{seats} calls need {least} transceivers: choose --transceivers {least}");
        (1..=count)
            .map(|id| {
                let mut keys = vec![
                    format!("id={id}"),
                    format!("link_bind=\"{ANY}\""),
                    format!("admin_bind=\"{ANY}\""),
                    "workers=1".to_owned(),
                    format!("seats={}", seats.min(TRANSCEIVER_SEATS)),
                    format!("state_dir=\"{}\"", scratch.0.display()),
                    "log.level=\"warn\"".to_owned(),
                ];
                keys.extend_from_slice(set);
                let arguments = arguments("transceiver", keys);
                let server = daemon(&format!("transceiver-{id}"), placement, core, &scratch.0, &arguments)?;
                Ok(Self { link: server.port("link")?, server, id })
            })
            .collect()
    }
}

fn arguments(daemon: &str, keys: Vec<String>) -> Vec<String> {
    let set = keys.into_iter().flat_map(|key| ["--set".to_owned(), key]);
    [daemon.to_owned()].into_iter().chain(set).collect()
}
