// What the parsers of SDKs make of the events that an edge sends.

import { parseRealtimeEvent } from "../node_modules/@openai/agents-realtime/dist/openaiRealtimeEvents.mjs";

/** The types that are `generic` to @openai/agents-realtime, which then does nothing with them. */
export function untyped(events) {
  return [...new Set(events.filter((event) => parseRealtimeEvent({ data: JSON.stringify(event) }).isGeneric).map(({ type }) => type))];
}
