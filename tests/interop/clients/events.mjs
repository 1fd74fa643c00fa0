// Every kind of event that an edge sends, recorded from sessions, and what the parsers of SDKs make of each; every kind that clients send.

import assert from "node:assert/strict";
import WebSocket from "ws";
import { until } from "../../browser/lib/servers.mjs";
import { npmVersion, run } from "../lib/client.mjs";
import { KEY, MODEL } from "../lib/edge.mjs";
import { ask } from "../lib/python.mjs";
import { openMicrophone, said } from "../lib/speech.mjs";
import { untyped } from "../lib/typed.mjs";

/** What the API has and the edge sends. */
const KINDS = `
  error session.created session.updated
  conversation.item.added conversation.item.done conversation.item.retrieved conversation.item.truncated conversation.item.deleted
  conversation.item.input_audio_transcription.delta conversation.item.input_audio_transcription.completed
  input_audio_buffer.committed input_audio_buffer.cleared input_audio_buffer.speech_started input_audio_buffer.speech_stopped
  input_audio_buffer.timeout_triggered input_audio_buffer.dtmf_event_received
  output_audio_buffer.started output_audio_buffer.stopped output_audio_buffer.cleared
  response.created response.done response.output_item.added response.output_item.done response.content_part.added response.content_part.done
  response.output_text.delta response.output_text.done response.output_audio.delta response.output_audio.done
  response.output_audio_transcript.delta response.output_audio_transcript.done
  response.function_call_arguments.delta response.function_call_arguments.done`.split(/\s+/).filter(Boolean);
/** Sent too, but not brought about by these models: tests of the crate `realtime` read them with types of another crate. */
const UNSEEN = ["rate_limits.updated", "conversation.item.input_audio_transcription.failed"];
/** Kinds of the API that these parsers do not know; what they know they must take. */
const UNKNOWN = {
  agents: ["input_audio_buffer.dtmf_event_received", "input_audio_buffer.timeout_triggered"],
  pipecat: [
    ...["input_audio_buffer.dtmf_event_received", "input_audio_buffer.timeout_triggered"],
    ...["output_audio_buffer.cleared", "output_audio_buffer.started", "output_audio_buffer.stopped"],
  ],
  openai: [],
};

const create = (item) => ({ type: "conversation.item.create", item });
const message = (text, role = "user", type = "input_text") => create({ type: "message", role, content: [{ type, text }] });
const update = (session) => [{ type: "session.update", session }, "session.updated"];
const vad = (turn_detection) => ({ type: "realtime", audio: { input: { turn_detection } } });
const PCM = { type: "audio/pcm", rate: 24000 };

/** What clients send, of each kind and in the forms in which SDKs do, and the first event that answers it (or the code of an error). */
const SENT = [
  update({
    type: "realtime",
    instructions: "Be brief.",
    model: "another",
    output_modalities: ["audio"],
    audio: {
      input: { format: PCM, noise_reduction: null, transcription: { model: "gpt-4o-mini-transcribe" }, turn_detection: { type: "semantic_vad" } },
      output: { format: PCM, speed: 1 },
    },
  }),
  update({ type: "realtime", tracing: "auto" }),
  update(vad(null)),
  update(vad({ type: "server_vad", threshold: 0.6 })),
  update({ instructions: "Without a type." }),
  update({ modalities: ["text", "audio"], voice: "alloy", input_audio_format: "pcm16", turn_detection: { type: "server_vad" } }),
  update({ type: "realtime", tools: [{ type: "function", name: "get_weather", description: "d", parameters: {} }], tool_choice: "auto" }),
  update({ type: "realtime", voice_extra: 1, temperature: 0.8 }),
  update({ type: "realtime", prompt: { id: "pmpt_1", version: "2" }, truncation: { type: "retention_ratio", retention_ratio: 0.8 } }),
  [message("hi"), "conversation.item.added"],
  [message("Speak up.", "system"), "conversation.item.added"],
  [message("Yes.", "assistant", "output_text"), "conversation.item.added"],
  [create({ type: "message", role: "user", content: [{ type: "input_image", image_url: "data:image/png;base64,AA" }] }), "conversation.item.added"],
  [create({ type: "function_call", call_id: "c1", name: "get_weather", arguments: "{}" }), "conversation.item.added"],
  [create({ type: "function_call_output", call_id: "c1", output: "{}" }), "conversation.item.added"],
  [{ ...create({ ...message("first").item, id: "mine" }), previous_item_id: "root" }, "conversation.item.added"],
  [{ type: "conversation.item.retrieve", item_id: "mine" }, "conversation.item.retrieved"],
  [{ type: "conversation.item.delete", item_id: "mine" }, "conversation.item.deleted"],
  [{ type: "conversation.item.retrieve", item_id: "mine" }, "item_retrieve_invalid_item_id"],
  [{ type: "conversation.item.delete", item_id: "mine" }, "item_delete_invalid_item_id"],
  [{ type: "conversation.item.truncate", item_id: "mine", content_index: 0, audio_end_ms: 1500 }, "item_truncate_invalid_item_id"],
  [{ type: "input_audio_buffer.clear" }, "input_audio_buffer.cleared"],
  [{ type: "input_audio_buffer.commit" }, "input_audio_buffer_commit_empty"],
  [{ type: "input_audio_buffer.append", audio: "!" }, "invalid_value"],
  [{ type: "response.cancel", response_id: "resp_12345" }, "response_cancel_not_active"],
  [{ type: "transcription_session.update", session: { input_audio_format: "pcm16" } }, "unknown_event"],
];

async function open(edge, query) {
  const seen = [];
  const socket = new WebSocket(`${edge.url.replace("http", "ws")}/v1/realtime?${query}`, { headers: { Authorization: `Bearer ${KEY}` } });
  socket.on("message", (text) => seen.push(JSON.parse(text)));
  await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
  return {
    seen,
    send: (event) => socket.send(JSON.stringify(event)),
    /** The next event of a type from now on; `then` brings it about. */
    next: (type, then) => {
      const from = seen.length;
      then?.();
      return until(type, () => seen.slice(from).find((event) => event.type === type), { ms: 20_000, every: 5 });
    },
    close: () => socket.close(),
  };
}

/** `recorded`: events of the API that other clients got. */
export const events = (recorded) =>
  run({ name: "every kind of event", version: npmVersion("@openai/agents-realtime"), edge: { name: "kinds" } }, async (step, edge) => {
    const session = await open(edge, `model=${MODEL}`);
    const { seen, send, next } = session;
    await step("every kind of event that clients send is answered as the API has it", async () => {
      await until("session.created", () => seen.length);
      for (const [event, expected] of SENT) {
        const from = seen.length;
        send({ event_id: `ask_${from}`, ...event });
        await until(`an answer to ${JSON.stringify(event)}`, () => seen.length > from, { every: 5 });
        const [{ type, error }] = seen.slice(from);
        assert.equal(error?.code ?? type, expected, JSON.stringify([event, seen.slice(from)]));
        if (error) assert.equal(error.event_id, `ask_${from}`);
      }
    });
    await step("a model does all that it can", async () => {
      for (const [text, output_modalities, status] of [
        ["Please tell me.", ["text"], "completed"],
        ["What is the weather?", ["audio"], "completed"],
        ["Now break.", ["audio"], "failed"],
        ["Something long.", ["text"], "incomplete"],
        ["What stays unsaid?", ["audio"], "incomplete"],
      ]) {
        send(message(text));
        const response = { output_modalities, metadata: { client_event_id: "x" } };
        const done = await next("response.done", () => send({ type: "response.create", response }));
        assert.deepEqual([text, done.response.status, done.response.metadata], [text, status, { client_event_id: "x" }]);
      }
    });
    await step("a spoken turn, a response that is cancelled and cut, and a silence", async () => {
      const update = vad({ type: "server_vad", idle_timeout_ms: 5000 });
      update.audio.input.transcription = { model: "gpt-4o-mini-transcribe" };
      await next("session.updated", () => send({ type: "session.update", session: update }));
      const microphone = openMicrophone((chunk) => send({ type: "input_audio_buffer.append", audio: chunk.toString("base64") }));
      try {
        microphone.say(said("tt-weasels"));
        const { item_id } = await next("response.output_audio.delta");
        const done = await next("response.done", () => send({ type: "response.cancel" }));
        assert.deepEqual([done.response.status, done.response.status_details.reason], ["cancelled", "client_cancelled"]);
        await next("conversation.item.truncated", () => send({ type: "conversation.item.truncate", item_id, content_index: 0, audio_end_ms: 50 }));
        await next("input_audio_buffer.timeout_triggered");
        await next("response.done");
      } finally {
        microphone.close();
        session.close();
      }
    });
    const transcription = await open(edge, "intent=transcription");
    await step("a session of transcription", async () => {
      await until("session.created", () => transcription.seen.length);
      assert.equal(transcription.seen[0].session.type, "transcription");
      const { item_id } = await transcription.next("input_audio_buffer.committed", () => {
        transcription.send({ type: "input_audio_buffer.append", audio: said("tt-weasels").toString("base64") });
        transcription.send({ type: "input_audio_buffer.commit" });
      });
      assert.ok(item_id);
      transcription.close();
    });
    const spoken = [...recorded, ...seen];
    const all = [...spoken, ...transcription.seen];
    await step("every kind came, and no other", () => {
      const kinds = new Set(all.map(({ type }) => type));
      UNSEEN.forEach((kind) => kinds.delete(kind));
      assert.deepEqual([...kinds].sort(), [...KINDS].sort());
      return { kinds: kinds.size, events: all.length };
    });
    await step("@openai/agents-realtime takes every kind that it knows as what it is", () => {
      // Its schema of items has no images, though it sends them.
      const image = ({ item }) => item?.content?.some(({ type }) => type === "input_image");
      assert.deepEqual(untyped(all.filter((event) => !image(event))).sort(), UNKNOWN.agents);
    });
    // These of pipecat's are for sessions with a model; it has others for transcription.
    const faults = await ask("parse.py", JSON.stringify({ openai: all, pipecat: spoken }));
    for (const parser of ["pipecat", "openai"]) {
      await step(`the types of ${parser} take every kind that they know`, () => {
        const unknown = Object.keys(faults[parser]).filter((kind) => faults[parser][kind] === "unknown");
        assert.deepEqual(Object.entries(faults[parser]).filter(([kind]) => !unknown.includes(kind)), []);
        assert.deepEqual(unknown.sort(), UNKNOWN[parser]);
      });
    }
  });
