// DTLS inside STUN with a real Chromium: it is used, it saves the round trips that it is there for, and what a middlebox takes
// out of offer or answer stops no call.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { chain, depths } from "../rtt/count.mjs";
import { openHarness } from "./lib/browser.mjs";
import { startProxy, startServers, until } from "./lib/servers.mjs";
import { silence } from "./lib/speech.mjs";

const WAY_MS = 50;
const SPED = "--force-fieldtrials=WebRTC-IceHandshakeDtls/Enabled/";
const PQC_OFF = "--disable-features=WebRtcPqcForDtls";

let servers;
before(async () => (servers = await startServers()));
after(() => servers.stop());

const handshakes = async () => {
  const { edge } = await servers.metrics();
  const of = (kind) => edge[`fronthaul_edge_handshakes_total{kind="${kind}"}`] ?? 0;
  return { sped: of("sped"), plain: of("plain") };
};

/** One echo call; `strip` names descriptions that lose their ice-options on the way. */
async function call(args, strip = []) {
  const proxy = await startProxy(servers.media, { delayMs: WAY_MS });
  const { page, close } = await openHarness(silence(1), { args });
  try {
    const before = await handshakes();
    await page.evaluate((strip) => {
      const without = (sdp) => sdp.replace(/^a=ice-options:.*\r\n/gm, "");
      const post = window.fetch;
      window.fetch = (url, init) => post(url, strip.includes("offer") ? { ...init, body: without(init.body) } : init);
      const apply = RTCPeerConnection.prototype.setRemoteDescription;
      RTCPeerConnection.prototype.setRemoteDescription = function ({ type, sdp }) {
        window.applied = performance.timeOrigin + performance.now();
        return apply.call(this, { type, sdp: strip.includes("answer") ? without(sdp) : sdp });
      };
    }, strip);
    await page.evaluate((options) => window.call.connect(options), { url: servers.url, model: "echo", port: proxy.port });
    await page.evaluate(() => window.call.send("said"));
    await until("the echoed message", () => page.evaluate(() => window.call.events.some(({ data }) => data === "said")));
    const { applied, connected, stats } = await page.evaluate(async () => ({
      applied: window.applied,
      connected: performance.timeOrigin + window.call.marks.connected,
      stats: await window.call.stats(),
    }));
    // Counted a few times per second.
    const counted = await until("the handshake in the metrics", async () => {
      const now = await handshakes();
      return now.sped + now.plain > before.sped + before.plain && { sped: now.sped - before.sped, plain: now.plain - before.plain };
    });
    const packets = proxy.packets().filter(({ t_us, edge_us }) => Math.max(t_us, edge_us) >= applied * 1000);
    const [roundTrips] = depths(chain(packets), applied * 1000, [connected * 1000 + 100]);
    const { tlsVersion } = stats.find(({ type }) => type === "transport");
    console.log(`connected after ${roundTrips} round trips, ${(connected - applied).toFixed(0)} ms; ${JSON.stringify(counted)}`);
    await page.evaluate(() => window.call.hangUp());
    return { roundTrips, counted, tlsVersion, packets };
  } catch (error) {
    console.error(servers.logs());
    throw error;
  } finally {
    await close();
    await proxy.stop();
  }
}

test("with SPED Chromium is connected after one round trip", async () => {
  const { roundTrips, counted, tlsVersion, packets } = await call([SPED, PQC_OFF]);
  assert.deepEqual(counted, { sped: 1, plain: 0 });
  assert.equal(tlsVersion, "FEFC");
  assert.equal(roundTrips, 1);
  const flight = packets.find(({ dir, records }) => dir === "down" && records?.includes("server_hello"));
  assert.equal(flight.kind, "stun", "our flight rides on a response");
});

test("with SPED a post-quantum ClientHello costs a check, not a round trip", async () => {
  const { roundTrips, counted, packets } = await call([SPED]);
  assert.deepEqual(counted, { sped: 1, plain: 0 });
  assert.ok(roundTrips <= 2, `${roundTrips} round trips`);
  const flights = packets.filter(({ dir, records }) => dir === "down" && records?.includes("server_hello"));
  assert.ok(flights.length > 0 && flights.every(({ kind }) => kind === "stun"), "no HelloRetryRequest by itself");
});

test("without SPED Chromium is connected after two round trips", async () => {
  const { roundTrips, counted } = await call([]);
  assert.deepEqual(counted, { sped: 0, plain: 1 });
  assert.ok(roundTrips <= 2, `${roundTrips} round trips`);
});

for (const strip of [["offer"], ["answer"], ["offer", "answer"]]) {
  test(`ice-options lost from ${strip.join(" and ")} cost a browser with SPED no more than one without`, async () => {
    const { roundTrips } = await call([SPED], strip);
    assert.ok(roundTrips <= 2, `${roundTrips} round trips`);
  });
}
