// What pages do with fronthaul.js, for the compiler alone.
import { Call, FronthaulError, connect, iceServersOf, writeAnswer, type CallState, type Ticket } from "../../../crates/edge/page/fronthaul.js";

const call = new Call({
  url: "https://edge.example",
  model: "parrot",
  session: { instructions: "Be brief." },
  token: "t",
  iceServers: iceServersOf('<stun:stun.example.net>; rel="ice-server"'),
  audio: false,
  constraints: { echoCancellation: true },
  reconnect: true,
});
call.addEventListener("state", ({ detail }) => {
  const state: CallState = detail;
  console.log(state);
});
call.addEventListener("response.done", ({ detail }) => console.log(detail.type, detail.response));
call.addEventListener("error", ({ detail }) => console.log(detail.reason, detail.fix, detail.candidates.length));
call.addEventListener("reconnected", ({ detail: { kept, ms } }) => console.log(kept, ms));
const anything: EventTarget = call;

export async function run(ticket: Ticket) {
  const made: boolean = await call.prepare("ticket");
  try {
    await call.connect();
  } catch (error) {
    if (error instanceof FronthaulError && error.code === "refused") console.log(error.status, error.retryAfterMs);
  }
  const { roundTripMs } = await call.stats();
  const relays: RTCIceServer[] | undefined = ticket.ice_servers;
  const answer = writeAnswer(call.peerConnection!.localDescription!.sdp, ticket);
  await call.useMicrophone((await call.devices()).microphones[0].deviceId);
  call.send({ type: "response.create" });
  const muted: boolean = call.mute();
  call.close({ keepalive: true });
  // @ts-expect-error a misspelled option
  new Call({ modell: "parrot" });
  // @ts-expect-error states are a fixed set
  if (call.state === "open") return;
  return [relays?.length, made, roundTripMs?.toFixed(), answer?.sdp, muted, anything, await connect()];
}
