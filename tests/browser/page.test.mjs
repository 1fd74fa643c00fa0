// The demo page, as a person uses it. FRONTHAUL_SCREENSHOTS names a folder for pictures of what it looked like.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { openBrowser } from "./lib/browser.mjs";
import { startServers, until } from "./lib/servers.mjs";
import { concat, prompt, silence } from "./lib/speech.mjs";

let servers;
before(async () => (servers = await startServers()));
after(() => servers.stop());

const shoot = async (page, name) => {
  const folder = process.env.FRONTHAUL_SCREENSHOTS;
  if (folder) await page.screenshot({ path: join(folder, `${name}.png`) });
};

async function openPage(pcm, url, options = {}) {
  const { context, close } = await openBrowser(pcm, options);
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(error.message));
  await page.emulateMedia({ colorScheme: options.scheme ?? "light" });
  await page.setViewportSize(options.size ?? { width: 1200, height: 800 });
  await page.goto(url);
  return { page, close, faults, text: (id) => page.locator(`#${id}`).textContent() };
}

test("a visitor connects with a key, talks, sees who speaks and what it took, and hangs up", async () => {
  const said = prompt("auth-incorrect");
  const { page, close, faults, text } = await openPage(concat(silence(2), said, silence(8)), servers.url, { scheme: "dark" });
  try {
    assert.equal(await text("who"), "Not connected");
    await page.keyboard.press("c");
    await until("listening", async () => (await text("who")) === "Listening");
    await until("the visitor's turn", async () => (await text("who")) === "You are speaking");
    await until("the reply", async () => (await text("who")) === "The agent is speaking", { ms: 15_000 });
    await until("its figures", async () => /\d ms/.test(await text("rtt")) && /\d %/.test(await text("loss")));
    await until("the end of its delay", async () => /\d ms/.test(await text("reply")));
    await shoot(page, "speaking-dark");
    const drawn = await page.evaluate(() => {
      const canvas = document.getElementById("strip");
      const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      let colored = 0;
      for (let at = 0; at < pixels.length; at += 4) {
        colored += pixels[at + 3] > 0 && Math.max(...pixels.slice(at, at + 3)) - Math.min(...pixels.slice(at, at + 3)) > 60;
      }
      return colored;
    });
    assert.ok(drawn > 1000, `${drawn} colored pixels in the strip`);
    const figures = await Promise.all(["setup", "rtt", "loss", "reply"].map(text));
    console.log(`set-up ${figures[0]}, round trip ${figures[1]}, loss ${figures[2]}, reply after ${figures[3]}`);
    assert.match(figures[0], /^\d+(\.\d)? ms$/);

    const types = await page.locator("#events summary span").allTextContents();
    assert.equal(types[0], "session.created");
    assert.ok(types.includes("input_audio_buffer.speech_started") && types.includes("response.created"), types.join());
    await page.locator("#events summary").first().click();
    assert.match(await page.locator("#events pre").first().textContent(), /"type": "session.created"/);

    await page.keyboard.press("m");
    assert.equal(await page.locator("#mute").getAttribute("aria-pressed"), "true");
    await page.keyboard.press("Escape");
    assert.equal(await text("who"), "Not connected");
    await until("the call's end at the edge", async () => (await servers.metrics()).edge.fronthaul_edge_sessions === 0);
    assert.deepEqual(faults, []);
  } finally {
    await close();
  }
});

test("on a phone everything fits the width", async () => {
  const { page, close } = await openPage(silence(1), servers.url, { size: { width: 360, height: 740 } });
  try {
    await shoot(page, "phone-light");
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
  } finally {
    await close();
  }
});

test("a refused microphone is said in words", async () => {
  const { page, close } = await openPage(silence(1), servers.url);
  try {
    await page.evaluate(() => {
      navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException("no", "NotAllowedError"));
    });
    await page.click("#call");
    await until("the reason", async () => /Allow it/.test(await page.locator("#problem").textContent()));
    assert.equal(await page.locator("#who").textContent(), "Not connected");
  } finally {
    await close();
  }
});

test("blocked UDP is said in words that name the address", async () => {
  // Nobody answers on the discard port: to the page that is a network that swallows UDP.
  const blocked = await startServers({ edge: 'public = ["127.0.0.1:9"]' });
  const { page, close } = await openPage(silence(1), blocked.url);
  try {
    await page.click("#call");
    await until("the reason", async () => !(await page.locator("#problem").isHidden()), { ms: 15_000 });
    const said = await page.locator("#problem").textContent();
    assert.match(said, /No check reached any advertised address \(UDP 127\.0\.0\.1:9\)/);
    await shoot(page, "udp-blocked");
  } finally {
    await close();
    await blocked.stop();
  }
});
