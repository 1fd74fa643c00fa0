// The client's NAT gives it another port in mid-call: Chromium and Firefox.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openHarness } from "./lib/browser.mjs";
import { openFirefox, ownAddress } from "./lib/firefox.mjs";
import { startNat } from "./lib/nat.mjs";
import { sleep, startServers, until } from "./lib/servers.mjs";
import { inTime } from "./lib/times.mjs";
import { concat, prompt } from "./lib/speech.mjs";

const BEFORE_MS = 4000;
const AFTER_MS = 8000;

let servers;
before(async () => (servers = await startServers()));
after(() => servers.stop());

const received = async () => (await servers.metrics()).edge.fronthaul_edge_media_received_total;

/** Calls `echo` through a NAT, changes its port twice, and measures around each change. */
async function measure(page, address = "127.0.0.1") {
  const nat = await startNat(servers.media, { inner: address });
  try {
    await page.evaluate((options) => window.call.connect(options), { url: servers.url, model: "echo", port: nat.port, address });
    await until("echoed audio", () => nat.log.some(({ dir, kind }) => dir === "down" && kind === "srtp"), { ms: 20_000 });
    const found = [];
    for (let change = 0; change < 2; change++) {
      await sleep(BEFORE_MS);
      const rebound = await nat.rebind();
      await sleep(AFTER_MS);
      found.push({ ...rebound, log: [...nat.log] });
    }
    const state = await page.evaluate(() => window.call.pc.connectionState);
    await page.evaluate(() => window.call.hangUp());
    return { found, state, log: nat.log };
  } finally {
    nat.stop();
  }
}

/** Asserts what does not depend on time, and gives how long each change was felt. */
function judge(name, { found, state, log }) {
  assert.equal(state, "connected");
  const times = {};
  for (const [n, { at, port, log: seen }] of found.entries()) {
    const audio = seen.filter(({ kind }) => kind === "srtp");
    const up = audio.filter((packet) => packet.dir === "up" && packet.port === port);
    const down = audio.filter((packet) => packet.dir === "down" && packet.port === port);
    const last = audio.findLast((packet) => packet.dir === "down" && packet.at < at);
    assert.ok(up.length && down.length, `${up.length} packets up and ${down.length} down on the new port`);
    // The edge echoes what it hears at once: the echo's gap is the uplink's, as the edge hears it.
    const gap = down[0].at - last.at;
    const downlink = down[0].at - up[0].at;
    const checks = seen.filter(({ kind, stun, dir, port: on }) => kind === "stun" && stun === "request" && dir === "up" && on === port);
    const plain = checks.filter(({ nominates }) => !nominates);
    console.log(
      `${name}: uplink heard again after ${gap.toFixed(0)} ms, downlink on the new port ${downlink.toFixed(0)} ms after its ` +
        `first packet; ${checks.length} checks there, ${plain.length} of them without USE-CANDIDATE, the first after ` +
        `${checks.length ? (checks[0].at - at).toFixed(0) : "-"} ms`,
    );
    Object.assign(times, { [`uplink away at change ${n}`]: [gap, 100], [`downlink behind the uplink at change ${n}`]: [downlink, 200] });
    assert.ok(down.length >= 0.9 * up.length, `${down.length} of ${up.length} packets came back`);
    assert.ok(checks.length > 0, "the client checks the new port");
  }
  const answered = new Set(log.filter(({ stun }) => stun === "response").map(({ id }) => id));
  const asked = log.filter(({ stun, dir, at }) => stun === "request" && dir === "up" && at < log.at(-1).at - 500);
  const open = asked.filter(({ id }) => !answered.has(id));
  // What was under way to the former port when it closed is lost.
  assert.ok(open.length <= 2, `${open.length} of ${asked.length} checks were not answered`);
  return times;
}

test("Chromium is followed when its NAT changes its port", () =>
  inTime(async () => {
    const said = prompt("tt-weasels");
    const { page, close } = await openHarness(concat(...Array.from({ length: 8 }, () => said)));
    try {
      const before = await received();
      const times = judge("Chromium", await measure(page));
      assert.ok((await received()) > before);
      return times;
    } catch (error) {
      console.error(servers.logs());
      throw error;
    } finally {
      await close();
    }
  }));

test("Firefox is followed when its NAT changes its port", () =>
  inTime(async () => {
    const { page, close } = await openFirefox();
    try {
      return judge("Firefox", await measure(page, ownAddress()));
    } catch (error) {
      console.error(servers.logs());
      throw error;
    } finally {
      await close();
    }
  }));
