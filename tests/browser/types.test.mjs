// fronthaul.d.ts: that it compiles, and says the same as fronthaul.js.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const read = (name) => readFileSync(path(`../../crates/edge/page/${name}`), "utf8");

test("a page's use of fronthaul.js compiles, and misuse does not", () => {
  const options = ["--noEmit", "--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2022,dom"];
  const { status, stdout } = spawnSync("node", [path("node_modules/typescript/bin/tsc"), ...options, path("types/uses.ts")], { encoding: "utf8" });
  assert.equal(status, 0, stdout);
});

test("each export, method and error code of the module is declared", () => {
  const [module, types] = [read("fronthaul.js"), read("fronthaul.d.ts")];
  const names = (text, pattern) => new Set([...text.matchAll(pattern)].map(([, name]) => name));
  const call = module.slice(module.indexOf("export class Call"), module.indexOf("\n}\n", module.indexOf("export class Call")));
  const found = [
    ...names(module, /^export (?:async )?(?:class|function) (\w+)/gm),
    ...names(call, /^ {2}(?:get |async )?([a-z]\w+)\(/gm),
    ...[...names(module, /new FronthaulError\(\s*"(\w+)"/g), ...names(module, /: \["(\w+)", "/g)].map((code) => `"${code}"`),
  ];
  assert.ok(found.length > 30, found.join());
  assert.deepEqual(found.filter((name) => !types.includes(name)), []);
  const documented = readFileSync(path("../../docs/REALTIME.md"), "utf8");
  const codes = found.filter((name) => name.startsWith('"')).map((name) => name.slice(1, -1));
  // Of the program's own making, or of nobody's.
  const internal = ["server", "unexpected", "closed", "busy", "not_connected"];
  assert.deepEqual(codes.filter((code) => !internal.includes(code) && !documented.includes(`\`${code}\``)), []);
});

test("options, events and a ticket's fields are the same in the module, the types and the edge", () => {
  const [module, types, ticket] = [read("fronthaul.js"), read("fronthaul.d.ts"), readFileSync(path("../../crates/edge/src/signaling/ticket.rs"), "utf8")];
  const body = (text, head) => text.slice(text.indexOf(head), text.indexOf("\n}", text.indexOf(head)));
  const names = (text, pattern) => [...new Set([...text.matchAll(pattern)].map(([, name]) => name))].sort();
  const declared = (name) => names(body(types, `export interface ${name} {`), /^ {2}(\w+)\??:/gm);
  const known = /const known = \[(.*?)\]/s.exec(module)[1];
  assert.deepEqual(declared("CallOptions"), names(known, /"(\w+)"/g));
  assert.deepEqual(declared("CallEvents"), names(module, /#tell\("(\w+)"/g));
  assert.deepEqual(declared("Ticket"), names(body(ticket, "pub struct Issued {"), /^ {4}pub (\w+):/gm));
  const used = names(module, /\bticket\.(\w+)/g).filter((name) => name !== "until");
  assert.deepEqual(used.filter((name) => !declared("Ticket").includes(name)), []);
});
