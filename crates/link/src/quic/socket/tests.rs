//! A system that takes the options for segments and for ECN, and fails the sends that use them.

use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::time::Duration;

use quinn::udp::EcnCodepoint;

use super::*;

/// Refuses what it does not have, sends the rest, and notes each call.
#[derive(Debug, Clone)]
struct Kernel {
    no_segments: Option<i32>,
    no_ecn: Option<i32>,
    /// Nothing leaves, however it is sent.
    broken: Arc<AtomicBool>,
    state: Arc<UdpSocketState>,
    calls: Arc<Mutex<Vec<Call>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Call {
    bytes: usize,
    segment: Option<usize>,
    marked: bool,
}

impl Send for Kernel {
    fn send(&self, socket: &tokio::net::UdpSocket, transmit: &Transmit<'_>) -> io::Result<()> {
        let call =
            Call { bytes: transmit.contents.len(), segment: transmit.segment_size, marked: transmit.ecn.is_some() };
        self.calls.lock().unwrap().push(call);
        let refusal = self.broken.load(Ordering::Relaxed).then_some(EIO);
        let refusal = refusal.or_else(|| {
            self.no_segments.filter(|_| call.segment.is_some()).or_else(|| self.no_ecn.filter(|_| call.marked))
        });
        match refusal {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => self.state.try_send(socket.into(), transmit),
        }
    }
}

struct Pair {
    socket: Arc<LinkSocket>,
    kernel: Kernel,
    peer: tokio::net::UdpSocket,
}

impl Pair {
    async fn new(no_segments: Option<i32>, no_ecn: Option<i32>) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let state = Arc::new(UdpSocketState::new((&socket).into()).unwrap());
        let broken = Arc::default();
        let kernel = Kernel { no_segments, no_ecn, broken, state, calls: Arc::default() };
        let socket = Arc::new(LinkSocket::with_kernel(socket, kernel.clone()).unwrap());
        let peer = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Self { socket, kernel, peer }
    }

    /// As a connection's driver does it.
    async fn send(&self, contents: &[u8], segment_size: Option<usize>, ecn: Option<EcnCodepoint>) {
        let destination = self.peer.local_addr().unwrap();
        let transmit = Transmit { destination, ecn, contents, segment_size, src_ip: None };
        let mut poller = Arc::clone(&self.socket).create_io_poller();
        loop {
            std::future::poll_fn(|cx| poller.as_mut().poll_writable(cx)).await.unwrap();
            match self.socket.try_send(&transmit) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return sent.unwrap(),
            }
        }
    }

    async fn received(&self) -> Vec<u8> {
        let mut buffer = [0; 2048];
        let len = tokio::time::timeout(Duration::from_secs(5), self.peer.recv(&mut buffer)).await.unwrap().unwrap();
        buffer[..len].to_vec()
    }

    fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.kernel.calls.lock().unwrap())
    }
}

/// Three segments of 100 bytes and one of 50.
fn batch() -> Vec<u8> {
    [[0; 100], [1; 100], [2; 100], [3; 100]].concat()[..350].to_vec()
}

async fn all_of_the_batch_arrives(pair: &Pair) {
    for (value, len) in [(0, 100), (1, 100), (2, 100), (3, 50)] {
        assert_eq!(pair.received().await, vec![value; len]);
    }
}

const PLAIN: Call = Call { bytes: 100, segment: None, marked: false };

#[tokio::test]
async fn q01_a_refused_segmented_send_is_sent_again_at_once_segment_by_segment() {
    for errno in [EIO, EINVAL] {
        let pair = Pair::new(Some(errno), None).await;
        pair.send(&batch(), Some(100), None).await;
        all_of_the_batch_arrives(&pair).await;
        let segmented = Call { bytes: 350, segment: Some(100), marked: false };
        assert_eq!(pair.calls(), [segmented, PLAIN, PLAIN, PLAIN, Call { bytes: 50, ..PLAIN }], "errno {errno}");
        assert_eq!(pair.socket.max_transmit_segments(), 1, "not asked of this socket again");
        // One that was built before that is known goes plainly from the start.
        pair.send(&batch(), Some(100), None).await;
        all_of_the_batch_arrives(&pair).await;
        assert_eq!(pair.calls(), [PLAIN, PLAIN, PLAIN, Call { bytes: 50, ..PLAIN }], "errno {errno}");
        assert_eq!(pair.socket.failed.load(Ordering::Relaxed), 0);
    }
}

#[tokio::test]
async fn q01_a_refused_mark_is_left_out_at_once_and_ever_after() {
    for errno in [EIO, EINVAL] {
        let pair = Pair::new(None, Some(errno)).await;
        pair.send(&[7; 100], None, Some(EcnCodepoint::Ect0)).await;
        assert_eq!(pair.received().await, [7; 100]);
        assert_eq!(pair.calls().last(), Some(&PLAIN), "errno {errno}");
        pair.send(&[8; 100], None, Some(EcnCodepoint::Ect0)).await;
        assert_eq!(pair.received().await, [8; 100]);
        assert_eq!(pair.calls(), [PLAIN], "errno {errno}");
    }
}

#[tokio::test]
async fn q01_a_system_without_either_loses_nothing() {
    let pair = Pair::new(Some(EIO), Some(EINVAL)).await;
    pair.send(&batch(), Some(100), Some(EcnCodepoint::Ect0)).await;
    all_of_the_batch_arrives(&pair).await;
    pair.calls();
    pair.send(&batch(), Some(100), Some(EcnCodepoint::Ect0)).await;
    all_of_the_batch_arrives(&pair).await;
    assert_eq!(pair.calls().len(), 4);
    assert_eq!(pair.socket.failed.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn what_fails_with_and_without_an_option_is_no_fault_of_the_option() {
    let pair = Pair::new(None, None).await;
    pair.kernel.broken.store(true, Ordering::Relaxed);
    pair.send(&batch(), Some(100), Some(EcnCodepoint::Ect0)).await;
    pair.send(&[7; 100], None, Some(EcnCodepoint::Ect0)).await;
    assert_eq!(pair.socket.failed.load(Ordering::Relaxed), 4 + 1, "each datagram is counted");
    pair.kernel.broken.store(false, Ordering::Relaxed);
    pair.calls();
    assert!(pair.socket.max_transmit_segments() > 1);
    pair.send(&batch(), Some(100), Some(EcnCodepoint::Ect0)).await;
    all_of_the_batch_arrives(&pair).await;
    assert_eq!(pair.calls(), [Call { bytes: 350, segment: Some(100), marked: true }]);
}

#[tokio::test]
async fn a_system_with_both_is_asked_once_per_batch() {
    let pair = Pair::new(None, None).await;
    pair.send(&batch(), Some(100), Some(EcnCodepoint::Ect0)).await;
    all_of_the_batch_arrives(&pair).await;
    assert_eq!(pair.calls(), [Call { bytes: 350, segment: Some(100), marked: true }]);
    assert!(pair.socket.max_transmit_segments() > 1);
}
