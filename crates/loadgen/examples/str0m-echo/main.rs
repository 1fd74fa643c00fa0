//! A peer to compare with: str0m as an echo server. One thread, one UDP socket for all sessions, WHIP in front:
//! POST an offer to /whip (201, Location), DELETE there hangs up. Each RTP packet goes back as it came.
//!
//! With `--turn` callers reach it through a TURN server, one allocation each, which is then the peer to compare with.
//!
//! Run loop of [`Server`]: wait for the socket, a relay, a command or the nearest timeout; then read all that the socket
//! has, each datagram through its session at once.

mod turn;

use std::collections::{BTreeSet, HashMap};
use std::net::{SocketAddr, SocketAddrV4};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{delete, post};
use clap::Parser;
use str0m::change::SdpOffer;
use str0m::media::Mid;
use str0m::net::{Protocol, Receive};
use str0m::rtp::{RtpPacket, RtpWrite};
use str0m::{Candidate, Event, Input, Output, Rtc};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, LocalSet, spawn_local};
use turn::Relay;

/// Datagrams read per wake-up before commands and timeouts have their turn.
const BATCH: usize = 256;
/// Datagrams of relays that wait for the server: 100 ms of 200 calls.
const RELAYED: usize = 1000;
/// Waits that are longer make no difference: there is nothing to do.
const IDLE: Duration = Duration::from_secs(1);

/// Echoes the audio of every session.
#[derive(Parser)]
struct Options {
    /// Where WHIP and media listen: TCP and UDP, ports of the system's choice with port 0.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// A TURN server that asks for no credentials, to be reached through.
    #[arg(long)]
    turn: Option<SocketAddr>,
}

enum Command {
    Open { offer: String, reply: oneshot::Sender<anyhow::Result<(u64, String)>> },
    Close { id: u64, reply: oneshot::Sender<bool> },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let socket = UdpSocket::bind(options.listen).await?;
    let http = TcpListener::bind(options.listen).await?;
    let address = http.local_addr()?;
    let (commands, received) = mpsc::channel(64);
    let router = Router::new().route("/whip", post(open)).route("/whip/{id}", delete(close)).with_state(commands);
    tokio::spawn(async move { axum::serve(http, router).await });
    // The script that started it waits for this line.
    #[expect(clippy::print_stdout, reason = "its interface")]
    {
        println!("http://{address}/whip");
    }
    LocalSet::new().run_until(Server::new(socket, options.turn)?.run(received)).await
}

async fn open(State(server): State<mpsc::Sender<Command>>, offer: String) -> axum::response::Response {
    let (reply, answer) = oneshot::channel();
    let sent = server.send(Command::Open { offer, reply }).await;
    match (sent, answer.await) {
        (Ok(()), Ok(Ok((id, answer)))) => {
            let headers = [(header::CONTENT_TYPE, "application/sdp".into()), (header::LOCATION, format!("/whip/{id}"))];
            (StatusCode::CREATED, headers, answer).into_response()
        }
        (Ok(()), Ok(Err(fault))) => (StatusCode::BAD_REQUEST, format!("{fault:#}")).into_response(),
        _ => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn close(State(server): State<mpsc::Sender<Command>>, Path(id): Path<u64>) -> StatusCode {
    let (reply, known) = oneshot::channel();
    match (server.send(Command::Close { id, reply }).await, known.await) {
        (Ok(()), Ok(true)) => StatusCode::OK,
        _ => StatusCode::NOT_FOUND,
    }
}

struct Session {
    rtc: Rtc,
    /// The audio line, once accepted.
    mid: Option<Mid>,
    /// What is in [`Server::timeouts`].
    timeout: Instant,
    sources: Vec<SocketAddr>,
    relay: Option<Rc<Relay>>,
    /// Carries to the server what the relay receives.
    carrier: Option<AbortHandle>,
}

/// What a relay received for a session.
struct Relayed {
    id: u64,
    datagram: Vec<u8>,
}

struct Server {
    socket: UdpSocket,
    turn: Option<SocketAddr>,
    relayed: mpsc::Sender<Relayed>,
    from_relays: mpsc::Receiver<Relayed>,
    local: SocketAddr,
    sessions: HashMap<u64, Session>,
    by_source: HashMap<SocketAddr, u64>,
    timeouts: BTreeSet<(Instant, u64)>,
    next: u64,
}

impl Server {
    fn new(socket: UdpSocket, turn: Option<SocketAddr>) -> anyhow::Result<Self> {
        let local = socket.local_addr()?;
        let (relayed, from_relays) = mpsc::channel(RELAYED);
        let (sessions, by_source, timeouts) = (HashMap::new(), HashMap::new(), BTreeSet::new());
        Ok(Self { socket, turn, relayed, from_relays, local, sessions, by_source, timeouts, next: 1 })
    }

    async fn run(mut self, mut commands: mpsc::Receiver<Command>) -> anyhow::Result<()> {
        let mut buffer = vec![0; 2048];
        loop {
            let nearest = self.timeouts.first().map_or_else(|| Instant::now() + IDLE, |&(at, _)| at);
            tokio::select! {
                readable = self.socket.readable() => {
                    readable?;
                    for _ in 0..BATCH {
                        let Ok((length, source)) = self.socket.try_recv_from(&mut buffer) else { break };
                        self.handle_datagram(source, &buffer[..length]);
                    }
                }
                Some(relayed) = self.from_relays.recv() => {
                    self.handle_relayed(&relayed);
                    for _ in 1..BATCH {
                        let Ok(relayed) = self.from_relays.try_recv() else { break };
                        self.handle_relayed(&relayed);
                    }
                }
                command = commands.recv() => self.handle_command(command.context("nobody left to serve")?).await,
                () = tokio::time::sleep_until(nearest.into()) => {}
            }
            self.handle_timeouts();
        }
    }

    async fn handle_command(&mut self, command: Command) {
        // Who asked may have gone: then there is nobody to tell.
        match command {
            Command::Open { offer, reply } => drop(reply.send(self.open(&offer).await)),
            Command::Close { id, reply } => drop(reply.send(self.close(id))),
        }
    }

    async fn open(&mut self, offer: &str) -> anyhow::Result<(u64, String)> {
        let relay = match self.turn {
            Some(server) => Some(Rc::new(Relay::new(server, first_candidate(offer)?).await?)),
            None => None,
        };
        let now = Instant::now();
        let mut rtc = Rtc::builder().set_ice_lite(true).set_rtp_mode(true).build(now);
        // What is behind the relay is of no use to the caller: its address stands for ours.
        let address = relay.as_ref().map_or(self.local, |relay| relay.relayed);
        rtc.add_local_candidate(Candidate::host(address, "udp")?).context("a candidate")?;
        let answer = rtc.sdp_api().accept_offer(SdpOffer::from_sdp_string(offer)?)?;
        let id = self.next;
        self.next += 1;
        let carrier = relay.clone().map(|relay| spawn_local(carry(id, relay, self.relayed.clone())).abort_handle());
        self.sessions.insert(id, Session { rtc, mid: None, timeout: now, sources: Vec::new(), relay, carrier });
        self.timeouts.insert((now, id));
        self.drive(id, now);
        Ok((id, answer.to_sdp_string()))
    }

    fn close(&mut self, id: u64) -> bool {
        let Some(session) = self.sessions.remove(&id) else { return false };
        self.timeouts.remove(&(session.timeout, id));
        if let Some(carrier) = session.carrier {
            carrier.abort();
        }
        for source in session.sources {
            self.by_source.remove(&source);
        }
        true
    }

    fn handle_datagram(&mut self, source: SocketAddr, datagram: &[u8]) {
        let now = Instant::now();
        let Ok(contents) = datagram.try_into() else { return };
        let input = Input::Receive(now, Receive { proto: Protocol::Udp, source, destination: self.local, contents });
        let id = match self.by_source.get(&source) {
            Some(&id) => id,
            None => {
                let Some((&id, session)) = self.sessions.iter_mut().find(|(_, session)| session.rtc.accepts(&input))
                else {
                    return;
                };
                session.sources.push(source);
                self.by_source.insert(source, id);
                id
            }
        };
        if let Some(session) = self.sessions.get_mut(&id) {
            match session.rtc.handle_input(input) {
                Ok(()) => self.drive(id, now),
                Err(_) => drop(self.close(id)),
            }
        }
    }

    fn handle_relayed(&mut self, Relayed { id, datagram }: &Relayed) {
        let now = Instant::now();
        let Some(session) = self.sessions.get_mut(id) else { return };
        let (Some(relay), Ok(contents)) = (&session.relay, datagram.as_slice().try_into()) else { return };
        let (source, destination) = (relay.peer, relay.relayed);
        let input = Input::Receive(now, Receive { proto: Protocol::Udp, source, destination, contents });
        match session.rtc.handle_input(input) {
            Ok(()) => self.drive(*id, now),
            Err(_) => drop(self.close(*id)),
        }
    }

    fn handle_timeouts(&mut self) {
        let now = Instant::now();
        while let Some(&(at, id)) = self.timeouts.first()
            && at <= now
        {
            self.drive(id, now);
        }
    }

    /// Polls until the session waits for a time that is to come.
    fn drive(&mut self, id: u64, now: Instant) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let timeout = loop {
            match session.rtc.poll_output() {
                Ok(Output::Timeout(at)) if at <= now => {
                    if session.rtc.handle_input(Input::Timeout(now)).is_err() {
                        break None;
                    }
                }
                Ok(Output::Timeout(at)) => break Some(at),
                Ok(Output::Transmit(transmit)) => match &session.relay {
                    Some(relay) => relay.send(&transmit.contents),
                    // A full socket buffer is loss, like any other.
                    None => drop(self.socket.try_send_to(&transmit.contents, transmit.destination)),
                },
                Ok(Output::Event(Event::MediaAdded(media))) => session.mid = Some(media.mid),
                Ok(Output::Event(Event::RtpPacket(packet))) => session.echo(now, packet),
                Ok(Output::Event(_)) => {}
                Err(_) => break None,
            }
        };
        match timeout {
            Some(at) if session.rtc.is_alive() => {
                if at != session.timeout {
                    self.timeouts.remove(&(session.timeout, id));
                    self.timeouts.insert((at, id));
                    session.timeout = at;
                }
            }
            _ => drop(self.close(id)),
        }
    }
}

/// Hands what a relay receives to the server.
async fn carry(id: u64, relay: Rc<Relay>, server: mpsc::Sender<Relayed>) {
    while let Ok(datagram) = relay.receive().await {
        // Full: loss, as in a socket buffer.
        drop(server.try_send(Relayed { id, datagram }));
    }
}

/// The caller's address, as its offer has it: `a=candidate:FOUNDATION COMPONENT udp PRIORITY ADDRESS PORT typ host`.
fn first_candidate(offer: &str) -> anyhow::Result<SocketAddrV4> {
    let line =
        offer.lines().find_map(|line| line.strip_prefix("a=candidate:")).context("an offer without candidates")?;
    let mut words = line.split(' ').skip(4);
    let (Some(ip), Some(port)) = (words.next(), words.next()) else { bail!("a short candidate") };
    Ok(SocketAddrV4::new(ip.parse()?, port.parse()?))
}

impl Session {
    fn echo(&mut self, now: Instant, packet: RtpPacket) {
        let Some(mid) = self.mid else { return };
        let mut api = self.rtc.direct_api();
        let Some(stream) = api.stream_tx_by_mid(mid, None) else { return };
        let RtpPacket { seq_no, header, payload, .. } = packet;
        stream.write_rtp(
            RtpWrite::new(header.payload_type, seq_no, header.timestamp, now, payload).marker(header.marker),
        );
    }
}
