// Steps b and c: a conversation with the parrot through edge and transceiver as separate processes.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openHarness } from "./lib/browser.mjs";
import { startProxy, startServers, until } from "./lib/servers.mjs";
import { inTime } from "./lib/times.mjs";
import { RATE, concat, fromRecording, median, prompt, silence, spans, windows } from "./lib/speech.mjs";

const OTHERS = ["demo-nomatch", "vm-rec-name", "ss-noservice"].map(prompt);
// The edge follows the last sound with frames of coded silence: header, tag and 3 bytes of Opus.
const SILENT_BYTES = 12 + 8 + 16 + 3;
const seconds = (pcm) => pcm.length / RATE;
const ms = (samples) => (1000 * samples) / RATE;

let servers;
let proxy;
before(async () => {
  servers = await startServers({ edge: '[log]\nformat = "json"', transceiver: '[log]\nformat = "json"' });
  proxy = await startProxy(servers.media);
});
after(async () => {
  await proxy?.stop();
  await servers.stop();
});

/** Plays `pcm` into a call and gives both sides of the recording, the events and the turns' delays. */
async function converse(pcm, extra) {
  const { page, close } = await openHarness(pcm);
  try {
    await page.evaluate((options) => window.call.connect(options), { url: servers.url, model: "parrot", port: proxy.port });
    await until("the end of the recording", () => page.evaluate((end) => window.call.seconds() > end, seconds(pcm) + extra), {
      ms: 1000 * (seconds(pcm) + extra + 20),
      every: 200,
    });
    const [said, heard] = (await page.evaluate(() => window.call.recording())).map(fromRecording);
    const events = (await page.evaluate(() => window.call.events)).map(({ data }) => JSON.parse(data));
    await page.evaluate(() => window.call.hangUp());
    return { said, heard, events };
  } catch (error) {
    console.error(servers.logs());
    throw error;
  } finally {
    await close();
  }
}

/** Asserts that the reply at `span` of `heard` is `text` and nothing else; gives by how much its ends are off. */
function assertRepeats(heard, span, text) {
  const found = windows(heard, span.from, text, 0, Math.min(text.length, span.to - span.from));
  const same = found.map(({ correlation }) => correlation);
  const others = OTHERS.map((other) =>
    median(windows(heard, span.from, other, 0, Math.min(other.length, span.to - span.from)).map(({ correlation }) => correlation)),
  );
  const lag = median(found.map(({ lag }) => lag));
  const [onset, end] = [ms(lag), ms(span.to - span.from - text.length - lag)];
  console.log(
    `correlation ${median(same).toFixed(2)} (${same.map((value) => value.toFixed(2)).join(" ")}), ` +
      `other prompts ${others.map((value) => value.toFixed(2)).join(" ")}, onset ${onset.toFixed(0)} ms, end ${end.toFixed(0)} ms`,
  );
  assert.ok(median(same) >= 0.7, `median correlation ${median(same)} with what was said`);
  others.forEach((other) => assert.ok(other <= 0.3, `median correlation ${other} with another prompt`));
  return [Math.abs(onset), Math.abs(end)];
}

/** The parts of the delay of each turn that was answered, as the transceiver logged them. */
const timings = () =>
  servers
    .logs()
    .split("\n")
    .filter((line) => line.includes('"record"'))
    .map((line) => JSON.parse(JSON.parse(line).record).timing)
    .filter((timing) => timing);

const types = (events) => events.map(({ type }) => type);

test("the parrot repeats two turns of real speech, and nothing but them", () =>
  inTime(async () => {
    const times = {};
    const earlier = timings().length;
    const [first, second] = [prompt("tt-weasels"), prompt("conf-getpin")];
    const pcm = concat(silence(1), first, silence(2 + seconds(first)), second, silence(2 + seconds(second)));
    const { said, heard, events } = await converse(pcm, 0.5);

    const spoken = spans(said);
    const replies = spans(heard);
    assert.deepEqual([spoken.length, replies.length], [2, 2], "two turns, two replies");
    [first, second].forEach((text, n) => {
      const [onset, end] = assertRepeats(heard, replies[n], text);
      Object.assign(times, { [`onset of reply ${n} off by`]: [onset, 60], [`end of reply ${n} off by`]: [end, 60] });
    });

    await until("both turns are on record", () => timings().length >= earlier + 2);
    const turns = timings().slice(earlier);
    [0, 1].forEach((n) => {
      const total = ms(replies[n].from - spoken[n].to);
      const turn = turns[n];
      const parts = ["uplink_us", "repair_us", "silence_us", "backend_us", "encode_us", "playout_us"].map((key) => [
        key.replace("_us", ""),
        turn[key] / 1000,
      ]);
      const server = parts.reduce((sum, [, value]) => sum + value, 0);
      assert.ok(Math.abs(server - turn.total_us / 1000) < 0.01, "the transceiver's parts sum to its total");
      const shown = [...parts, ["client and network", total - server]].map(([name, value]) => `${name} ${value.toFixed(1)}`);
      console.log(`end of speech to first reply audio ${total.toFixed(0)} ms = ${shown.join(" + ")}`);
      times[`from the end of speech to reply ${n}`] = [total, 700];
    });

    const wanted = [
      "session.created",
      "input_audio_buffer.speech_started",
      "input_audio_buffer.speech_stopped",
      "input_audio_buffer.committed",
      "conversation.item.added",
      "conversation.item.done",
      "response.created",
      "output_audio_buffer.started",
      "response.done",
      "output_audio_buffer.stopped",
    ];
    wanted.forEach((type) => assert.ok(types(events).includes(type), `${type} among ${types(events)}`));
    assert.equal(events[0].session.model, "parrot");
    return times;
  }));

test("speech over the reply silences it at once, and is answered itself", () =>
  inTime(async () => {
    const [first, second] = [prompt("vm-intro"), prompt("agent-pass")];
    const begin = 1 + seconds(first) + 2.2;
    const pcm = concat(silence(1), first, silence(2.2), second, silence(2 + seconds(second)));
    const before = proxy.packets().length;
    const { said, heard, events } = await converse(pcm, 0.5);

    const spoken = spans(said, { gap: 0.45 });
    const replies = spans(heard);
    assert.equal(spoken.length, 2, "two stretches of speech");
    assert.equal(replies.length, 2, "a cut reply and a whole one");
    const pageSilence = ms(replies[0].to - spoken[1].from);

    // The proxy's clock: the second talkspurt's first voiced packet is the first loud one after a long quiet stretch.
    const media = proxy.packets().slice(before).filter(({ kind }) => kind === "srtp");
    const up = media.filter(({ dir, level }) => dir === "up" && level !== undefined && level < 50);
    const onset = up.find(({ t_us }, n) => n > 0 && t_us - up[n - 1].t_us > 1_500_000);
    assert.ok(onset, "the second talkspurt in the packet log");
    const audible = ({ len }) => len > SILENT_BYTES;
    const down = media.filter((packet) => packet.dir === "down" && audible(packet) && packet.t_us > onset.t_us - 500_000);
    const last = down.find(({ t_us }, n) => n + 1 < down.length && down[n + 1].t_us - t_us > 300_000 && t_us > onset.t_us);
    const lastMs = ((last ?? down.at(-1)).t_us - onset.t_us) / 1000;
    console.log(
      `last audible downlink packet ${lastMs.toFixed(0)} ms after the first voiced uplink packet; silence in the page after ${pageSilence.toFixed(0)} ms ` +
        `(speech over the reply began ${(begin - 1 - seconds(first)).toFixed(1)} s after the first turn's end)`,
    );
    const [beginning, end] = assertRepeats(heard, replies[1], second);

    // The parrot has said all of it to us long before it is played, so the response itself is done: its playout is cut.
    assert.ok(types(events).includes("output_audio_buffer.cleared"), types(events).join());
    const truncated = events.find(({ type }) => type === "conversation.item.truncated");
    const played = ms(replies[0].to - replies[0].from);
    console.log(`truncated at ${truncated?.audio_end_ms} ms, heard ${played.toFixed(0)} ms of it`);
    return {
      "the last downlink packet after": [lastMs, 100],
      "silence in the page after": [pageSilence, 250],
      "onset of the reply off by": [beginning, 60],
      "end of the reply off by": [end, 60],
      "cut from where it was heard by": [Math.abs(truncated.audio_end_ms - played), 250],
    };
  }));
