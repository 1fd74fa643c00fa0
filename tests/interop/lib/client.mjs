// One client's run: steps in their order, each with its time; the first that fails ends it.

import { readFileSync } from "node:fs";
import { until } from "../../browser/lib/servers.mjs";
import { openEdge } from "./edge.mjs";

/**
 * Runs `work(step, edge)` against servers of its own. `step(title, carryOut)` carries out and notes one step. `work` gives the server
 * events that the client got. When it is over, the edge must have let go of every session.
 */
export async function run({ name, version, edge: options }, work) {
  const steps = [];
  const step = async (title, carryOut) => {
    const began = performance.now();
    const entry = { title, ok: false };
    steps.push(entry);
    const figures = await carryOut();
    Object.assign(entry, { ok: true, ms: Math.round(performance.now() - began), ...(figures && { figures }) });
    return figures;
  };
  const edge = await openEdge(options);
  let error;
  let events;
  try {
    events = await work(step, edge, steps);
    await step("after it closed, nothing is left", () =>
      until("the end of the session", async () => (await edge.metrics()).edge.fronthaul_edge_sessions === 0, { ms: 40_000 }).then(() => undefined),
    );
  } catch (fault) {
    error = `${fault.stack ?? fault}\n${edge.logs()}`;
  } finally {
    await edge.stop();
  }
  return { name, version: version(), ok: error === undefined, steps, ...(error && { error }), events: events ?? [] };
}

/** The version of an npm package that is installed here. */
export const npmVersion = (name) => () => JSON.parse(readFileSync(new URL(`../node_modules/${name}/package.json`, import.meta.url))).version;

/** Events in the order in which they came, each `type` once; throws what is missing. */
export function inOrder(seen, types) {
  let from = 0;
  for (const type of types) {
    const at = seen.findIndex((event, index) => index >= from && event.type === type);
    if (at < 0) throw new Error(`no ${type} after ${types.slice(0, types.indexOf(type)).join(", ")}; came: ${seen.map((event) => event.type).join(" ")}`);
    from = at + 1;
  }
}
