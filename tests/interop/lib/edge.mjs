// The servers that clients meet: an edge with an API key, as in production, and a transceiver.

import { startServers } from "../../browser/lib/servers.mjs";

export const KEY = "interop-0123456789abcdef";

const AUTH = `\n[[auth.keys]]\nid = "interop"\nkey = "${KEY}"\ntenant = 1\n`;

/** Starts both; `secret(session, limits)` makes an ephemeral key as an app's server does. */
export async function openEdge({ edge = "", ...options } = {}) {
  const servers = await startServers({ ...options, edge: edge + AUTH });
  const secret = async (session = { type: "realtime", model: "parrot" }, limits) => {
    const response = await fetch(`${servers.url}/v1/realtime/client_secrets`, {
      method: "POST",
      headers: { Authorization: `Bearer ${KEY}`, "Content-Type": "application/json" },
      body: JSON.stringify({ session, ...(limits && { limits }) }),
    });
    const body = await response.json();
    if (!response.ok) throw new Error(`${response.status}: ${JSON.stringify(body)}`);
    return body.value;
  };
  return { ...servers, secret };
}
