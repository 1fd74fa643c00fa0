// A stock Chromium tells the edge packet by packet what it heard: transport-wide feedback for audio.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openHarness } from "./lib/browser.mjs";
import { sleep, startServers, until } from "./lib/servers.mjs";
import { concat, prompt, silence } from "./lib/speech.mjs";

let servers;
before(async () => (servers = await startServers()));
after(() => servers.stop());

const count = async () => (await servers.metrics()).edge.fronthaul_edge_feedback_total;

test("feedback comes at least each 250 ms while audio does, and none before", async () => {
  const { page, close } = await openHarness(concat(silence(1), prompt("vm-intro")));
  try {
    assert.equal(await count(), 0);
    await page.evaluate((options) => window.call.connect(options), { url: servers.url, model: "echo" });
    await until("the first feedback", async () => (await count()) > 0);
    await sleep(1000);
    const from = await count();
    await sleep(4000);
    const messages = (await count()) - from;
    const stats = await page.evaluate(() => window.call.stats());
    const audio = stats.find(({ type, kind }) => type === "inbound-rtp" && kind === "audio");
    const buffered = (1000 * audio.jitterBufferDelay) / audio.jitterBufferEmittedCount;
    console.log(`${messages} messages in 4 s; the jitter buffer holds ${buffered.toFixed(0)} ms; of ${audio.packetsReceived} packets ${audio.packetsDiscarded} are discarded`);
    // Metrics are published each second.
    assert.ok(messages >= 12, `${messages} in 4 s`);
    assert.equal(audio.packetsLost, 0);
    await page.evaluate(() => window.call.hangUp());
  } catch (error) {
    console.error(servers.logs());
    throw error;
  } finally {
    await close();
  }
});
