// The documentation's own example, with the address of the server in its two places.
window.app = {
  seen: [],

  async connect({ url, key, model }) {
    const pc = (this.pc = new RTCPeerConnection());
    const audio = (this.element = document.createElement("audio"));
    audio.autoplay = true;
    pc.ontrack = (event) => (audio.srcObject = event.streams[0]);
    const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
    pc.addTrack(microphone.getTracks()[0]);
    const channel = (this.channel = pc.createDataChannel("oai-events"));
    channel.addEventListener("message", ({ data }) => this.seen.push({ at: performance.now(), ...{ detail: JSON.parse(data) }, type: JSON.parse(data).type }));
    const opened = new Promise((resolve) => channel.addEventListener("open", resolve));
    this.send = (event) => channel.send(JSON.stringify(event));
    const began = performance.now();
    await pc.setLocalDescription(await pc.createOffer());
    const response = await fetch(`${url}/v1/realtime/calls?model=${model}`, {
      method: "POST",
      body: pc.localDescription.sdp,
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/sdp" },
    });
    await pc.setRemoteDescription({ type: "answer", sdp: await response.text() });
    await opened;
    return { ms: performance.now() - began, callId: response.headers.get("Location")?.split("/").at(-1) };
  },

  press: (key) => window.app.pc.getSenders()[0].dtmf.insertDTMF(key),
  ended: () => window.app.channel.readyState === "closed" || window.app.pc.connectionState !== "connected",
  close: () => window.app.pc.close(),
};
