// The servers that clients meet: an edge with an API key, as in production, and a transceiver with a model that follows a script.

import { startServers } from "../../browser/lib/servers.mjs";

export const KEY = "interop-0123456789abcdef";
/** What clients ask for. */
export const MODEL = "gpt-realtime";

const script = (name) => new URL(`../scripts/${name}.yaml`, import.meta.url).pathname;

/**
 * Starts both; `gpt-realtime` is the model that follows `scripts/NAME.yaml`. `top` and `tables`: of the edge's config, before and in its
 * tables. `secret(session, limits)` makes an ephemeral key as an app's server does.
 */
export async function openEdge({ name = "assistant", top = "", tables = "", ...options } = {}) {
  const servers = await startServers({
    ...options,
    edge: `${top}\n[models]\nparrot = "parrot"\n${MODEL} = "script"\n${tables}\n[[auth.keys]]\nid = "interop"\nkey = "${KEY}"\ntenant = 1\n`,
    transceiver: `[models.script]\nkind = "script"\npath = "${script(name)}"\n`,
  });
  const secret = async (session = { type: "realtime", model: MODEL }, limits) => {
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
