// How many round trips a stock Chromium waits for our media, counted in the packet log of a delaying proxy.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openHarness } from "./lib/browser.mjs";
import { startProxy, startServers, until } from "./lib/servers.mjs";
import { silence } from "./lib/speech.mjs";

const DELAY_MS = 100;

let servers;
let proxy;
before(async () => {
  servers = await startServers();
  proxy = await startProxy(servers.media, { delayMs: DELAY_MS });
});
after(async () => {
  await proxy?.stop();
  await servers.stop();
});

test("media of ours reaches a stock Chromium within two round trips of its first check", async () => {
  const { page, close } = await openHarness(silence(1));
  try {
    await page.evaluate((options) => window.call.connect(options), { url: servers.url, model: "parrot", port: proxy.port });
    const packets = await until("SRTP from the edge", () => {
      const log = proxy.packets();
      return log.some(({ dir, kind }) => dir === "down" && kind === "srtp") && log;
    });
    const check = packets.find(({ dir, kind }) => dir === "up" && kind === "stun");
    const media = packets.find(({ dir, kind }) => dir === "down" && kind === "srtp");
    const lastFlight = packets.findLast(({ dir, kind, t_us }) => dir === "up" && kind === "dtls" && t_us < media.t_us - DELAY_MS * 1000);
    const final = packets.findLast(({ dir, kind, t_us }) => dir === "down" && kind === "dtls" && t_us <= media.t_us);
    assert.ok(final, "the edge's last DTLS flight came before its media");

    const roundTrips = (media.t_us - check.t_us) / (2 * DELAY_MS * 1000);
    const edge = (media.t_us - lastFlight.t_us) / (2 * DELAY_MS * 1000) - 0.5;
    console.log(
      `first check to first SRTP received: ${roundTrips.toFixed(2)} round trips of ${2 * DELAY_MS} ms; ` +
        `the edge sent it ${(roundTrips - 0.5).toFixed(2)} round trips after the first check left, ` +
        `${((edge - 0.5) * 2 * DELAY_MS).toFixed(1)} ms after the client's last flight reached it`,
    );
    // Half a round trip more would be one more flight: what lies below it is computing, not waiting.
    assert.ok(roundTrips < 2.4, `${roundTrips} round trips`);
  } catch (error) {
    console.error(servers.logs());
    throw error;
  } finally {
    await close();
  }
});
