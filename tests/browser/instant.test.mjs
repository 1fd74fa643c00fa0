// SNAP, negotiated channels and tickets with a real Chromium. The page writes its answer by docs/WEBRTC.md, in code that
// shares nothing with the edge's.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openHarness } from "./lib/browser.mjs";
import { startServers, until } from "./lib/servers.mjs";
import { prompt } from "./lib/speech.mjs";

const SNAP = "--enable-features=WebRtcSctpSnap";
const SPED = "--force-fieldtrials=WebRTC-IceHandshakeDtls/Enabled/";

let servers;
before(async () => {
  servers = await startServers();
});
after(async () => {
  await servers?.stop();
});

/** What runs in the page. */
function install() {
  const lines = (sdp) => sdp.split(/\r?\n/);
  const sections = (sdp) => sdp.split(/\r?\n(?=m=)/);
  const value = (text, name) => lines(text).find((line) => line.startsWith(name))?.slice(name.length);
  const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const AUDIO_LEVEL = "urn:ietf:params:rtp-hdrext:ssrc-audio-level";
  const MID = "urn:ietf:params:rtp-hdrext:sdes:mid";
  const WIDE = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";

  function writeAnswer(ticket, offer, dcid) {
    const [session, ...media] = sections(offer);
    const audio = media.find((m) => m.startsWith("m=audio"));
    const data = media.find((m) => m.startsWith("m=application"));
    const extension = (uri) =>
      Number(lines(audio).find((line) => line.startsWith("a=extmap:") && line.split(" ")[1] === uri)?.match(/\d+/)[0] ?? 0);
    const opus = Number(lines(audio).find((line) => /^a=rtpmap:\d+ opus\/48000/i.test(line)).match(/\d+/)[0]);
    const options = (value(offer, "a=ice-options:") ?? "").split(" ");
    const sped = ticket.ice_options.split(" ").filter((name) => options.includes(name));
    const init = value(data, "a=sctp-init:");
    const digest = value(offer, "a=fingerprint:sha-256 ").split(":").map((hex) => parseInt(hex, 16));
    const wide = lines(audio).includes(`a=rtcp-fb:${opus} transport-cc`) ? extension(WIDE) : 0;
    const flags =
      (sped.length ? 1 : 0) | (init ? 2 : 0) | 4 | 8 | 16 | 32 | (dcid === undefined ? 0 : 64) | (wide ? 128 : 0);
    const stream = dcid ?? 0;
    const levels = (extension(AUDIO_LEVEL) << 4) | (wide || extension(MID));
    const facts = [...digest, flags, opus, levels, stream >> 8, stream & 255];
    if (init) facts.push(...bytes(init).slice(4, 8), ...bytes(init).slice(16, 20));
    const ufrag = ticket.ufrag + btoa(String.fromCharCode(...facts)).replace(/=+$/, "");

    const transport = [
      `a=ice-ufrag:${ufrag}`,
      `a=ice-pwd:${ticket.pwd}`,
      `a=fingerprint:${ticket.fingerprint}`,
      `a=setup:${sped.length ? ticket.setup : "active"}`,
      ...(sped.length ? [`a=ice-options:${sped.join(" ")}`] : []),
    ];
    const candidates = [...ticket.candidates.map((candidate) => `a=${candidate}`), "a=end-of-candidates"];
    const answers = media.map((m, index) => {
      const mid = `a=mid:${value(m, "a=mid:")}`;
      const first = index === 0 ? candidates : [];
      if (m === audio) {
        return [
          `m=audio 9 UDP/TLS/RTP/SAVPF ${opus}`,
          "c=IN IP4 0.0.0.0",
          mid,
          ...transport,
          "a=rtcp-mux",
          "a=sendrecv",
          `a=rtpmap:${opus} opus/48000/2`,
          `a=fmtp:${opus} minptime=10;useinbandfec=1`,
          `a=extmap:${extension(AUDIO_LEVEL)} ${AUDIO_LEVEL}`,
          ...(wide
            ? [`a=rtcp-fb:${opus} transport-cc`, `a=extmap:${wide}/sendonly ${WIDE}`]
            : [`a=extmap:${extension(MID)} ${MID}`]),
          `a=msid:stream-${ticket.cname} audio-${ticket.cname}`,
          `a=ssrc:${ticket.ssrc} cname:${ticket.cname}`,
          ...first,
        ];
      }
      return [
        "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
        "c=IN IP4 0.0.0.0",
        mid,
        ...transport,
        `a=sctp-port:${ticket.sctp_port}`,
        `a=max-message-size:${ticket.max_message_size}`,
        ...(init ? [`a=sctp-init:${ticket.sctp_init}`] : []),
        ...first,
      ];
    });
    const head = [
      "v=0",
      `o=- ${ticket.sdp_session} 1 IN IP4 0.0.0.0`,
      "s=-",
      "t=0 0",
      `a=group:BUNDLE ${media.map((m) => value(m, "a=mid:")).join(" ")}`,
      ...(lines(session).includes("a=extmap-allow-mixed") ? ["a=extmap-allow-mixed"] : []),
      "a=msid-semantic:WMS *",
      "a=ice-lite",
    ];
    return { sdp: [...head, ...answers.flat(), ""].join("\r\n"), ufrag };
  }

  /** A peer connection with microphone and channel; `dcid` negotiates it. */
  async function prepare(dcid) {
    const pc = new RTCPeerConnection();
    const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
    microphone.getTracks().forEach((track) => pc.addTrack(track, microphone));
    const channel = pc.createDataChannel("oai-events", dcid === undefined ? {} : { negotiated: true, id: dcid });
    const call = { pc, channel, messages: [] };
    call.opened = new Promise((resolve) => (channel.onopen = () => resolve(performance.now())));
    call.first = new Promise((resolve) => {
      channel.onmessage = ({ data }) => {
        call.messages.push(data);
        resolve(performance.now());
      };
    });
    call.connected = new Promise((resolve) => {
      pc.onconnectionstatechange = () => pc.connectionState === "connected" && resolve(performance.now());
    });
    return call;
  }

  const post = async (url, path, sdp, headers = {}) => {
    const response = await fetch(`${url}${path}`, {
      method: "POST",
      headers: { "Content-Type": "application/sdp", ...headers },
      body: sdp,
    });
    return { status: response.status, location: response.headers.get("Location"), text: await response.text() };
  };

  async function finish(call, clicked) {
    const [connected, opened, first] = await Promise.all([call.connected, call.opened, call.first]);
    await new Promise((resolve) => setTimeout(resolve, 1500));
    const stats = [...(await call.pc.getStats()).values()];
    const inbound = stats.find(({ type, kind }) => type === "inbound-rtp" && kind === "audio");
    return {
      connected: connected - clicked,
      opened: opened - clicked,
      first: first - clicked,
      message: JSON.parse(call.messages[0]),
      heard: inbound?.packetsReceived ?? 0,
    };
  }

  window.instant = {
    ticket: async (url, model) => (await fetch(`${url}/v1/realtime/tickets?model=${model}`, { method: "POST" })).json(),
    async posted(url, dcid) {
      const call = await prepare(dcid);
      await call.pc.setLocalDescription();
      const offer = call.pc.localDescription.sdp;
      const path = `/v1/realtime/calls?model=echo${dcid === undefined ? "" : `&dcid=${dcid}`}`;
      const { status, text } = await post(url, path, offer);
      const clicked = performance.now();
      await call.pc.setRemoteDescription({ type: "answer", sdp: text });
      const done = await finish(call, clicked);
      call.pc.close();
      return { ...done, status, offered: value(offer, "a=sctp-init:"), answered: value(text, "a=sctp-init:") };
    },
    async click(url, ticket, dcid, { parallel = false } = {}) {
      const call = await prepare(dcid);
      const clicked = performance.now();
      await call.pc.setLocalDescription();
      const offer = call.pc.localDescription.sdp;
      const { sdp, ufrag } = writeAnswer(ticket, offer, dcid);
      const path = `/v1/realtime/calls${dcid === undefined ? "" : `?dcid=${dcid}`}`;
      const send = () => post(url, path, offer, { "Fronthaul-Ticket": `${ufrag} ${ticket.pwd}` });
      const posting = parallel ? send() : undefined;
      await call.pc.setRemoteDescription({ type: "answer", sdp });
      const posted = await posting;
      const done = await finish(call, clicked);
      const again = parallel ? await send() : undefined;
      call.pc.close();
      return { ...done, posted, again, snap: sdp.includes("a=sctp-init:") };
    },
    /** Whether a call comes of a ticket within a while, and what its POST is told. */
    async tryAgain(url, ticket) {
      const call = await prepare();
      await call.pc.setLocalDescription();
      const offer = call.pc.localDescription.sdp;
      const { sdp, ufrag } = writeAnswer(ticket, offer);
      await call.pc.setRemoteDescription({ type: "answer", sdp });
      const silence = new Promise((resolve) => setTimeout(() => resolve("nothing"), 1500));
      const outcome = await Promise.race([call.connected.then(() => "connected"), silence]);
      const posted = await post(url, "/v1/realtime/calls", offer, { "Fronthaul-Ticket": `${ufrag} ${ticket.pwd}` });
      call.pc.close();
      return { outcome, posted };
    },
  };
}

async function inPage(args, run) {
  const { page, close } = await openHarness(prompt("vm-intro"), { args });
  try {
    await page.evaluate(install);
    return await run(page);
  } catch (error) {
    console.error(servers.logs());
    throw error;
  } finally {
    await close();
  }
}

async function counted(name, least) {
  const read = async () => (await servers.metrics()).edge[name] ?? 0;
  return until(`${name} >= ${least}`, async () => (await read()) >= least);
}

test("Chromium's SNAP is answered, and the server speaks first on a negotiated channel", () =>
  inPage([SNAP], async (page) => {
    for (const dcid of [undefined, 0, 1000]) {
      const call = await page.evaluate(([url, dcid]) => window.instant.posted(url, dcid), [servers.url, dcid]);
      assert.equal(call.status, 201);
      assert.ok(call.offered && call.answered && call.offered !== call.answered);
      assert.equal(call.message.type, "session.created");
      assert.ok(call.heard > 20, `${call.heard} packets heard`);
    }
    await counted('fronthaul_edge_snap_total{result="answered"}', 3);
  }));

test("without SNAP a negotiated channel opens by SCTP's own handshake", () =>
  inPage([], async (page) => {
    const call = await page.evaluate((url) => window.instant.posted(url, 7), servers.url);
    assert.equal(call.offered, undefined);
    assert.equal(call.message.type, "session.created");
  }));

for (const [name, args] of [
  ["stock", []],
  ["with SNAP", [SNAP]],
  ["with SNAP and SPED", [SNAP, SPED]],
]) {
  test(`a ticket makes a call without signaling at the click: Chromium ${name}`, () =>
    inPage(args, async (page) => {
      const { edge } = await servers.metrics();
      const before = edge['fronthaul_edge_tickets_total{result="by_check"}'] ?? 0;
      const claimed = edge['fronthaul_edge_snap_total{result="claimed"}'] ?? 0;
      for (const dcid of [undefined, 0]) {
        const ticket = await page.evaluate((url) => window.instant.ticket(url, "echo"), servers.url);
        const call = await page.evaluate(
          ([url, ticket, dcid]) => window.instant.click(url, ticket, dcid),
          [servers.url, ticket, dcid],
        );
        assert.equal(call.snap, args.includes(SNAP));
        assert.equal(call.message.type, "session.created");
        assert.equal(call.message.session.id, ticket.session_id.replace("rtc_", "sess_"));
        assert.ok(call.heard > 20, `${call.heard} packets heard`);
        console.log(`click to connected ${call.connected.toFixed()} ms, open ${call.opened.toFixed()}, first message ${call.first.toFixed()}`);
      }
      await counted('fronthaul_edge_tickets_total{result="by_check"}', before + 2);
      if (args.includes(SNAP)) await counted('fronthaul_edge_snap_total{result="claimed"}', claimed + 2);
    }));
}

test("the parallel POST of the same offer makes no second call", () =>
  inPage([SNAP], async (page) => {
    const ticket = await page.evaluate((url) => window.instant.ticket(url, "echo"), servers.url);
    const call = await page.evaluate(
      ([url, ticket]) => window.instant.click(url, ticket, 0, { parallel: true }),
      [servers.url, ticket],
    );
    assert.ok([200, 201].includes(call.posted.status), JSON.stringify(call.posted));
    assert.equal(call.again.status, 200);
    assert.equal(call.posted.location, `/v1/realtime/calls/${ticket.session_id}`);
    assert.equal(call.message.type, "session.created");
    await until("no seat is held", async () => (await servers.metrics()).edge.fronthaul_edge_seats_used === 0, { ms: 40_000 });
  }));

test("a ticket that was used makes no other call", () =>
  inPage([], async (page) => {
    const ticket = await page.evaluate((url) => window.instant.ticket(url, "echo"), servers.url);
    await page.evaluate(([url, ticket]) => window.instant.click(url, ticket), [servers.url, ticket]);
    await fetch(`${servers.url}/v1/realtime/calls/${ticket.session_id}`, { method: "DELETE" });
    await until("the call is over", async () => (await servers.metrics()).edge.fronthaul_edge_sessions === 0);
    const again = await page.evaluate(([url, ticket]) => window.instant.tryAgain(url, ticket), [servers.url, ticket]);
    assert.equal(again.outcome, "nothing");
    assert.equal(again.posted.status, 409);
    assert.equal(JSON.parse(again.posted.text).error.code, "ticket_used");
    await counted('fronthaul_edge_discards_total{reason="ticket_used"}', 1);
    assert.equal((await servers.metrics()).edge.fronthaul_edge_sessions, 0);
  }));
