// Apps in Chromium and Firefox over WebRTC: on @openai/agents-realtime, and as the API's documentation has them.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openBrowser } from "../../browser/lib/browser.mjs";
import { openFirefox, ownAddress } from "../../browser/lib/firefox.mjs";
import { sleep, until } from "../../browser/lib/servers.mjs";
import { concat, prompt, silence, writeWav } from "../../browser/lib/speech.mjs";
import { parseRealtimeEvent } from "../node_modules/@openai/agents-realtime/dist/openaiRealtimeEvents.mjs";
import { inOrder, npmVersion, run } from "../lib/client.mjs";
import { KEY, openEdge } from "../lib/edge.mjs";
import { servePage } from "../lib/pages.mjs";

const TURN = ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "input_audio_buffer.committed", "conversation.item.added"];
const REPLY = ["response.created", "conversation.item.added", "response.output_item.added", "response.content_part.added", "response.output_audio.done", "response.content_part.done", "response.output_item.done", "response.done"];
const SAID = prompt("tt-weasels");
/** Said from the start of the browser: a first sentence, and a second one into the reply. */
const SPEECH = concat(silence(4), SAID, silence(2.2), SAID, silence(30));

/** What an SDK makes of each event: `generic` means that it does nothing with it. */
export function untyped(events) {
  return [...new Set(events.filter((event) => parseRealtimeEvent({ data: JSON.stringify(event) }).isGeneric).map(({ type }) => type))];
}

function wav(pcm) {
  const folder = mkdtempSync(join(tmpdir(), "fronthaul-interop-"));
  writeWav(join(folder, "speech.wav"), pcm);
  const bytes = readFileSync(join(folder, "speech.wav"));
  rmSync(folder, { recursive: true, force: true });
  return bytes;
}

const BROWSERS = {
  chromium: {
    address: "127.0.0.1",
    open: async (url) => {
      const { context, close } = await openBrowser(SPEECH);
      const page = await context.newPage();
      await page.goto(url);
      return { page, close };
    },
  },
  firefox: {
    address: ownAddress(),
    // Its fake microphone hums: what is said is the page's.
    speech: "/speech.wav",
    open: async (url) => {
      const { page, close } = await openFirefox();
      await page.goto(url);
      return { page, close };
    },
  },
};

/** Runs `work(step, page, edge)` with the page of `web/APP.js` in a browser. */
async function withPage(name, app, browser, version, work) {
  const { address, open, speech } = BROWSERS[browser];
  return run({ name: `${name}, ${browser}`, version }, async (step) => {
    const edge = await openEdge({ host: address, edge: `public = ["${address}"]\n` });
    const site = await servePage(app, wav(SPEECH));
    const { page, close } = await open(site.url);
    try {
      await work(step, page, { ...edge, speech: speech && new URL(speech, site.url).href });
    } catch (error) {
      const seen = await page.evaluate(() => JSON.stringify(window.app.seen.map(({ type, detail }) => [type, type.includes("error") ? detail : ""]))).catch(() => "");
      throw new Error(`${error.message}\nthe page saw ${seen}\n${edge.logs()}`, { cause: error });
    } finally {
      await close();
      site.close();
      await edge.stop();
    }
  });
}

const seenBy = (page) => page.evaluate(() => window.app.seen);
const came = (page, type, count = 1, ms = 20_000) =>
  until(`${type} (${count})`, async () => (await seenBy(page)).filter((event) => event.type === type).length >= count, { ms });

export const agents = (browser) =>
  withPage("@openai/agents-realtime over WebRTC", "agents", browser, npmVersion("@openai/agents-realtime"), async (step, page, edge) => {
    const key = await edge.secret();
    await step("connects with an ephemeral key, without waiting for an event", async () => {
      const connected = await page.evaluate((options) => window.app.connect(options), { url: edge.url, key, speech: edge.speech });
      assert.ok(connected.ms < 4000, `${connected.ms} ms: it waited 5 s for session.updated`);
      assert.match(connected.callId, /^rtc_/);
      return { connect_ms: Math.round(connected.ms) };
    });
    await page.evaluate(() => window.app.say?.());
    await step("a spoken turn is answered", async () => {
      await came(page, "output_audio_buffer.started");
      inOrder(await seenBy(page), [...TURN, ...REPLY]);
    });
    await step("talking into the reply ends it, at what was played", async () => {
      await came(page, "conversation.item.truncated");
      const seen = await seenBy(page);
      inOrder(seen, ["output_audio_buffer.started", "input_audio_buffer.speech_started", "output_audio_buffer.cleared", "conversation.item.truncated"]);
      const at = (type, from = 0) => seen.findIndex((event, index) => index >= from && event.type === type);
      const started = at("output_audio_buffer.started");
      const cut = seen[at("conversation.item.truncated", started)];
      const played = seen[at("output_audio_buffer.cleared", started)].at - seen[started].at;
      // It pauses until it is sure that it is interrupted, and what was not played does not count.
      const paused = played - cut.detail.audio_end_ms;
      assert.ok(paused > -100 && paused < 800, `cut at ${cut.detail.audio_end_ms} ms, ${played} ms after its start`);
      return { audio_end_ms: cut.detail.audio_end_ms, between_events_ms: Math.round(played) };
    });
    await step("the second sentence is answered, and interrupt() in its tail clears what is left", async () => {
      await came(page, "output_audio_buffer.started", 2);
      await page.evaluate(() => window.app.interrupt());
      await came(page, "output_audio_buffer.cleared", 2);
    });
    await step("no event is generic or an error to it", async () => {
      const events = (await seenBy(page)).filter(({ detail }) => detail?.event_id).map(({ detail }) => detail);
      assert.deepEqual(untyped(events), []);
      assert.deepEqual(events.filter(({ type }) => type === "error"), []);
      assert.deepEqual((await seenBy(page)).filter(({ type }) => type === "session.error"), []);
      return { events: events.length };
    });
    if (browser === "firefox") {
      await step("the call is there after 90 s", async () => {
        await sleep(90_000);
        assert.equal(await page.evaluate(() => window.app.state()), "connected");
      });
    }
    await step("closes, and nothing is left", async () => {
      await page.evaluate(() => window.app.close());
      await until("the end of the call", async () => (await edge.metrics()).edge.fronthaul_edge_sessions === 0, { ms: 40_000 });
    });
  });

export const plain = (browser) =>
  withPage("the documentation's page", "plain", browser, () => "-", async (step, page, edge) => {
    await step("connects with an ephemeral key", async () => {
      const { ms, callId } = await page.evaluate((options) => window.app.connect(options), { url: edge.url, key: await edge.secret(), model: "parrot" });
      assert.match(callId, /^rtc_/);
      return { connect_ms: Math.round(ms) };
    });
    await step("is told of the session, and that its update counts", async () => {
      await came(page, "session.created");
      await page.evaluate(() => window.app.send({ type: "session.update", session: { type: "realtime", instructions: "Be brief." } }));
      await came(page, "session.updated");
      const updated = (await seenBy(page)).find(({ type }) => type === "session.updated").detail.session;
      assert.equal(updated.instructions, "Be brief.");
      assert.equal(updated.audio.input.turn_detection.interrupt_response, true);
    });
    if (browser === "chromium") {
      await step("a spoken turn is answered", async () => {
        await came(page, "output_audio_buffer.started");
        inOrder(await seenBy(page), [...TURN, ...REPLY]);
      });
    }
    await step("the project's key hangs the call up", async () => {
      const id = /rtc_[0-9a-f]{16}/.exec(edge.logs())[0];
      const hungUp = await fetch(`${edge.url}/v1/realtime/calls/${id}/hangup`, { method: "POST", headers: { Authorization: `Bearer ${KEY}` } });
      assert.equal(hungUp.status, 200);
      await until("the end at the client", () => page.evaluate(() => window.app.ended()));
    });
  });
