// Apps in Chromium and Firefox over WebRTC: on @openai/agents-realtime, and as the API's documentation has them.

import assert from "node:assert/strict";
import { sleep, until } from "../../browser/lib/servers.mjs";
import { inOrder, npmVersion } from "../lib/client.mjs";
import { KEY } from "../lib/edge.mjs";
import { came, seenBy, withPage } from "../lib/pages.mjs";
import { untyped } from "../lib/typed.mjs";

const TURN = ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "input_audio_buffer.committed", "conversation.item.added"];
const REPLY = [
  ...["response.created", "conversation.item.added", "response.output_item.added", "response.content_part.added"],
  ...["response.output_audio.done", "response.content_part.done", "response.output_item.done", "response.done"],
];
const CUT = ["output_audio_buffer.cleared", "conversation.item.truncated"];

/** What the app shows of the conversation. */
const shows = (page, who, text) =>
  until(
    `${who}: ${text}`,
    async () =>
      (await page.evaluate(() => window.app.history())).some(
        ({ type, role, content }) => type === "message" && role === who && content.some((part) => (part.transcript ?? part.text)?.includes(text)),
      ),
    { ms: 20_000 },
  );

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
      inOrder(await seenBy(page), [...TURN, ...REPLY.slice(0, 4)]);
    });
    await step("talking into the reply ends it, at what was played", async () => {
      await came(page, "conversation.item.truncated");
      const seen = await seenBy(page);
      inOrder(seen, ["output_audio_buffer.started", "input_audio_buffer.speech_started", ...REPLY.slice(4), ...CUT]);
      const at = (type, from = 0) => seen.findIndex((event, index) => index >= from && event.type === type);
      const started = at("output_audio_buffer.started");
      const cut = seen[at("conversation.item.truncated", started)];
      const played = seen[at("output_audio_buffer.cleared", started)].at - seen[started].at;
      // It pauses until it is sure that it is interrupted, and what was not played does not count.
      const paused = played - cut.detail.audio_end_ms;
      assert.ok(paused > -100 && paused < 800, `cut at ${cut.detail.audio_end_ms} ms, ${played} ms after its start`);
      return { audio_end_ms: cut.detail.audio_end_ms, between_events_ms: Math.round(played) };
    });
    await step("the second sentence is answered by a call of a tool, and its result is told", async () => {
      await came(page, "session.agent_tool_end");
      assert.deepEqual((await seenBy(page)).filter(({ type }) => type === "tool").map(({ detail }) => detail), ["Rome"]);
      await shows(page, "user", "What is the weather in Rome?");
      await shows(page, "assistant", "It is sunny in Rome");
    });
    await step("interrupt() in the tail of a reply, which the model is done with, clears what is left", async () => {
      const told = (await seenBy(page)).findLast(({ type }) => type === "response.created").detail.response.id;
      const has = async (probe) => (await seenBy(page)).some(probe);
      await until("the end of the response", () => has(({ type, detail }) => type === "response.done" && detail.response.id === told));
      await came(page, "output_audio_buffer.started", 3);
      await page.evaluate(() => window.app.interrupt());
      await until("it is cleared", () => has(({ type, detail }) => type === "output_audio_buffer.cleared" && detail.response_id === told));
    });
    await step("a written turn is answered", async () => {
      await page.evaluate(() => window.app.text("Hello."));
      await shows(page, "assistant", "Hello, what can I do for you?");
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
    await page.evaluate(() => window.app.close());
  });

export const plain = (browser) =>
  withPage("the documentation's page", "plain", browser, () => "-", async (step, page, edge) => {
    await step("connects with an ephemeral key", async () => {
      const options = { url: edge.url, key: await edge.secret({ type: "realtime", model: "parrot" }), model: "parrot" };
      const { ms, callId } = await page.evaluate((options) => window.app.connect(options), options);
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
      await step("a second one ends the reply, and is answered to the end", async () => {
        await came(page, "output_audio_buffer.stopped");
        inOrder(await seenBy(page), ["input_audio_buffer.speech_started", ...CUT, "output_audio_buffer.stopped"]);
      });
      await step("a pressed key is told", async () => {
        await page.evaluate(() => window.app.press("5"));
        await came(page, "input_audio_buffer.dtmf_event_received");
        assert.equal((await seenBy(page)).find(({ type }) => type === "input_audio_buffer.dtmf_event_received").detail.event, "5");
      });
    }
    await step("the project's key hangs the call up", async () => {
      const id = /rtc_[0-9a-f]{16}/.exec(edge.logs())[0];
      const hungUp = await fetch(`${edge.url}/v1/realtime/calls/${id}/hangup`, { method: "POST", headers: { Authorization: `Bearer ${KEY}` } });
      assert.equal(hungUp.status, 200);
      await until("the end at the client", () => page.evaluate(() => window.app.ended()));
    });
  });
