// Round trips of a set-up, counted in the proxy's packet log: how often the two ends had to wait for each other.
//
// A datagram can only be caused by what its sender had received before it left. The depth of a datagram to the client is one
// more than the deepest that the edge had received; the depth of one to the edge is that of the deepest that the client had.
// How deep the client is when something happens there is the number of round trips that it took: an ordering, no clock.
//
// Two such counts bound the truth. `all` lets every datagram be a cause: it never counts too little, but a machine that is
// slow lets packets in between that caused nothing. `chain` leaves out what can't be a cause: audio, and connectivity checks
// that carry no DTLS once DTLS runs. So it could miss a wait of DTLS for a check; `all` of the best run would show that.

/** The packets that may be causes: an approximation from below, see above. */
export function chain(packets) {
  const first = packets.find(bearsDtls);
  const running = first && Math.min(first.t_us, first.edge_us);
  return packets.filter(
    (packet) =>
      packet.kind === "http" ||
      packet.kind === "dtls" ||
      (packet.kind === "stun" && (bearsDtls(packet) || running === undefined || Math.min(packet.t_us, packet.edge_us) <= running)) ||
      // The response to a check that came before DTLS.
      (packet.kind === "stun" && packet.dir === "down" && answersEarly(packets, packet, running)),
  );
}

export const bearsDtls = (packet) => packet.kind === "dtls" || (packet.records?.length ?? 0) > 0 || (packet.stun?.acks ?? 0) > 0;

function answersEarly(packets, response, running) {
  const request = packets.find(({ dir, stun }) => dir === "up" && stun?.transaction === response.stun?.transaction);
  return request !== undefined && (running === undefined || request.t_us <= running);
}

/**
 * The depth of the client at each of `times` (µs), counted from `from` on: `packets` as the proxy logs them. Adds `depth` to
 * the packets themselves.
 */
export function depths(packets, from, times) {
  const points = [];
  for (const packet of packets) {
    const sent = packet.dir === "up" ? packet.t_us : packet.edge_us;
    const received = packet.dir === "up" ? packet.edge_us : packet.t_us;
    if (sent < from) continue;
    points.push({ at: sent, packet, sends: true });
    if (!packet.dropped) points.push({ at: received, packet, sends: false });
  }
  times.forEach((at, n) => points.push({ at, asks: n }));
  // What is received in the same microsecond as a question counts; what is sent then does not see what is received then.
  points.sort((a, b) => a.at - b.at || rank(a) - rank(b));
  let client = 0;
  let edge = -1;
  const asked = [];
  for (const { packet, sends, asks } of points) {
    if (asks !== undefined) asked[asks] = client;
    else if (sends) packet.depth = packet.dir === "up" ? client : edge + 1;
    else if (packet.dir === "up") edge = Math.max(edge, packet.depth);
    else client = Math.max(client, packet.depth);
  }
  return asked;
}

const rank = ({ sends, asks }) => (sends ? 0 : asks === undefined ? 1 : 2);

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Round trips of a case: the median of the chains, but no less than the best run has in `all`. */
export const roundTrips = (runs) => Math.max(median(runs.map(({ chain }) => chain)), Math.min(...runs.map(({ all }) => all)));

/** Why a run that has these counts is a fault: something with a bound never came, and a median of the others would hide it. */
export function missing(bounds, rtt) {
  const absent = ["open", ...Object.keys(bounds)].filter((event) => rtt[event] === undefined);
  return absent.length ? `never came: ${[...new Set(absent)].join(", ")}` : undefined;
}
