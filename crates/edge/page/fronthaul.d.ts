// Types of fronthaul.js.

/** What a call is made of; everything has a default. */
export interface CallOptions {
  /** The edge. Defaults to the origin that this module was loaded from. */
  url?: string;
  /** Defaults to the server's default model. */
  model?: string;
  /** The session, as `session.update` takes it. */
  session?: Record<string, unknown>;
  /** Sent as `Authorization: Bearer`. */
  token?: string;
  /** Further headers of every request. */
  headers?: Record<string, string>;
  /** STUN and TURN servers. Those that the edge names are used too, from the second attempt on. */
  iceServers?: RTCIceServer[];
  /** Plays the agent: an element of the page, or `false` for none. Defaults to an element of the module's own. */
  audio?: HTMLAudioElement | false;
  /** Of the microphone: echo cancellation and the like. Defaults to the browser's. */
  constraints?: MediaTrackConstraints;
  /** `false`: a lost connection ends the call. Defaults to `true`. */
  reconnect?: boolean;
}

export type CallState = "idle" | "preparing" | "ready" | "connecting" | "connected" | "reconnecting";

/** An event of the Realtime API. */
export interface RealtimeEvent {
  type: string;
  event_id?: string;
  [field: string]: unknown;
}

/** Milliseconds from the click. */
export interface Timings {
  /** Whether the connection was there before the click. */
  warm?: boolean;
  /** Whether a ticket's answer made it, without waiting for a request. */
  instant?: boolean;
  microphone?: number;
  /** The event channel is open. */
  channel?: number;
  /** Both of these. */
  connected?: number;
  /** The first event of the server's after the click. */
  firstEvent?: number;
}

/** What is not known yet is not there. */
export interface CallStats {
  roundTripMs?: number;
  lossPercent?: number;
  jitterMs?: number;
  /** How much later than received the user hears. */
  playoutDelayMs?: number;
}

export interface Devices {
  microphones: MediaDeviceInfo[];
  speakers: MediaDeviceInfo[];
}

/** `type` of each event, and its `detail`. Events of the API come by their own names too: `response.done`. */
export interface CallEvents {
  state: CallState;
  /** Every event of the server. */
  event: RealtimeEvent;
  /** What the agent says. */
  track: MediaStream;
  /** The microphone in use. */
  microphone: MediaStreamTrack;
  /** Devices that may be chosen, after each change. */
  devices: Devices;
  /** The connection was repaired; `kept`: it is the same call, with the same conversation. */
  reconnected: { kept: boolean; ms: number; why: string };
  /** State of the connection's path, as the browser has it. */
  path: RTCIceConnectionState;
  playout: { delayMs: number };
  error: FronthaulError;
}

/** `code` is for programs, `reason` and `fix` for people; the message is both. */
export class FronthaulError extends Error {
  readonly code:
    | "microphone_denied"
    | "microphone_missing"
    | "microphone_busy"
    | "microphone_failed"
    | "insecure_context"
    | "edge_unreachable"
    | "edge_slow"
    | "refused"
    | "bad_answer"
    | "no_path"
    | "no_channel"
    | "playback_blocked"
    | "not_connected"
    | "busy"
    | "closed"
    | "ended"
    | "lost"
    | "unexpected"
    | (string & {});
  readonly reason: string;
  readonly fix: string;
  /** HTTP, where the edge refused. */
  readonly status?: number;
  readonly retryAfterMs?: number;
  /** Addresses that were tried: `UDP 192.0.2.7:3478`. */
  readonly candidates: string[];
}

/** One call, which outlives its connections. */
export class Call extends EventTarget {
  constructor(options?: CallOptions);
  readonly state: CallState;
  readonly stream?: MediaStream;
  readonly microphone?: MediaStreamTrack;
  readonly muted: boolean;
  readonly timings: Timings;
  readonly speaker?: HTMLAudioElement;
  /** The peer connection in use. Changes with a reconnect. */
  readonly peerConnection?: RTCPeerConnection;
  /**
   * "connection" (the default): connects before the click, without a microphone, which `connect` then only puts in; takes a
   * seat at the edge. "ticket": has an answer ready before there is an offer. Gives whether it did.
   */
  prepare(what?: "connection" | "ticket"): Promise<boolean>;
  /** Resolves once the user can be heard and events flow. Throws `FronthaulError`. */
  connect(): Promise<this>;
  /** Sends a client event. Throws where there is no open channel. */
  send(event: { type: string; [field: string]: unknown }): void;
  mute(muted?: boolean): boolean;
  /** Goes on with another microphone: a device id, a track of the page's own, or nothing for the default. */
  useMicrophone(device?: string | MediaStreamTrack): Promise<MediaStreamTrack>;
  useSpeaker(deviceId: string): Promise<void>;
  devices(): Promise<Devices>;
  stats(): Promise<CallStats>;
  /** Repairs the connection at once. */
  restart(): Promise<void>;
  /** Hangs up. `keepalive`: the page goes away. */
  close(options?: { keepalive?: boolean }): void;

  addEventListener<K extends keyof CallEvents>(type: K, listener: (event: CustomEvent<CallEvents[K]>) => void, options?: boolean | AddEventListenerOptions): void;
  addEventListener(type: `${string}.${string}`, listener: (event: CustomEvent<RealtimeEvent>) => void, options?: boolean | AddEventListenerOptions): void;
  addEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: boolean | AddEventListenerOptions): void;
}

/** A call that is connected. */
export function connect(options?: CallOptions): Promise<Call>;

/** TURN and STUN servers of a `Link` header (RFC 9725 §4.6). */
export function iceServersOf(link: string | null | undefined): RTCIceServer[];

/** A ticket of `POST /v1/realtime/tickets`, as docs/WEBRTC.md has it. */
export interface Ticket {
  session_id: string;
  ufrag: string;
  pwd: string;
  fingerprint: string;
  candidates: string[];
  sctp_init: string;
  ice_options: string;
  setup: string;
  sctp_port: number;
  max_message_size: number;
  ssrc: number;
  cname: string;
  /** The answer's parameters of Opus; without it those that every edge takes. */
  opus_parameters?: string;
  /** What becomes of RED in the answer; without it there is none. */
  red?: "off" | "offered" | "prefer";
  sdp_session: string;
  /** Those that the edge names. */
  ice_servers?: RTCIceServer[];
  expires_in_ms: number;
  max_call_seconds: number;
}

/** The answer to an offer, made from a ticket. Nothing for an offer that has to be posted. */
export function writeAnswer(offer: string, ticket: Ticket, stream?: number): { sdp: string; ufrag: string; pwd: string } | undefined;
