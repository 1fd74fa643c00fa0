// One client's run: steps in their order, each with its time; the first that fails ends it.

import { readFileSync } from "node:fs";

/** Runs `work` with a function that carries out and notes one step. */
export async function run({ name, version }, work) {
  const steps = [];
  const step = async (title, carryOut) => {
    const began = performance.now();
    const entry = { title, ok: false };
    steps.push(entry);
    const figures = await carryOut();
    Object.assign(entry, { ok: true, ms: Math.round(performance.now() - began), ...(figures && { figures }) });
    return figures;
  };
  let error;
  try {
    await work(step);
  } catch (fault) {
    error = fault.stack ?? String(fault);
  }
  return { name, version: version(), ok: error === undefined, steps, ...(error && { error }) };
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
