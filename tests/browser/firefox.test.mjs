// fronthaul.js in Firefox: the same module, whose statistics, devices and ICE differ from Chromium's.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openFirefox, ownAddress } from "./lib/firefox.mjs";
import { startProxy, startServers, udpPort, until } from "./lib/servers.mjs";

// Firefox pairs with no loopback address as long as there is another.
const address = ownAddress();
let servers;
let proxy;
let port;
let browser;
before(async () => {
  port = await udpPort();
  servers = await startServers({ host: address, edge: `public = ["${address}:${port}"]` });
  proxy = await startProxy(servers.media, { port, host: address });
  browser = await openFirefox();
});
after(async () => {
  await browser?.close();
  await proxy?.stop();
  await servers.stop();
});

/** Makes the page's call, `ours`, with its events in `seen`. */
const make = (options) =>
  browser.page.evaluate(
    async (options) => {
      const { Call } = await import(`${options.url}/fronthaul.js`);
      const call = (window.ours = new Call(options));
      const seen = (window.seen = []);
      for (const type of ["state", "event", "reconnected", "error", "playout", "microphone"]) {
        call.addEventListener(type, ({ detail }) => seen.push({ type, detail: type === "microphone" ? detail.label : detail }));
      }
    },
    { url: servers.url, ...options },
  );

const saw = (type, name) =>
  until(`${type} ${name ?? ""}`, () => browser.page.evaluate((type, name) => window.seen.some((one) => one.type === type && (!name || one.detail.type === name)), type, name), {
    ms: 20_000,
  });
const errors = () => browser.page.evaluate(() => window.seen.filter(({ type }) => type === "error").map(({ detail }) => detail.message));

async function gone() {
  await browser.page.evaluate(() => window.ours.close());
  await until("the call's end at the edge", async () => {
    const { edge } = await servers.metrics();
    return edge.fronthaul_edge_sessions === 0 && edge.fronthaul_edge_pending_sessions === 0;
  });
}

const logged = (name, work) =>
  test(name, async () => {
    try {
      await work();
    } catch (error) {
      console.error(await browser.page.evaluate(() => JSON.stringify(window.seen)).catch(() => ""), servers.logs());
      throw error;
    }
  });

logged("Firefox connects, hears events, mutes and hangs up", async () => {
  await make({ model: "parrot" });
  await browser.page.evaluate(() => window.ours.connect().then(() => {}));
  await saw("event", "session.created");
  await browser.page.evaluate(() => window.ours.send({ type: "session.update", session: { instructions: "Be brief." } }));
  await saw("event", "session.updated");
  const audio = () => proxy.packets().filter(({ dir, kind }) => dir === "up" && kind === "srtp").length;
  await until("the microphone's audio", () => audio() > 20);
  const muted = await browser.page.evaluate(() => [window.ours.mute(), window.ours.microphone.enabled, window.ours.mute(false), window.ours.microphone.enabled]);
  assert.deepEqual(muted, [true, false, false, true]);
  assert.deepEqual(await errors(), []);
  await gone();
  assert.equal(await browser.page.evaluate(() => window.ours.state), "idle");
});

logged("Firefox tells the delay of what it plays, and the server takes it", async () => {
  await make({ model: "echo" });
  await browser.page.evaluate(() => window.ours.connect().then(() => {}));
  await saw("playout");
  const delays = await browser.page.evaluate(() => window.seen.filter(({ type }) => type === "playout").map(({ detail }) => detail.delayMs));
  assert.ok(delays[0] > 0 && delays[0] < 2000, delays.join());
  assert.deepEqual(await errors(), []);
  await gone();
});

logged("in Firefox a warm call does nothing at the click but put in the microphone", async () => {
  await make({ model: "parrot" });
  assert.equal(await browser.page.evaluate(() => window.ours.prepare()), true);
  const before = proxy.packets().length;
  const audio = (from) => proxy.packets().slice(from).filter(({ dir, kind }) => dir === "up" && kind === "srtp").length;
  const clicked = await browser.page.evaluate(async () => {
    performance.clearResourceTimings();
    await window.ours.connect();
    return {
      posts: performance.getEntriesByType("resource").filter(({ name }) => name.includes("/v1/realtime")).length,
      warm: window.ours.timings.warm,
      sends: window.ours.peerConnection.getSenders()[0].track === window.ours.microphone,
    };
  });
  assert.deepEqual(clicked, { posts: 0, warm: true, sends: true });
  await until("the microphone's audio", () => audio(before) > 10);
  await gone();
});

logged("Firefox finds a path that went away and came back, in the same call", async () => {
  await make({ model: "parrot" });
  await browser.page.evaluate(() => window.ours.connect().then(() => {}));
  await saw("event", "session.created");
  await proxy.stop();
  await until("the page's notice", () => browser.page.evaluate(() => window.ours.state === "reconnecting"));
  proxy = await startProxy(servers.media, { port, host: address });
  await until("the repaired call", () => browser.page.evaluate(() => window.ours.state === "connected"), { ms: 30_000 });
  const told = await browser.page.evaluate(() => window.seen.find(({ type }) => type === "reconnected").detail);
  console.log(`back after ${told.ms.toFixed(0)} ms, ${told.kept ? "the same call" : "a new call"}: ${told.why}`);
  assert.equal(told.kept, true, "the same call");
  await browser.page.evaluate(() => window.ours.send({ type: "session.update", session: {} }));
  await saw("event", "session.updated");
  await gone();
});

logged("in Firefox a later offer restarts ICE in the same call", async () => {
  await make({ model: "parrot" });
  await browser.page.evaluate(() => window.ours.connect().then(() => {}));
  await saw("event", "session.created");
  await browser.page.evaluate(() => window.ours.restart());
  const told = await browser.page.evaluate(() => window.seen.find(({ type }) => type === "reconnected").detail);
  assert.equal(told.kept, true, "the same call");
  assert.equal(await browser.page.evaluate(() => window.ours.state), "connected");
  await gone();
});
