// What runs in the page: one set-up of plain WebRTC, or of fronthaul.js, and the times of its steps. Sent there as text, so it
// uses nothing of this module's outside.

/**
 * `offer` and `answer` are beginnings of lines that somebody on the way takes out; `stream`: the channel is opened on this one
 * without DCEP. Times are unix ms.
 */
export async function plain({ model, offer = [], answer = [], stream, patience }) {
  const marks = {};
  const mark = (name) => (marks[name] ??= performance.timeOrigin + performance.now());
  const strip = (sdp, patterns) =>
    sdp.split("\r\n").filter((line) => !patterns.some((pattern) => line.startsWith(pattern))).join("\r\n");
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
  mark("click");
  const pc = new RTCPeerConnection();
  microphone.getTracks().forEach((track) => pc.addTrack(track, microphone));
  const channel = pc.createDataChannel("oai-events", stream === undefined ? {} : { negotiated: true, id: stream });
  const message = new Promise((resolve) => {
    channel.onopen = () => mark("open");
    channel.onmessage = () => resolve(mark("message"));
  });
  pc.onconnectionstatechange = () => mark(pc.connectionState);
  await pc.setLocalDescription(await pc.createOffer());
  const offered = pc.localDescription.sdp;
  const response = await fetch(`/v1/realtime/calls?model=${model}${stream === undefined ? "" : `&dcid=${stream}`}`, {
    method: "POST",
    headers: { "Content-Type": "application/sdp" },
    body: strip(offered, offer),
  });
  const answered = await response.text();
  if (response.status !== 201) throw new Error(`${response.status}: ${answered}`);
  const applied = strip(answered, answer);
  mark("answer");
  await pc.setRemoteDescription({ type: "answer", sdp: applied });
  const late = new Promise((resolve) => setTimeout(resolve, patience));
  await Promise.race([message, late]);
  // Audio of both sides follows the last step that is waited for by at most a frame.
  await new Promise((resolve) => setTimeout(resolve, 300));
  const has = (sdp, what) => sdp.includes(what);
  const agreed = {
    sped: /^a=ice-options:.*(sped|goog)/im.test(offered) && /^a=ice-options:.*(sped|goog)/im.test(answered),
    snap: has(offered, "a=sctp-init:") && has(answered, "a=sctp-init:"),
  };
  pc.close();
  microphone.getTracks().forEach((track) => track.stop());
  await fetch(response.headers.get("Location"), { method: "DELETE" });
  return { marks, agreed };
}

/** The same by fronthaul.js, counted from the click; `ticket`: with one that was there before. */
export async function module({ model, ticket, patience }) {
  const marks = {};
  const { Call } = await import("/fronthaul.js");
  const call = new Call({ model, audio: false });
  const message = new Promise((resolve) => call.addEventListener("event", () => resolve((marks.message ??= performance.timeOrigin + performance.now()))));
  if (ticket && !(await call.prepare("ticket"))) throw new Error("no ticket was issued");
  const clicked = performance.now();
  marks.click = performance.timeOrigin + clicked;
  await call.connect();
  marks.open = marks.click + call.timings.channel;
  await Promise.race([message, new Promise((resolve) => setTimeout(resolve, patience))]);
  await new Promise((resolve) => setTimeout(resolve, 300));
  const { localDescription, remoteDescription } = call.peerConnection;
  const both = (pattern) => [localDescription, remoteDescription].every(({ sdp }) => pattern.test(sdp));
  const agreed = { sped: both(/^a=ice-options:.*(sped|goog)/im), snap: both(/^a=sctp-init:/m), instant: call.timings.instant };
  call.close();
  return { marks, agreed };
}
