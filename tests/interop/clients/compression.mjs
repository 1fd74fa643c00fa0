// permessage-deflate with the WebSocket libraries below the SDKs: `ws` of npm and `websockets` of Python, as they are by themselves.

import assert from "node:assert/strict";
import { once } from "node:events";
import WebSocket from "ws";
import { until } from "../../browser/lib/servers.mjs";
import { npmVersion, run } from "../lib/client.mjs";
import { KEY, MODEL } from "../lib/edge.mjs";
import { client } from "../lib/python.mjs";

const AGREED = "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=12";

/** 40 KB that no two clients share, of words that compress. */
const INSTRUCTIONS = Array.from({ length: 2000 }, (_, n) => `Rule ${n}: be brief.`).join("\n");

export const ws = () =>
  run({ name: "ws with permessage-deflate", version: npmVersion("ws") }, async (step, edge) => {
    const events = [];
    const url = `${edge.url.replace("http", "ws")}/v1/realtime?model=${MODEL}`;
    const open = async (options) => {
      const socket = new WebSocket(url, { headers: { Authorization: `Bearer ${KEY}` }, ...options });
      const seen = [];
      let answer;
      const closed = once(socket, "close").then(([code, reason]) => ({ code, reason: reason.toString() }));
      socket.on("upgrade", ({ headers }) => (answer = headers["sec-websocket-extensions"]));
      socket.on("message", (data) => {
        seen.push(JSON.parse(data));
        events.push(seen.at(-1));
      });
      await once(socket, "open");
      const came = (type) => until(type, () => seen.find((event) => event.type === type), { ms: 20_000 });
      await came("session.created");
      return { socket, seen, came, closed, answer, wire: () => [socket._socket.bytesWritten, socket._socket.bytesRead] };
    };
    const update = { type: "session.update", session: { type: "realtime", instructions: INSTRUCTIONS } };
    const compressed = async () => {
      const one = await open();
      assert.equal(one.answer, AGREED);
      const before = one.wire();
      one.socket.send(JSON.stringify(update));
      assert.equal((await one.came("session.updated")).session.instructions, INSTRUCTIONS);
      const [sent, received] = one.wire().map((bytes, way) => bytes - before[way]);
      assert.ok(sent < INSTRUCTIONS.length / 4 && received < INSTRUCTIONS.length / 2, `${sent} and ${received} of ${INSTRUCTIONS.length} bytes`);
      return { one, figures: { bytes: INSTRUCTIONS.length, sent, received } };
    };
    let first;
    await step("asks by itself, and a large update goes both ways compressed", async () => {
      const { one, figures } = await compressed();
      first = one;
      return figures;
    });
    await step("a written turn is answered in sound", async () => {
      first.socket.send(JSON.stringify({ type: "conversation.item.create", item: { type: "message", role: "user", content: [{ type: "input_text", text: "Hello." }] } }));
      first.socket.send(JSON.stringify({ type: "response.create" }));
      await first.came("response.done");
      const texts = first.seen.filter(({ type }) => type === "response.output_audio.delta");
      assert.ok(texts.length > 10, `${texts.length} deltas`);
    });
    await step("a message that would inflate to more than 1 MiB ends its session with an event and 1009, and no other", async () => {
      const bomb = await open();
      bomb.socket.send(JSON.stringify({ ...update, session: { type: "realtime", instructions: "x".repeat(8 << 20) } }));
      assert.deepEqual(await bomb.closed, { code: 1009, reason: "message_too_large" });
      assert.equal(bomb.seen.at(-1).error.code, "message_too_large");
      const refused = async () => (await edge.metrics()).edge['fronthaul_edge_websocket_inflate_refused_total{reason="too_large"}'];
      await until("it is counted", async () => (await refused()) === 1, { ms: 10_000 });
      await compressed().then(({ one }) => one.socket.close());
    });
    await step("without asking it goes uncompressed", async () => {
      const plain = await open({ perMessageDeflate: false });
      assert.equal(plain.answer, undefined);
      const [, before] = plain.wire();
      plain.socket.send(JSON.stringify(update));
      await plain.came("session.updated");
      assert.ok(plain.wire()[1] - before > INSTRUCTIONS.length);
      plain.socket.close();
      await plain.closed;
    });
    first.socket.close();
    await first.closed;
    return events;
  });

export const websockets = client("websockets (Python) with permessage-deflate", "compression.py");
