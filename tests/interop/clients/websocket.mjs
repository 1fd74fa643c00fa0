// Node.js apps over a WebSocket: on @openai/agents-realtime, and on the realtime client of openai.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { OpenAIRealtimeWebSocket, RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import { z } from "zod";
import { sleep, until } from "../../browser/lib/servers.mjs";
import { inOrder, npmVersion, run } from "../lib/client.mjs";
import { KEY, MODEL } from "../lib/edge.mjs";
import { openMicrophone, said } from "../lib/speech.mjs";
import { untyped } from "../lib/typed.mjs";

const WEASELS = said("tt-weasels");
/** What an SDK hears of each spoken turn, in this order. */
const SPOKEN = ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "input_audio_buffer.committed"];

export const agents = () =>
  run({ name: "@openai/agents-realtime over WebSocket", version: npmVersion("@openai/agents-realtime") }, async (step, edge) => {
    const seen = [];
    const note = (type, event = {}) => seen.push({ ...event, type, at: performance.now() });
    const asked = [];
    const weather = tool({
      name: "get_weather",
      description: "The weather of a city.",
      parameters: z.object({ city: z.string() }),
      execute: async ({ city }) => {
        asked.push(city);
        return `It is sunny in ${city}.`;
      },
    });
    const agent = new RealtimeAgent({ name: "Tester", instructions: "Be brief.", tools: [weather] });
    const transport = new OpenAIRealtimeWebSocket({ url: `${edge.url.replace("http", "ws")}/v1/realtime?model=${MODEL}` });
    const session = new RealtimeSession(agent, { transport, model: MODEL });
    const errors = [];
    const played = [];
    transport.on("*", (event) => note(event.type, event));
    session.on("audio", ({ data }) => played.push(data.byteLength));
    session.on("audio_interrupted", () => note("session.audio_interrupted"));
    session.on("error", ({ error }) => errors.push(error));
    const came = (type, count = 1) => until(`${type} (${count})`, () => seen.filter((event) => event.type === type).length >= count, { ms: 20_000 });
    /** What the app shows of the conversation: who, and their words. */
    const words = () =>
      session.history.flatMap(({ type, role, content }) => (type === "message" ? content.map((part) => [role, part.transcript ?? part.text]) : []));
    const shows = (role, text) => until(`${role}: ${text}`, () => words().some(([who, what]) => who === role && what?.includes(text)), { ms: 20_000 });

    await step("connects", async () => {
      await session.connect({ apiKey: KEY });
      await came("session.updated");
    });
    await step("a written turn is answered, in sound and words", async () => {
      session.sendMessage("Hello.");
      await shows("assistant", "Hello, what can I do for you?");
      await came("response.output_audio.done");
      assert.ok(sum(played) > 24 * 2 * 1400, `${sum(played)} bytes of 1.5 s`);
      // It is played; what is said into it would end it.
      await sleep(sum(played) / 48);
    });
    const microphone = openMicrophone((chunk) => session.sendAudio(new Uint8Array(chunk).buffer));
    try {
      await step("a spoken turn is heard and answered", async () => {
        played.length = 0;
        microphone.say(WEASELS);
        await shows("user", "Weasels have eaten our phone system.");
        await until("a second of the answer", () => sum(played) > 24 * 2 * 1000, { ms: 20_000 });
        inOrder(seen, [...SPOKEN, "response.created", "response.output_audio.delta"]);
      });
      await step("talking into the answer ends it, at what was played", async () => {
        const began = seen.findLast(({ type }) => type === "response.created").at;
        const { item_id } = seen.findLast(({ type }) => type === "response.output_audio.delta");
        microphone.say(WEASELS);
        await came("session.audio_interrupted");
        const truncated = (event) => event.type === "conversation.item.truncated" && event.item_id === item_id;
        const cut = await until("conversation.item.truncated", () => seen.find(truncated), { ms: 20_000 });
        assert.ok(cut.audio_end_ms <= cut.at - began, `cut at ${cut.audio_end_ms} ms, ${cut.at - began} ms after its start`);
        const done = seen.filter(({ type }) => type === "response.done").at(-1).response;
        assert.equal(done.status, "cancelled");
        assert.equal(done.status_details.reason, "turn_detected");
        return { audio_end_ms: cut.audio_end_ms };
      });
      await step("a tool is called, and its result is told", async () => {
        await shows("assistant", "It is sunny in Rome");
        assert.deepEqual(asked, ["Rome"]);
      });
      await step("no event is generic or an error to it", async () => {
        assert.deepEqual(untyped(seen.filter(({ event_id }) => event_id)), []);
        assert.deepEqual(errors, []);
      });
    } finally {
      microphone.close();
      session.close();
    }
    return seen.filter(({ event_id }) => event_id);
  });

export const openai = () => {
  const folder = mkdtempSync(join(tmpdir(), "fronthaul-interop-"));
  const [cert, key] = ["tls.crt", "tls.key"].map((name) => join(folder, name));
  const subject = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=edge.test -addext subjectAltName=IP:127.0.0.1";
  execFileSync("openssl", [...subject.split(" "), "-keyout", key, "-out", cert], { stdio: "ignore" });
  // The client insists on TLS.
  const tables = `[tls]\nmode = "files"\ncert = "${cert}"\nkey = "${key}"\n`;
  return run({ name: "openai (npm) realtime client", version: npmVersion("openai"), edge: { tables } }, async (step, edge) => {
    const ca = readFileSync(cert);
    const client = new OpenAI({ apiKey: KEY, baseURL: `${edge.url.replace("http:", "https:")}/v1` });
    const seen = [];
    const errors = [];
    const realtime = new OpenAIRealtimeWS({ model: MODEL, options: { ca } }, client);
    realtime.on("event", (event) => seen.push({ ...event, at: performance.now() }));
    realtime.on("error", (error) => errors.push(error));
    const came = (type, count = 1) =>
      until(`${type} (${count})${errors.join()}`, () => seen.filter((event) => event.type === type).length >= count, { ms: 20_000 });
    const last = (type) => seen.findLast((event) => event.type === type);
    const heard = (response) => {
      const deltas = seen.filter(({ type, response_id }) => type === "response.output_audio.delta" && response_id === response);
      return sum(deltas.map(({ delta }) => Buffer.from(delta, "base64").length));
    };
    let microphone;
    try {
      await step("connects over TLS", async () => {
        await came("session.created");
        const input = { transcription: { model: "gpt-4o-mini-transcribe" }, turn_detection: { type: "server_vad" } };
        const parameters = { type: "object", properties: { city: { type: "string" } } };
        const tools = [{ type: "function", name: "get_weather", description: "The weather of a city.", parameters }];
        realtime.send({ type: "session.update", session: { type: "realtime", audio: { input }, tools } });
        await came("session.updated");
      });
      await step("a written turn is answered in writing", async () => {
        const content = [{ type: "input_text", text: "Hello." }];
        realtime.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
        realtime.send({ type: "response.create", response: { output_modalities: ["text"] } });
        await came("response.done");
        assert.equal(last("response.output_text.done").text, "Hello, what can I do for you?");
      });
      microphone = openMicrophone((chunk) => realtime.send({ type: "input_audio_buffer.append", audio: chunk.toString("base64") }));
      await step("a spoken turn is heard and answered", async () => {
        microphone.say(WEASELS);
        await came("conversation.item.input_audio_transcription.completed");
        assert.equal(last("conversation.item.input_audio_transcription.completed").transcript, "Weasels have eaten our phone system.");
        await came("response.created", 2);
        const { id } = last("response.created").response;
        await until("a second of the answer", () => heard(id) > 24 * 2 * 1000, { ms: 20_000 });
        inOrder(seen, [...SPOKEN, "response.created", "response.output_audio.delta"]);
      });
      await step("talking into the answer ends it, and the app truncates", async () => {
        const { item_id } = last("response.output_audio.delta");
        microphone.say(WEASELS);
        await came("input_audio_buffer.speech_started", 2);
        realtime.send({ type: "conversation.item.truncate", item_id, content_index: 0, audio_end_ms: 1500 });
        await came("conversation.item.truncated");
        await came("response.done", 2);
        assert.deepEqual([last("response.done").response.status, last("response.done").response.status_details.reason], ["cancelled", "turn_detected"]);
        assert.equal(last("conversation.item.truncated").audio_end_ms, 1500);
      });
      await step("a tool is called, and its result is told", async () => {
        await came("response.function_call_arguments.done");
        const { call_id, arguments: given } = last("response.function_call_arguments.done");
        assert.deepEqual(JSON.parse(given), { city: "Rome" });
        await came("response.done", 3);
        realtime.send({ type: "conversation.item.create", item: { type: "function_call_output", call_id, output: "It is sunny in Rome." } });
        realtime.send({ type: "response.create" });
        await came("response.done", 4);
        assert.match(last("response.output_audio_transcript.done").transcript, /^It is sunny in Rome/);
        assert.deepEqual(errors, []);
      });
    } finally {
      microphone?.close();
      realtime.close();
    }
    return seen;
  }).finally(() => rmSync(folder, { recursive: true, force: true }));
};

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
