// What calls leave behind, and what bad input does: read from both /metrics.

import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { after, before, test } from "node:test";
import { openHarness } from "./lib/browser.mjs";
import { sleep, startServers, until } from "./lib/servers.mjs";
import { silence } from "./lib/speech.mjs";

// Sessions, slots, seats, streams, 4-tuples, descriptors, tasks: gauges that must come back to their values.
const EDGE = [
  "fronthaul_edge_sessions",
  "fronthaul_edge_pending_sessions",
  "fronthaul_edge_paths",
  "fronthaul_edge_utterance_streams",
  "fronthaul_edge_session_streams",
  "fronthaul_edge_seats_used",
  "process_open_fds",
  "fronthaul_tokio_tasks",
];
const TRANSCEIVER = [
  "fronthaul_transceiver_calls",
  "fronthaul_transceiver_slots",
  "fronthaul_transceiver_slots_quarantined",
  "fronthaul_transceiver_session_streams",
  "fronthaul_transceiver_utterance_streams",
  "process_open_fds",
  "fronthaul_tokio_tasks",
];

let servers;
before(async () => (servers = await startServers()));
after(() => servers.stop());

async function gauges() {
  const { edge, transceiver } = await servers.metrics();
  const pick = (page, names) => Object.fromEntries(names.map((name) => [name, page[name]]));
  return { edge: pick(edge, EDGE), transceiver: pick(transceiver, TRANSCEIVER) };
}

/** Opens calls of these models in one browser; gives their Locations. */
async function openCalls(page, models) {
  const locations = [];
  for (const model of models) {
    locations.push(
      await page.evaluate(async (options) => {
        const call = new window.call.constructor();
        (window.calls ??= []).push(call);
        return (await call.connect(options)).location;
      }, { url: servers.url, model }),
    );
  }
  return locations;
}

const closed = async () =>
  Object.entries((await servers.metrics()).edge)
    .filter(([name]) => name.startsWith("fronthaul_edge_sessions_closed_total"))
    .reduce((sum, [, value]) => sum + value, 0);

test("hang-ups and vanished clients leave nothing behind", async () => {
  // A first call opens what is opened once and kept: it is not part of the comparison.
  const first = await openHarness(silence(2));
  await openCalls(first.page, ["parrot"]);
  await first.page.evaluate(() => window.calls[0].hangUp());
  await until("the first call's end", async () => (await closed()) === 1, { ms: 45_000 });
  await first.close();
  // Idle HTTP connections live 10 s, a slot's quarantine 5 s.
  await sleep(12_000);
  const before = await gauges();
  for (const [group, names] of Object.entries({ edge: EDGE, transceiver: TRANSCEIVER })) {
    names.forEach((name) => assert.notEqual(before[group][name], undefined, `${name} is missing on the ${group}'s /metrics`));
  }
  assert.equal(before.transceiver.fronthaul_transceiver_slots_quarantined, 0);

  const { page, close } = await openHarness(silence(2));
  const locations = await openCalls(page, ["parrot", "parrot", "echo", "parrot"]);
  await until("four sessions", async () => (await gauges()).edge.fronthaul_edge_sessions === 4);

  // One hangs up over HTTP, twice; one by DELETE; one closes its connection; one vanishes with its browser.
  const hangUp = (path, method) => fetch(`${servers.url}${path}`, { method });
  assert.equal((await hangUp(`${locations[0]}/hangup`, "POST")).status, 200);
  assert.equal((await hangUp(`${locations[0]}/hangup`, "POST")).status, 200);
  assert.equal((await hangUp(locations[1], "DELETE")).status, 200);
  await page.evaluate(() => window.calls[2].hangUp());
  await close({ kill: true });
  const began = Date.now();
  // The longest timer: 30 s of consent and of a 4-tuple's life, then 5 s of slot quarantine.
  await until("gauges back at their values", async () => assert.deepEqual(await gauges(), before) ?? true, {
    ms: 45_000,
    every: 1_000,
  });
  console.log(`all gauges back ${((Date.now() - began) / 1000).toFixed(0)} s after the last client vanished`);
});

test("bad input is counted or answered, and running calls do not notice", async () => {
  const { page, close } = await openHarness(silence(2));
  try {
    await page.evaluate((options) => window.call.connect(options), { url: servers.url, model: "echo" });
    const before = (await servers.metrics()).edge;

    const socket = createSocket("udp4");
    const send = (bytes) => new Promise((resolve) => socket.send(bytes, servers.media, "127.0.0.1", resolve));
    let replies = 0;
    socket.on("message", () => replies++);
    for (let n = 0; n < 500; n++) {
      await send(Buffer.from(Array.from({ length: 1 + (n % 300) }, (_, i) => (n * 31 + i * i * 7) & 255)));
    }
    const check = Buffer.concat([Buffer.from("000100482112a442", "hex"), Buffer.alloc(12, 7), Buffer.from("00060044", "hex"), Buffer.alloc(68, "A")]);
    for (let length = 1; length <= check.length; length++) await send(check.subarray(0, length));
    const discards = (page) =>
      Object.entries(page)
        .filter(([name]) => name.startsWith("fronthaul_edge_discards_total"))
        .reduce((sum, [, value]) => sum + value, 0);
    await until("the counters", async () => discards((await servers.metrics()).edge) - discards(before) >= 400 + check.length, { ms: 5_000 });
    assert.equal(replies, 0, "nothing is answered to a stranger");
    socket.close();

    const post = (body, type = "application/sdp", path = "/v1/realtime/calls") =>
      fetch(`${servers.url}${path}`, { method: "POST", headers: { "Content-Type": type }, body });
    const refused = async (response, status) => {
      assert.equal(response.status, status);
      const { error } = await response.json();
      assert.ok(error.message.length > 20 && error.type, JSON.stringify(error));
      return error.message;
    };
    console.log(await refused(await post(""), 400));
    await refused(await post("x".repeat(1 << 20)), 413);
    await refused(await post("v=0\r\n", "text/plain"), 415);
    await refused(await post("v=0", "application/sdp", "/v1/unknown"), 404);
    const offer = await page.evaluate(async () => {
      const pc = new RTCPeerConnection();
      pc.createDataChannel("x");
      pc.addTransceiver("audio");
      return (await pc.createOffer()).sdp;
    });
    console.log(await refused(await post(offer.replace(/a=ice-pwd:.*\r\n/g, "")), 400));
    console.log(await refused(await post(offer.replace(/a=fingerprint:.*\r\n/g, "")), 400));

    // A wrong fingerprint is found out in DTLS: the call never opens and is counted.
    const wrong = await page.evaluate(async ({ url }) => {
      const pc = new RTCPeerConnection();
      pc.createDataChannel("x");
      await pc.setLocalDescription(await pc.createOffer());
      const sdp = pc.localDescription.sdp.replace(/(a=fingerprint:sha-256 )\S+/, `$1${Array(32).fill("AB").join(":")}`);
      const response = await fetch(`${url}/v1/realtime/calls?model=echo`, { method: "POST", headers: { "Content-Type": "application/sdp" }, body: sdp });
      await pc.setRemoteDescription({ type: "answer", sdp: await response.text() });
      return response.status;
    }, { url: servers.url });
    assert.equal(wrong, 201);
    const mismatches = 'fronthaul_edge_sessions_closed_total{reason="fingerprint_mismatch"}';
    await until("the wrong fingerprint", async () => (await servers.metrics()).edge[mismatches] >= 1);

    await page.evaluate(() => window.call.send("still here"));
    await until("the running call", () => page.evaluate(() => window.call.events.some(({ data }) => data === "still here")));
    assert.ok(servers.alive());
  } catch (error) {
    console.error(servers.logs());
    throw error;
  } finally {
    await close();
  }
});
