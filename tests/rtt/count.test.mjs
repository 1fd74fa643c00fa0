import assert from "node:assert/strict";
import { test } from "node:test";
import { chain, depths, missing, roundTrips } from "./count.mjs";

const WAY = 50;

/** A datagram that leaves its sender at `sent` and takes WAY. */
const up = (sent, more = {}) => ({ dir: "up", kind: "dtls", t_us: sent, edge_us: sent + WAY, ...more });
const down = (sent, more = {}) => ({ dir: "down", kind: "dtls", edge_us: sent, t_us: sent + WAY, ...more });

test("an answer to what the edge received is one round trip, an answer to that another", () => {
  const packets = [up(0), down(51), up(102), down(153)];
  assert.deepEqual(depths(packets, 0, [50, 101, 203]), [0, 1, 2]);
  assert.deepEqual(packets.map(({ depth }) => depth), [0, 1, 1, 2]);
});

test("a slow end costs no round trip", () => {
  assert.deepEqual(depths([up(0), down(5000), up(9000), down(19_000)], 0, [20_000]), [2]);
});

test("what left before something arrived is not caused by it", () => {
  // The second of two flights of the edge left before the client's second arrived.
  assert.deepEqual(depths([up(0), down(51), up(102), down(130)], 0, [181]), [1]);
});

test("what was lost causes nothing, and what came before the start neither", () => {
  assert.deepEqual(depths([up(0, { dropped: true }), up(10), down(61), up(112), down(130)], 0, [181]), [1]);
  assert.deepEqual(depths([up(0), down(51), up(102), down(153)], 102, [204]), [1]);
});

test("checks count until DTLS runs, with DTLS inside them also after that; audio never", () => {
  const check = (sent, transaction, more) => up(sent, { kind: "stun", stun: { class: "request", transaction }, ...more });
  const response = (sent, transaction, more) => down(sent, { kind: "stun", stun: { class: "response", transaction }, ...more });
  const first = [check(0, 1), response(51, 1), down(60)];
  const later = [check(102, 2), response(153, 2), up(104, { kind: "srtp" })];
  const carrying = [check(112, 3, { records: ["client_hello"] }), response(163, 3, { stun: { class: "response", transaction: 3, acks: 1 } })];
  const kept = chain([...first, ...later, ...carrying]);
  assert.deepEqual(kept, [...first, ...carrying]);
});

test("a wait that the chain cannot see shows in the best run of all", () => {
  assert.equal(roundTrips([{ chain: 1, all: 3 }, { chain: 1, all: 2 }, { chain: 2, all: 2 }]), 2);
  assert.equal(roundTrips([{ chain: 1, all: 1 }, { chain: 2, all: 4 }, { chain: 1, all: 2 }]), 1);
});

test("a run without an event that has a bound is a fault, though its channel opened", () => {
  const rtt = { open: { chain: 2, all: 2 } };
  assert.equal(missing({ open: 2 }, rtt), undefined);
  assert.equal(missing({ media: 2.3, open: 4.3, message: 2 }, rtt), "never came: media, message");
  assert.equal(missing({}, {}), "never came: open");
});
