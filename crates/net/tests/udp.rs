//! The batches against real loopback sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step is a failed test")]

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::time::Duration;

use net::{BATCH, BoundSocket, MAX_DATAGRAM, RecvBatch, Reuse, SendBatch, UdpSocket};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(5);

fn bind(address: &str) -> UdpSocket {
    UdpSocket::bind(address.parse().unwrap(), Reuse::Exclusive).unwrap()
}

fn peer(address: &str) -> (StdSocket, SocketAddr) {
    let socket = StdSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let local = socket.local_addr().unwrap();
    (socket, local)
}

async fn receive(socket: &UdpSocket, batch: &mut RecvBatch) -> usize {
    timeout(PATIENCE, socket.recv_batch(batch)).await.expect("nothing arrived").unwrap()
}

#[tokio::test]
async fn a_datagram_carries_both_addresses_and_may_be_changed_in_place() {
    let socket = bind("127.0.0.1:0");
    let (sender, remote) = peer("127.0.0.1:0");
    sender.send_to(b"hello", socket.local_addr()).unwrap();

    let mut batch = RecvBatch::new();
    assert_eq!(receive(&socket, &mut batch).await, 1);
    let datagram = batch.get_mut(0).unwrap();
    assert_eq!((datagram.local, datagram.remote), (socket.local_addr(), remote));
    datagram.bytes.make_ascii_uppercase();
    assert_eq!(batch.iter_mut().next().unwrap().bytes, b"HELLO");
    assert!(batch.get_mut(1).is_none());
}

#[tokio::test]
async fn two_hundred_datagrams_arrive_in_order_in_several_calls() {
    let socket = bind("127.0.0.1:0");
    let (sender, _) = peer("127.0.0.1:0");
    for number in 0..200u16 {
        sender.send_to(&number.to_be_bytes(), socket.local_addr()).unwrap();
    }

    let mut batch = RecvBatch::new();
    let mut sizes = Vec::new();
    let mut numbers = Vec::new();
    while numbers.len() < 200 {
        sizes.push(receive(&socket, &mut batch).await);
        numbers.extend(batch.iter_mut().map(|datagram| u16::from_be_bytes([datagram.bytes[0], datagram.bytes[1]])));
    }
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
    assert_eq!(sizes, [BATCH, BATCH, BATCH, 200 - 3 * BATCH]);
    assert_eq!(socket.try_recv_batch(&mut batch).unwrap(), 0);
    assert!(batch.is_empty());
}

#[tokio::test]
async fn a_datagram_that_comes_after_an_emptied_queue_wakes_the_receiver() {
    let socket = bind("127.0.0.1:0");
    let (sender, _) = peer("127.0.0.1:0");
    let mut batch = RecvBatch::new();
    for round in 0..100u8 {
        sender.send_to(&[round], socket.local_addr()).unwrap();
        assert_eq!(receive(&socket, &mut batch).await, 1, "round {round}");
    }
}

#[tokio::test]
async fn a_batch_of_two_hundred_leaves_with_one_call_and_in_order() {
    let socket = bind("127.0.0.1:0");
    let (receiver, remote) = peer("127.0.0.1:0");
    let mut batch = SendBatch::new();
    for number in 0..200u16 {
        batch.push(socket.local_addr(), remote, &number.to_be_bytes());
    }
    assert_eq!(socket.send_batch(&mut batch), 200);
    assert!(batch.is_empty());
    for number in 0..200u16 {
        let mut buffer = [0; 8];
        assert_eq!(receiver.recv_from(&mut buffer).unwrap(), (2, socket.local_addr()));
        assert_eq!(u16::from_be_bytes([buffer[0], buffer[1]]), number);
    }
}

#[tokio::test]
async fn an_ipv4_reply_leaves_from_the_address_that_was_asked() {
    let socket = bind("0.0.0.0:0");
    replies_leave_from(&socket, "127.0.0.1:0", &["127.0.0.1", "127.0.0.2", "127.3.2.1"]).await;
}

#[tokio::test]
async fn an_ipv6_reply_leaves_from_the_address_that_was_asked() {
    let socket = bind("[::]:0");
    replies_leave_from(&socket, "[::1]:0", &["::1"]).await;
}

#[tokio::test]
async fn a_socket_on_all_ipv6_addresses_serves_ipv4_under_its_ipv4_addresses() {
    let socket = bind("[::]:0");
    replies_leave_from(&socket, "127.0.0.1:0", &["127.0.0.1", "127.0.0.2"]).await;
}

async fn replies_leave_from(socket: &UdpSocket, from: &str, ours: &[&str]) {
    for ip in ours {
        let ours = SocketAddr::new(ip.parse().unwrap(), socket.local_addr().port());
        let (client, remote) = peer(from);
        client.send_to(b"ping", ours).unwrap();

        let mut received = RecvBatch::new();
        assert_eq!(receive(socket, &mut received).await, 1);
        let mut replies = SendBatch::new();
        for datagram in received.iter_mut() {
            assert_eq!((datagram.local, datagram.remote), (ours, remote));
            replies.push(datagram.local, datagram.remote, datagram.bytes);
        }
        assert_eq!(socket.send_batch(&mut replies), 1);
        let mut buffer = [0; 8];
        assert_eq!(client.recv_from(&mut buffer).unwrap(), (4, ours));
    }
}

#[tokio::test]
async fn members_of_a_group_share_flows_and_keep_each_flow_on_one_member() {
    let group = BoundSocket::group("127.0.0.1:0".parse().unwrap(), 2).unwrap();
    let port = group[0].local_addr();
    let members: Vec<_> = group.into_iter().map(|bound| bound.register().unwrap()).collect();
    assert!(members.iter().all(|member| member.local_addr() == port));

    let clients: Vec<_> = (0..64).map(|_| peer("127.0.0.1:0")).collect();
    for (client, _) in &clients {
        client.send_to(b"first", port).unwrap();
        client.send_to(b"second", port).unwrap();
    }
    let mut seen: [Vec<SocketAddr>; 2] = Default::default();
    while seen[0].len() + seen[1].len() < 128 {
        for (member, seen) in members.iter().zip(&mut seen) {
            let mut batch = RecvBatch::new();
            member.try_recv_batch(&mut batch).unwrap();
            seen.extend(batch.iter_mut().map(|datagram| datagram.remote));
        }
    }
    let [left, right] = seen.map(|remotes| remotes.into_iter().collect::<HashSet<_>>());
    assert!(!left.is_empty() && !right.is_empty(), "{} and {} flows", left.len(), right.len());
    assert!(left.is_disjoint(&right));
}

#[tokio::test]
async fn a_group_refuses_a_port_that_another_group_or_socket_holds() {
    let group = BoundSocket::group("127.0.0.1:0".parse().unwrap(), 2).unwrap();
    let port = group[0].local_addr();
    assert_eq!(BoundSocket::group(port, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);

    let (_other, taken) = peer("127.0.0.1:0");
    assert_eq!(BoundSocket::group(taken, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    assert_eq!(BoundSocket::group(taken, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[tokio::test]
async fn oversize_datagrams_are_counted_and_those_around_them_arrive() {
    let socket = bind("127.0.0.1:0");
    let (sender, _) = peer("127.0.0.1:0");
    for (length, fill) in [(100, 1), (MAX_DATAGRAM, 2), (MAX_DATAGRAM + 1, 3), (0, 4), (50, 5)] {
        sender.send_to(&vec![fill; length], socket.local_addr()).unwrap();
    }
    let mut batch = RecvBatch::new();
    let mut lengths = Vec::new();
    while batch.stats().received < 4 {
        receive(&socket, &mut batch).await;
        lengths.extend(batch.iter_mut().map(|datagram| (datagram.bytes.len(), datagram.bytes.first().copied())));
    }
    assert_eq!(lengths, [(100, Some(1)), (MAX_DATAGRAM, Some(2)), (0, None), (50, Some(5))]);
    assert_eq!(batch.stats().oversize, 1);
}

#[tokio::test]
async fn a_full_batch_drops_the_oldest() {
    let socket = bind("127.0.0.1:0");
    let (receiver, remote) = peer("127.0.0.1:0");
    let mut batch = SendBatch::new();
    for number in 0..300u16 {
        batch.push(socket.local_addr(), remote, &number.to_be_bytes());
    }
    assert_eq!(socket.send_batch(&mut batch), 256);
    let mut buffer = [0; 8];
    receiver.recv_from(&mut buffer).unwrap();
    assert_eq!(u16::from_be_bytes([buffer[0], buffer[1]]), 300 - 256);
    assert_eq!(batch.stats(), net::SendStats { sent: 256, dropped: 44, ..Default::default() });
}

#[tokio::test]
async fn a_datagram_that_cannot_be_sent_is_counted_and_the_others_leave() {
    let socket = bind("0.0.0.0:0");
    let (receiver, remote) = peer("127.0.0.1:0");
    let ours = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut batch = SendBatch::new();
    batch.push(ours, remote, b"before");
    // An address that no interface has.
    batch.push(SocketAddr::from(([192, 0, 2, 1], 0)), remote, b"lost");
    batch.push(ours, remote, &[0; MAX_DATAGRAM + 1]);
    batch.push(ours, remote, b"after");
    assert_eq!(socket.send_batch(&mut batch), 2);
    assert_eq!(batch.stats(), net::SendStats { sent: 2, failed: 1, oversize: 1, ..Default::default() });
    let mut buffer = [0; 8];
    let (length, _) = receiver.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"before");
    let (length, _) = receiver.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"after");
}

#[tokio::test]
async fn sending_to_a_closed_port_disturbs_neither_sending_nor_receiving() {
    let socket = bind("127.0.0.1:0");
    let (gone, closed) = peer("127.0.0.1:0");
    drop(gone);
    let (alive, remote) = peer("127.0.0.1:0");
    let mut replies = SendBatch::new();
    let mut received = RecvBatch::new();
    for _ in 0..10 {
        replies.push(socket.local_addr(), closed, b"anybody");
        replies.push(socket.local_addr(), remote, b"you");
        socket.send_batch(&mut replies);
        alive.send_to(b"me", socket.local_addr()).unwrap();
        assert_eq!(receive(&socket, &mut received).await, 1);
        let mut buffer = [0; 8];
        assert_eq!(alive.recv_from(&mut buffer).unwrap().0, 3);
    }
}

#[tokio::test]
async fn the_kernel_buffers_are_reported() {
    let socket = bind("127.0.0.1:0");
    let buffers = socket.buffers();
    let limit = |name: &str| -> usize {
        std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap().trim().parse().unwrap()
    };
    assert_eq!(buffers.receive_bytes, limit("rmem_max").min(net::Buffers::WANTED_BYTES));
    assert_eq!(buffers.send_bytes, limit("wmem_max").min(net::Buffers::WANTED_BYTES));
    assert_eq!(
        buffers.short(),
        buffers.receive_bytes < net::Buffers::WANTED_BYTES || buffers.send_bytes < net::Buffers::WANTED_BYTES
    );
}
