// Step a: the edge alone answers a stock Chromium.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openHarness } from "./lib/browser.mjs";
import { sleep, startServers, until } from "./lib/servers.mjs";
import { concat, fromRecording, median, prompt, silence, spans, windows } from "./lib/speech.mjs";

let servers;
before(async () => (servers = await startServers()));
after(() => servers.stop());

const said = prompt("vm-intro");

test("echo returns speech and channel messages over DTLS 1.3", async () => {
  const { page, close } = await openHarness(concat(silence(1), said));
  try {
    const call = await page.evaluate((options) => window.call.connect(options), { url: servers.url, model: "echo" });
    assert.match(call.location, /^\/v1\/realtime\/calls\/rtc_[0-9a-f]{16}$/);

    const created = await until("session.created", () => page.evaluate(() => window.call.events[0]?.data));
    assert.equal(JSON.parse(created).type, "session.created");
    assert.equal(JSON.parse(created).session.model, "echo");

    const message = JSON.stringify({ type: "anything", text: "ünïcode".repeat(1000) });
    await page.evaluate((text) => window.call.send(text), message);
    assert.equal(await until("the echoed message", () => page.evaluate(() => window.call.events[1]?.data)), message);

    await sleep(1000 * (1 + said.length / 16000 + 0.7));
    const stats = await page.evaluate(() => window.call.stats());
    const transport = stats.find(({ type }) => type === "transport");
    assert.equal(transport.tlsVersion, "FEFC");
    console.log(`protection ${transport.srtpCipher}, ${transport.dtlsCipher}, channel open after ${call.opened.toFixed(0)} ms`);

    const [, heard] = (await page.evaluate(() => window.call.recording())).map(fromRecording);
    const [reply] = spans(heard);
    const same = windows(heard, reply.from, said, 0, said.length).map(({ correlation }) => correlation);
    console.log(`correlation by window: ${same.map((value) => value.toFixed(2)).join(" ")}`);
    assert.ok(median(same) >= 0.7, `median correlation ${median(same)}`);
    await page.evaluate(() => window.call.hangUp());
  } catch (error) {
    console.error(servers.logs());
    throw error;
  } finally {
    await close();
  }
});
