// A NAT of ours in front of the edge's media port, whose outside port can change in mid-call, and its packet log.

import { createSocket } from "node:dgram";

const REQUEST = 0x0001;
const RESPONSE = 0x0101;
const USE_CANDIDATE = 0x0025;

const bind = (host) =>
  new Promise((resolve, reject) => {
    const socket = createSocket("udp4");
    socket.once("error", reject);
    socket.bind(0, host, () => resolve(socket));
  });

/** RFC 7983, and of STUN whether it is a request that nominates. */
function describe(datagram) {
  const first = datagram[0];
  if (first >= 20 && first <= 63) return { kind: "dtls" };
  if (first >= 128 && first <= 191) {
    const type = datagram[1] & 0x7f;
    return { kind: type >= 64 && type <= 95 ? "srtcp" : "srtp" };
  }
  if (first > 3) return { kind: "other" };
  const id = datagram.toString("hex", 8, 20);
  const stun = { [REQUEST]: "request", [RESPONSE]: "response" }[datagram.readUInt16BE(0)] ?? "other";
  let nominates = false;
  for (let at = 20; at + 4 <= datagram.length; at += 4 + ((datagram.readUInt16BE(at + 2) + 3) & ~3)) {
    nominates ||= datagram.readUInt16BE(at) === USE_CANDIDATE;
  }
  return { kind: "stun", stun, id, nominates };
}

/**
 * One client's NAT before port `to` of `host`; the client reaches it at `inner`. `log` has one object per datagram that reaches the NAT from either side:
 * `{ at (ms), dir: "up"|"down", port (outside), kind, len, stun?, id?, nominates? }`.
 */
export async function startNat(to, { host = "127.0.0.1", inner = host } = {}) {
  const inside = await bind(inner);
  const log = [];
  let client;
  let outside;

  const open = async () => {
    const socket = await bind(host);
    const { port } = socket.address();
    socket.on("message", (datagram) => {
      log.push({ at: performance.now(), dir: "down", port, len: datagram.length, ...describe(datagram) });
      if (client) inside.send(datagram, client.port, client.address);
    });
    return socket;
  };
  inside.on("message", (datagram, from) => {
    client = from;
    const { port } = outside.address();
    log.push({ at: performance.now(), dir: "up", port, len: datagram.length, ...describe(datagram) });
    outside.send(datagram, to, host);
  });
  outside = await open();

  return {
    port: inside.address().port,
    log,
    outsidePort: () => outside.address().port,
    /** From here on the edge sees another port, and what it sends to the former one is lost. */
    rebind: async () => {
      const former = outside;
      const next = await open();
      outside = next;
      former.close();
      return { at: performance.now(), port: next.address().port };
    },
    stop: () => {
      inside.close();
      outside.close();
    },
  };
}
