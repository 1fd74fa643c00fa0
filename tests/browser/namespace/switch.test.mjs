// Chromium on a machine with two networks loses the one it talks over in the middle of a call. Run by tests/run in the network
// namespace of that machine: `eth0` and `wlan0` both lead to the edge, which is in the namespace EDGE at ADDRESS.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { openHarness } from "../lib/browser.mjs";
import { sleep, until } from "../lib/servers.mjs";
import { concat, prompt } from "../lib/speech.mjs";

const { ADDRESS, EDGE, FRONTHAUL_BIN } = process.env;
const folder = mkdtempSync(join(tmpdir(), "fronthaul-switch-"));
const url = `http://${ADDRESS}:8080`;
const said = prompt("tt-weasels");

let up;
let log = "";
before(async () => {
  assert.ok(ADDRESS && EDGE, "tests/run makes the namespaces and names them");
  const edge = [join(FRONTHAUL_BIN, "fronthaul"), "up", "--advertise", ADDRESS, "--state-dir", folder, "--edge-set", "auth.open=true"];
  up = spawn("ip", ["netns", "exec", EDGE, ...edge]);
  up.stdout.on("data", (text) => (log += text));
  up.stderr.on("data", (text) => (log += text));
  await until("the page", async () => (await fetch(url)).ok);
});
after(async () => {
  up.kill("SIGTERM");
  await new Promise((resolve) => up.once("exit", resolve));
  rmSync(folder, { recursive: true, force: true });
});

const plain = (page) => page.evaluate((options) => window.call.connect(options), { url, model: "echo" });

const link = (...args) => execFileSync("ip", ["link", "set", ...args]);

/** Gives `eth0` back, with the routes that went with it. */
function heal() {
  link("eth0", "up");
  execFileSync("ip", ["route", "replace", "default", "via", "198.51.100.1", "dev", "eth0", "metric", "100"]);
}

/** Calls `echo`, takes `eth0` away, and gives how long the page heard nothing, in ms, and what its transport became. */
async function lose({ connect = plain, recover = async () => {} }) {
  const { page, close } = await openHarness(concat(...Array.from({ length: 8 }, () => said)), { loopback: false });
  try {
    await connect(page);
    await page.evaluate(() => window.call.watch());
    await sleep(4000);
    const before = await transport(page);
    assert.match(before.local, /^198\.51\.100\.2$/, "it talks over eth0 first");
    link("eth0", "down");
    const at = Date.now();
    await recover(page);
    await sleep(6000 - (Date.now() - at));
    const counts = await page.evaluate(() => window.call.counts);
    const now = await transport(page);
    await page.evaluate(() => window.call.hangUp());
    return { gap: longest(counts, at), before, now };
  } catch (error) {
    console.error(log);
    throw error;
  } finally {
    heal();
    await close();
  }
}

/** The longest time without a further packet that began or lasted after `at`. */
function longest(counts, at) {
  let gap = 0;
  let since = counts[0][0];
  counts.forEach(([time, packets], n) => {
    if (n === 0 || packets > counts[n - 1][1]) since = time;
    if (time > at) gap = Math.max(gap, time - since);
  });
  return gap;
}

async function transport(page) {
  const stats = await page.evaluate(() => window.call.stats());
  const transport = stats.find(({ type }) => type === "transport");
  const pair = stats.find(({ id }) => id === transport.selectedCandidatePairId);
  const local = stats.find(({ id }) => id === pair.localCandidateId);
  return { local: local.address, dtls: transport.dtlsState, changes: transport.selectedCandidatePairChanges };
}

function judge(name, { gap, before, now }, most) {
  console.log(`${name}: silent for ${gap.toFixed(0)} ms; ${before.local} -> ${now.local}, DTLS ${now.dtls}`);
  assert.equal(now.local, "203.0.113.2");
  assert.equal(now.dtls, "connected");
  assert.ok(gap <= most, `silent for ${gap} ms`);
  assert.equal(log.match(/call answered/g)?.length ?? 1, calls, "the same call");
}

let calls = 0;

test("Chromium goes on over its other network by itself", async () => {
  calls += 1;
  judge("by itself", await lose({}), 3500);
});

test("Chromium goes on sooner when the page restarts ICE by a later offer", async () => {
  calls += 1;
  const recover = (page) =>
    page.evaluate(async (url) => {
      for (let n = 0; ; n++) {
        try {
          return await window.call.restart(url, 400);
        } catch (error) {
          if (n === 20) throw error;
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
      }
    }, url);
  judge("with an ICE restart", await lose({ recover }), 1500);
});

test("a page with fronthaul.js notices by itself and goes on in the same call", async () => {
  calls += 1;
  const connect = (page) => page.evaluate((options) => window.call.connectModule(options), { url, model: "echo" });
  judge("with fronthaul.js", await lose({ connect }), 1500);
});
