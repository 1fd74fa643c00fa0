// pipecat's browser client over its SmallWebRTC transport, in Chromium.

import assert from "node:assert/strict";
import WebSocket from "ws";
import { until } from "../../browser/lib/servers.mjs";
import { inOrder, npmVersion } from "../lib/client.mjs";
import { KEY, MODEL } from "../lib/edge.mjs";
import { came, seenBy, withPage } from "../lib/pages.mjs";

const TRANSPORT = "@pipecat-ai/small-webrtc-transport";

/** The events of a call, by a WebSocket of its app's server. */
async function sideband(edge, call) {
  const events = [];
  const socket = new WebSocket(`${edge.url.replace("http", "ws")}/v1/realtime?call_id=${call}`, { headers: { Authorization: `Bearer ${KEY}` } });
  socket.on("message", (text) => events.push({ ...JSON.parse(text), at: Date.now() }));
  await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
  return { events, send: (event) => socket.send(JSON.stringify(event)), close: () => socket.close() };
}

export const pipecat = () =>
  withPage(TRANSPORT, "pipecat", "chromium", npmVersion(TRANSPORT), async (step, page, edge) => {
    await step("connects to /api/offer with an ephemeral key, a track of the agent's comes", async () => {
      await page.evaluate((options) => window.app.connect(options), { url: edge.url, key: await edge.secret(), model: MODEL });
      await came(page, "connected");
      await came(page, "track");
    });
    const call = (await seenBy(page)).find(({ type }) => type === "bot").detail;
    assert.match(call, /^rtc_/);
    const { events, send, close } = await sideband(edge, call);
    const told = (type) => until(type, () => events.some((event) => event.type === type), { ms: 20_000 });
    const loud = (from) => page.evaluate((from) => window.app.loud.filter(({ at, rms }) => at > from && rms > 0.01).length, from);
    const now = () => page.evaluate(() => performance.now());
    await step("a spoken turn is answered, and heard", async () => {
      const from = await now();
      await told("output_audio_buffer.started");
      await until("half a second of sound", async () => (await loud(from)) >= 20, { ms: 10_000 });
    });
    await step("talking into the reply ends it", async () => {
      await told("conversation.item.truncated");
      inOrder(events, ["output_audio_buffer.started", "input_audio_buffer.speech_started", "output_audio_buffer.cleared", "conversation.item.truncated"]);
      return { audio_end_ms: events.find(({ type }) => type === "conversation.item.truncated").audio_end_ms };
    });
    await step("a tool is called, and the app's server tells its result", async () => {
      await told("response.function_call_arguments.done");
      const { call_id } = events.find(({ type }) => type === "response.function_call_arguments.done");
      await until("the end of the response", () => events.filter(({ type }) => type === "response.done").length >= 2);
      send({ type: "conversation.item.create", item: { type: "function_call_output", call_id, output: "It is sunny in Rome." } });
      send({ type: "response.create" });
      const said = ({ type, transcript }) => type === "response.output_audio_transcript.done" && transcript.startsWith("It is sunny in Rome");
      await until("the result", () => events.some(said), { ms: 20_000 });
    });
    close();
    await step("no error", async () => {
      assert.deepEqual((await seenBy(page)).filter(({ type }) => type === "error"), []);
      assert.deepEqual(events.filter(({ type }) => type === "error"), []);
    });
    await page.evaluate(() => window.app.close());
  });
