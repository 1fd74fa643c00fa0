// fronthaul.js in a real Chromium, loaded by a page of another origin than the edge's.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { openHarness } from "./lib/browser.mjs";
import { startProxy, startServers, udpPort, until } from "./lib/servers.mjs";
import { silence } from "./lib/speech.mjs";

let servers;
let proxy;
let port;
let browser;
before(async () => {
  port = await udpPort();
  servers = await startServers({ edge: `public = ["127.0.0.1:${port}"]` });
  proxy = await startProxy(servers.media, { port });
  browser = await openHarness(silence(300));
});
after(async () => {
  await browser?.close();
  await proxy?.stop();
  await servers.stop();
});

/** Runs `script` in the page as `async (call, seen, module, argument)`, with a call of these options; `seen` gathers its events. */
async function inPage(options, script, argument) {
  return browser.page.evaluate(
    async ({ options, script, argument, url }) => {
      const module = await import(`${url}/fronthaul.js`);
      const call = (window.fronthaul = new module.Call({ model: "parrot", ...options }));
      const seen = (window.seen = []);
      for (const type of ["state", "event", "reconnected", "microphone", "devices", "error", "playout", "session.created"]) {
        call.addEventListener(type, ({ detail }) => seen.push({ type, detail: type === "microphone" ? detail.label : detail, at: performance.now() }));
      }
      return new Function("call", "seen", "module", "argument", `return (${script})(call, seen, module, argument)`)(call, seen, module, argument);
    },
    { options, script: script.toString(), argument, url: servers.url },
  );
}

const close = () => browser.page.evaluate(() => window.fronthaul.close());

const gone = () =>
  until("the call's end at the edge", async () => {
    const { edge } = await servers.metrics();
    return edge.fronthaul_edge_sessions === 0 && edge.fronthaul_edge_pending_sessions === 0;
  });

test("a call connects across origins, tells its states and events, reports its playout delay and hangs up", async () => {
  const { timings, states, echo } = await inPage({}, async (call, seen) => {
    await call.connect();
    while (!seen.some(({ type }) => type === "session.created")) await new Promise((resolve) => setTimeout(resolve, 20));
    while (!seen.some(({ type }) => type === "playout")) await new Promise((resolve) => setTimeout(resolve, 50));
    call.send({ type: "session.update", session: {} });
    while (!seen.some(({ detail }) => detail.type === "session.updated")) await new Promise((resolve) => setTimeout(resolve, 20));
    return { timings: call.timings, states: seen.filter(({ type }) => type === "state").map(({ detail }) => detail), echo: seen.filter(({ type }) => type === "error") };
  });
  assert.deepEqual(states, ["connecting", "connected"]);
  assert.ok(timings.connected > 0 && timings.connected >= timings.channel && timings.warm === false, JSON.stringify(timings));
  assert.deepEqual(echo, [], "the server takes the playout report");
  await close();
  await gone();
});

test("a warm call does nothing at the click but put in the microphone", async () => {
  const before = proxy.packets().length;
  await inPage({}, (call) => call.prepare());
  assert.equal(await browser.page.evaluate(() => window.fronthaul.state), "ready");
  // Handshake and its last acknowledgements are over: from here on anything new is the click's.
  await new Promise((resolve) => setTimeout(resolve, 1500));
  const packets = () => proxy.packets().slice(before);
  assert.ok(!packets().some(({ dir, kind }) => dir === "up" && kind === "srtp"), "no microphone before the click");
  const handshakes = (list) => list.filter(({ records = [] }) => records.some((record) => record !== "data")).length;
  const shaken = handshakes(packets());
  const posts = await browser.page.evaluate(async () => {
    performance.clearResourceTimings();
    await window.fronthaul.connect();
    return performance.getEntriesByType("resource").filter(({ name }) => name.includes("/v1/realtime")).length;
  });
  const click = (await browser.page.evaluate(() => performance.timeOrigin + window.seen.find(({ detail }) => detail === "connecting").at)) * 1000;
  await until("the microphone's audio", () => packets().some(({ dir, kind }) => dir === "up" && kind === "srtp"));
  const after = packets();
  const speech = after.find(({ dir, kind }) => dir === "up" && kind === "srtp");
  console.log(`first audio ${((speech.t_us - click) / 1000).toFixed(0)} ms after the click`);
  assert.equal(posts, 0, "no request");
  assert.equal(handshakes(after), shaken, "no handshake");
  assert.equal(await browser.page.evaluate(() => window.fronthaul.timings.warm), true);
  await close();
  await gone();
});

test("with a ticket the page answers itself: the click waits for no request, and the edge makes one call of both", async () => {
  const before = (await servers.metrics()).edge;
  const made = await inPage({ session: { instructions: "Be brief." } }, async (call, seen) => {
    const had = await call.prepare("ticket");
    performance.clearResourceTimings();
    await call.connect();
    while (!seen.some(({ type }) => type === "session.created")) await new Promise((resolve) => setTimeout(resolve, 20));
    const created = seen.find(({ type }) => type === "session.created").detail;
    await new Promise((resolve) => setTimeout(resolve, 500));
    const posts = performance.getEntriesByType("resource").map(({ name, responseStatus }) => `${new URL(name).pathname} ${responseStatus}`);
    const answer = call.peerConnection.currentRemoteDescription.sdp;
    return { had, timings: call.timings, instructions: created.session.instructions, posts, state: call.state, answer };
  });
  console.log(made.timings);
  assert.equal(made.had, true);
  assert.equal(made.timings.instant, true);
  assert.equal(made.instructions, "Be brief.");
  assert.match(made.posts.join(), /^\/v1\/realtime\/calls 20[01]$/);
  assert.equal(made.state, "connected");
  const { edge } = await servers.metrics();
  assert.equal(edge.fronthaul_edge_sessions_claimed_total - before.fronthaul_edge_sessions_claimed_total, 1);
  // As in the answer that the edge writes: copies against loss, of which Chromium's statistics say nothing, and keys.
  assert.match(made.answer, /^m=audio \d+ UDP\/TLS\/RTP\/SAVPF 63 111 110\r$/m);
  const taken = async () => (await servers.metrics()).edge.fronthaul_edge_media_received_total - before.fronthaul_edge_media_received_total;
  await until("media that is taken", async () => (await taken()) > 10);
  await close();
  await gone();
});

test("where the edge does not take the ticket, a connection without one follows", async () => {
  const made = await inPage({}, async (call) => {
    const original = window.fetch;
    window.fetch = async (...request) => {
      const response = await original(...request);
      if (!String(request[0]).includes("/tickets")) return response;
      const ticket = await response.json();
      // Sealed by nobody: no check that begins with it is answered.
      ticket.ufrag = [...ticket.ufrag].reverse().join("");
      return new Response(JSON.stringify(ticket));
    };
    try {
      await call.prepare("ticket");
      await call.connect();
    } finally {
      window.fetch = original;
    }
    return call.timings;
  });
  console.log(made);
  assert.equal(made.instant, false);
  await close();
  await gone();
});

test("an edge without tickets is asked by POST", async () => {
  const { had, timings } = await inPage({}, async (call) => {
    const original = window.fetch;
    window.fetch = (...request) => (String(request[0]).includes("/tickets") ? Promise.resolve(new Response("", { status: 404 })) : original(...request));
    try {
      return { had: await call.prepare("ticket"), timings: (await call.connect()).timings };
    } finally {
      window.fetch = original;
    }
  });
  assert.deepEqual([had, timings.instant], [false, false]);
  await close();
  await gone();
});

test("a path that goes away and comes back at another time costs no call", async () => {
  await inPage({}, async (call) => void (await call.connect()));
  await proxy.stop();
  await until("the page's notice", () => browser.page.evaluate(() => window.fronthaul.state === "reconnecting"));
  proxy = await startProxy(servers.media, { port });
  await until("the repaired call", () => browser.page.evaluate(() => window.fronthaul.state === "connected"), { ms: 30_000 });
  const told = await browser.page.evaluate(() => window.seen.find(({ type }) => type === "reconnected").detail);
  console.log(`back after ${told.ms.toFixed(0)} ms, ${told.kept ? "the same call" : "a new call"}: ${told.why}`);
  assert.equal(told.kept, true, "the same call");
  await browser.page.evaluate(async () => window.fronthaul.send({ type: "session.update", session: {} }));
  await until("an answer", () => browser.page.evaluate(() => window.seen.some(({ detail }) => detail.type === "session.updated")));
  await close();
  await gone();
});

test("a call that the edge knows no more is replaced by a new one with the same microphone", async () => {
  const first = await inPage({}, async (call) => {
    await call.connect();
    return { label: call.microphone.label, id: call.microphone.id };
  });
  // Ended behind the page's back; no word of it gets through.
  await proxy.stop();
  const ended = await servers.endCalls();
  assert.equal(ended, 1);
  await until("the page's notice", () => browser.page.evaluate(() => window.fronthaul.state === "reconnecting"));
  proxy = await startProxy(servers.media, { port });
  await until("the new call", () => browser.page.evaluate(() => window.fronthaul.state === "connected"), { ms: 30_000 });
  const second = await browser.page.evaluate(() => ({ told: window.seen.find(({ type }) => type === "reconnected").detail, id: window.fronthaul.microphone.id }));
  assert.equal(second.told.kept, false);
  assert.equal(second.id, first.id);
  await close();
  await gone();
});

test("another microphone goes on where the first one was, and an unplugged one is replaced", async () => {
  const found = await inPage({}, async (call, seen) => {
    await call.connect();
    const { microphones } = await call.devices();
    const first = call.microphone;
    const other = microphones.find(({ deviceId, label }) => label !== first.label && deviceId !== "default" && deviceId !== "communications");
    const second = await call.useMicrophone(other.deviceId);
    const sender = call.peerConnection.getSenders()[0].track;
    const state = { first: first.readyState, second: second.readyState, sent: sender === second, label: second.label, other: other.label };
    call.mute();
    // As the browser does when the device goes away.
    second.stop();
    navigator.mediaDevices.dispatchEvent(new Event("devicechange"));
    while (call.microphone === second) await new Promise((resolve) => setTimeout(resolve, 20));
    state.third = call.microphone.readyState;
    while (call.peerConnection.getSenders()[0].track !== call.microphone) await new Promise((resolve) => setTimeout(resolve, 20));
    state.muted = !call.microphone.enabled;
    state.events = seen.filter(({ type }) => type === "microphone").length;
    state.call = call.state;
    return state;
  });
  assert.deepEqual(
    { ...found, label: undefined, other: undefined },
    { first: "ended", second: "live", sent: true, third: "live", muted: true, events: 3, call: "connected", label: undefined, other: undefined },
  );
  assert.equal(found.label, found.other);
  await close();
  await gone();
});

test("a new estimate of the network restarts nothing on a path that is well", async () => {
  const states = await inPage({}, async (call, seen) => {
    await call.connect();
    for (let n = 0; n < 5; n++) {
      navigator.connection.dispatchEvent(new Event("change"));
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    return seen.filter(({ type }) => type === "state").map(({ detail }) => detail);
  });
  assert.deepEqual(states, ["connecting", "connected"]);
  await close();
  await gone();
});

test("a hint of the network on a dead path repairs it", async () => {
  await inPage({}, async (call) => void (await call.connect()));
  await proxy.stop();
  await browser.page.evaluate(() => navigator.connection.dispatchEvent(new Event("change")));
  await until("the page's notice", () => browser.page.evaluate(() => window.fronthaul.state === "reconnecting"));
  proxy = await startProxy(servers.media, { port });
  await until("the repaired call", () => browser.page.evaluate(() => window.fronthaul.state === "connected"), { ms: 30_000 });
  await close();
  await gone();
});

test("silence restarts nothing", async () => {
  const states = await inPage({}, async (call, seen) => {
    await call.connect();
    await new Promise((resolve) => setTimeout(resolve, 6000));
    return seen.filter(({ type }) => type === "state").map(({ detail }) => detail);
  });
  assert.deepEqual(states, ["connecting", "connected"]);
  await close();
  await gone();
});

test("a path that stutters while the agent speaks is repaired within a second, and then only when it stays silent", async () => {
  const { noticed, restarts } = await inPage({ model: "echo" }, async (call, seen) => {
    await call.connect();
    const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    const pc = call.peerConnection;
    const [look, apply] = [pc.getStats.bind(pc), pc.setRemoteDescription.bind(pc)];
    await pause(1500);
    const began = performance.now();
    let frozen = await look();
    pc.getStats = async () => frozen ?? look();
    pc.setRemoteDescription = async (answer) => {
      frozen = undefined;
      return apply(answer);
    };
    while (!seen.some(({ type }) => type === "reconnected")) await pause(20);
    frozen = await look();
    await pause(2500);
    const repairs = seen.filter(({ detail }) => detail === "reconnecting");
    return { noticed: repairs[0].at - began, restarts: repairs.length };
  });
  console.log(`noticed after ${noticed.toFixed(0)} ms`);
  assert.ok(noticed < 1000, `noticed after ${noticed} ms`);
  assert.equal(restarts, 1);
  await close();
  await gone();
});

test("a restart is heard where the browser forgets the paths of before", async () => {
  const told = await inPage({}, async (call, seen) => {
    await call.connect();
    // As Firefox does: statistics of the current ufrag's pairs only.
    const pc = call.peerConnection;
    const original = pc.getStats.bind(pc);
    const forgotten = new Set();
    pc.getStats = async () => new Map([...(await original())].filter(([id]) => !forgotten.has(id)));
    await new Promise((resolve) => setTimeout(resolve, 3000));
    const apply = pc.setRemoteDescription.bind(pc);
    pc.setRemoteDescription = async (answer) => {
      for (const [id, { type }] of await original()) if (type === "candidate-pair") forgotten.add(id);
      return apply(answer);
    };
    await call.restart();
    return seen.find(({ type }) => type === "reconnected").detail;
  });
  assert.equal(told.kept, true, "the same call");
  assert.ok(told.ms < 2000, `${told.ms} ms`);
  await close();
  await gone();
});

test("an unplugged microphone of which the browser tells twice is replaced by one", async () => {
  const live = await inPage({}, async (call, seen) => {
    const media = navigator.mediaDevices;
    const original = media.getUserMedia.bind(media);
    const tracks = [];
    media.getUserMedia = async (constraints) => {
      const stream = await original(constraints);
      tracks.push(...stream.getTracks());
      return stream;
    };
    try {
      await call.connect();
      call.microphone.stop();
      call.microphone.dispatchEvent(new Event("ended"));
      media.dispatchEvent(new Event("devicechange"));
      await new Promise((resolve) => setTimeout(resolve, 1500));
      const during = tracks.filter(({ readyState }) => readyState === "live").length;
      // And one that comes when the call is over goes off.
      const late = call.useMicrophone().catch(({ code }) => code);
      call.close();
      const said = await late;
      return { during, said, after: tracks.filter(({ readyState }) => readyState === "live").length, left: call.microphone };
    } finally {
      delete media.getUserMedia;
    }
  });
  assert.deepEqual(live, { during: 1, said: "closed", after: 0, left: undefined });
  await gone();
});

test("a microphone that cannot be put in leaves the former one, which is still the call's to stop", async () => {
  const found = await inPage({}, async (call) => {
    await call.connect();
    const first = call.microphone;
    const picture = document.createElement("canvas").captureStream().getVideoTracks()[0];
    const refused = await call.useMicrophone(picture).catch(() => "refused");
    const kept = call.microphone === first && first.readyState;
    call.close();
    return { refused, kept, closed: first.readyState, picture: picture.readyState };
  });
  assert.deepEqual(found, { refused: "refused", kept: "live", closed: "ended", picture: "live" });
  await gone();
});

test("a call that is closed while its offer is under way gives its seat back", async () => {
  const code = await inPage({}, async (call) => {
    const original = window.fetch;
    let taken;
    const posted = new Promise((resolve) => (taken = resolve));
    window.fetch = async (...request) => {
      const response = await original(...request);
      if (request[1]?.method === "POST") {
        taken();
        await new Promise((resolve) => setTimeout(resolve, 300));
      }
      return response;
    };
    try {
      const connecting = call.connect().catch(({ code }) => code);
      await posted;
      call.close();
      return await connecting;
    } finally {
      window.fetch = original;
    }
  });
  assert.equal(code, "closed");
  await gone();
});

test("servers of the answer that the connection was not built with are tried, once", async () => {
  const blocked = await startServers({ edge: 'public = ["127.0.0.1:9"]' });
  try {
    const built = await inPage({ url: blocked.url, iceServers: [{ urls: "stun:127.0.0.1:9" }] }, async (call) => {
      const [fetched, Original] = [window.fetch, window.RTCPeerConnection];
      const built = [];
      let answers = 0;
      window.fetch = async (...request) => {
        const response = await fetched(...request);
        if (request[1]?.method !== "POST") return response;
        const headers = new Headers(response.headers);
        headers.set("Link", `<turn:127.0.0.1:9>; rel="ice-server"; username="u"; credential="${++answers}"`);
        return new Response(await response.text(), { status: response.status, headers });
      };
      window.RTCPeerConnection = class extends Original {
        constructor(configuration) {
          super(configuration);
          built.push(configuration.iceServers.map(({ urls, credential }) => `${urls} ${credential ?? ""}`.trim()));
        }
      };
      try {
        await call.connect().catch(() => {});
      } finally {
        Object.assign(window, { fetch: fetched, RTCPeerConnection: Original });
      }
      return built;
    });
    assert.deepEqual(built, [["stun:127.0.0.1:9"], ["stun:127.0.0.1:9", "turn:127.0.0.1:9 1"]]);
  } finally {
    await blocked.stop();
  }
});

/** The error that `connect` gives with these options, after `before` ran in the page. */
const refusal = (options, prepare = () => {}) =>
  inPage(options, async (call, seen, module, text) => {
    const undo = await new Function(`return (${text})()`)();
    try {
      await call.connect();
      return "connected";
    } catch (error) {
      const { code, reason, fix, message, status, retryAfterMs, candidates } = error;
      return { code, reason, fix, message, status, retryAfterMs, candidates, known: error instanceof module.FronthaulError, state: call.state };
    } finally {
      undo?.();
    }
  }, prepare.toString());

/** Answers every request with this. */
async function httpServer(status, headers, body) {
  const server = createServer((request, response) => {
    response.writeHead(request.method === "OPTIONS" ? 204 : status, {
      "Access-Control-Allow-Origin": "*",
      "Access-Control-Allow-Headers": "*",
      "Access-Control-Expose-Headers": "*",
      ...headers,
    });
    response.end(body);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

const microphone = (name) =>
  new Function(`{
    const original = navigator.mediaDevices.getUserMedia;
    navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException("no", "${name}"));
    return () => (navigator.mediaDevices.getUserMedia = original);
  }`);

for (const [name, code, said] of [
  ["NotAllowedError", "microphone_denied", /refused\. Allow it/],
  ["NotFoundError", "microphone_missing", /No microphone was found\. Plug one in/],
  ["NotReadableError", "microphone_busy", /another program\. Close that/],
]) {
  test(`${name} of the microphone is said in words, and the call that was dialed beside it ends`, async () => {
    const error = await refusal({}, microphone(name));
    assert.equal(error.code, code);
    assert.match(error.message, said);
    assert.equal(error.known, true);
    assert.equal(error.state, "idle");
    await gone();
  });
}

test("a page without a secure context is told so", async () => {
  const error = await refusal({}, function () {
    Object.defineProperty(navigator, "mediaDevices", { value: undefined, configurable: true });
    return () => delete navigator.mediaDevices;
  });
  assert.equal(error.code, "insecure_context");
  assert.match(error.message, /only over HTTPS or on localhost\. Open this page by one of these\./);
  await gone();
});

test("an edge that is not there is named", async () => {
  const error = await refusal({ url: "http://127.0.0.1:9" });
  assert.equal(error.code, "edge_unreachable");
  assert.match(error.message, /http:\/\/127\.0\.0\.1:9 does not answer HTTP\. Is the edge running/);
});

test("a refusal has the edge's own words, its status and when to come back", async () => {
  const body = JSON.stringify({ error: { message: "No seat is free for model \"parrot\"; try again." } });
  const server = await httpServer(503, { "Content-Type": "application/json", "Retry-After": "2" }, body);
  const error = await refusal({ url: server.url });
  server.close();
  assert.deepEqual([error.code, error.status, error.retryAfterMs], ["refused", 503, 2000]);
  assert.match(error.message, /\(503\): No seat is free for model "parrot"; try again\. Try again in 2 s\./);
  const locked = await httpServer(401, {}, "who are you");
  const unknown = await refusal({ url: locked.url });
  locked.close();
  assert.match(unknown.message, /\(401\): who are you Check the token\./);
});

test("an answer that is none is no mystery", async () => {
  const server = await httpServer(201, { "Content-Type": "application/sdp", Location: "/v1/realtime/calls/rtc_0" }, "v=0\r\n");
  const error = await refusal({ url: server.url });
  server.close();
  assert.equal(error.code, "bad_answer");
});

test("a network that swallows UDP is told within 5 s, with every address that was tried", async () => {
  const blocked = await startServers({ edge: 'public = ["127.0.0.1:9", "127.0.0.2:9"]' });
  try {
    const began = performance.now();
    const error = await refusal({ url: blocked.url });
    assert.equal(error.code, "no_path");
    assert.deepEqual(error.candidates, ["UDP 127.0.0.1:9", "UDP 127.0.0.2:9"]);
    assert.match(error.message, /No check reached any advertised address \(UDP 127\.0\.0\.1:9, UDP 127\.0\.0\.2:9\) within 5 s\./);
    assert.ok(performance.now() - began < 8000);
  } finally {
    await blocked.stop();
  }
});

test("an unknown option is named", async () => {
  const message = await inPage({}, async (call, seen, { Call }) => {
    try {
      return new Call({ modell: "parrot" });
    } catch (error) {
      return error.message;
    }
  });
  assert.match(message, /unknown option "modell"; there are: url, model/);
});

test("ICE servers are read from Link headers as RFC 9725 writes them", async () => {
  const servers = await inPage({}, async (call, seen, { iceServersOf }) =>
    iceServersOf('<stun:stun.example.net>; rel="ice-server", <turns:turn.example.net:5349?transport=tcp>; rel="ice-server"; username="a,b"; credential="c\\"d"; credential-type="password", </next>; rel=next'),
  );
  assert.deepEqual(servers, [
    { urls: "stun:stun.example.net" },
    { urls: "turns:turn.example.net:5349?transport=tcp", username: "a,b", credential: 'c"d' },
  ]);
});
