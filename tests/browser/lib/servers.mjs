// Edge and transceiver as separate processes with files of their own, and the delaying proxy.

import { spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { get } from "node:http";
import { createServer } from "node:net";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const BIN = process.env.FRONTHAUL_BIN;
if (!BIN) throw new Error("FRONTHAUL_BIN names the folder of the built binaries; run tests/run");

export const udpPort = () =>
  new Promise((resolve) => {
    const socket = createSocket("udp4").bind(0, "127.0.0.1", () => {
      const { port } = socket.address();
      socket.close(() => resolve(port));
    });
  });

export const tcpPort = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Asks until `probe` gives something truthy; throws what it last threw, or says that it never came. */
export async function until(what, probe, { ms = 10_000, every = 50 } = {}) {
  const deadline = Date.now() + ms;
  let fault;
  while (Date.now() < deadline) {
    try {
      const found = await probe();
      if (found) return found;
      fault = undefined;
    } catch (error) {
      fault = error;
    }
    await sleep(every);
  }
  throw new Error(`not within ${ms} ms: ${what}${fault ? ` (${fault.message})` : ""}`);
}

function start(folder, name, args) {
  const log = join(folder, `${name}.log`);
  const out = openSync(log, "a");
  const announce = args[0] === "fronthaul" ? ["--announce"] : [];
  const child = spawn(join(BIN, args[0]), [...args.slice(1), ...announce], { stdio: ["ignore", "pipe", out] });
  closeSync(out);
  const exited = new Promise((resolve) => child.once("exit", resolve));
  // One line of name=address, once all ports are open; a port 0 became a free one.
  const ports = new Promise((resolve, reject) => {
    let told = "";
    child.stdout.setEncoding("utf8").on("data", (part) => {
      told += part;
      if (!told.includes("\n")) return;
      const words = told.slice(0, told.indexOf("\n")).split(" ");
      resolve(Object.fromEntries(words.map((word) => [word.split("=")[0], Number(word.split(":").at(-1))])));
    });
    child.once("error", reject);
    exited.then(() => reject(new Error(`the ${name} did not start`)));
  });
  // The proxy's ports are chosen for it: nobody waits for them.
  ports.catch(() => {});
  return {
    child,
    ports,
    log: () => readFileSync(log, "utf8"),
    stop: async () => {
      if (child.exitCode === null && child.signalCode === null) child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), 15_000);
      await exited;
      clearTimeout(timer);
    },
  };
}

/** Starts one edge and one transceiver; `workers` of the edge, whose ports are at `host` and `httpHost`. */
export async function startServers({ workers = 2, host = "127.0.0.1", httpHost = "127.0.0.1", edge = "", transceiver = "" } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "fronthaul-servers-"));
  const state = join(folder, "state");
  writeFileSync(
    join(folder, "transceiver.toml"),
    `link_bind = "127.0.0.1:0"\nadmin_bind = "127.0.0.1:0"\nstate_dir = "${state}"\n${transceiver}\n`,
  );
  const processes = [];
  const started = async (name) => {
    const daemon = start(folder, name, ["fronthaul", name, "--config", join(folder, `${name}.toml`)]);
    processes.push(daemon);
    return await daemon.ports;
  };
  const stop = async () => {
    await Promise.all(processes.map((process) => process.stop()));
    rmSync(folder, { recursive: true, force: true });
  };
  const logs = () => processes.map(({ log }) => log()).join("\n");
  let media, http, edgeAdmin, transceiverAdmin;
  try {
    let link;
    ({ link, admin: transceiverAdmin } = await started("transceiver"));
    writeFileSync(
      join(folder, "edge.toml"),
      `workers = ${workers}\nmedia_bind = "${host}:0"\nhttp_bind = "${httpHost}:0"\n` +
        (httpHost === "127.0.0.1" ? "" : "auth.open = true\n") +
        `admin_bind = "127.0.0.1:0"\nstate_dir = "${state}"\n${edge}\n` +
        `[[transceivers]]\nid = 1\naddress = "127.0.0.1:${link}"\n`,
    );
    ({ media, http, admin: edgeAdmin } = await started("edge"));
    for (const admin of [transceiverAdmin, edgeAdmin]) {
      await until(`readiness on ${admin}`, async () => (await fetch(`http://127.0.0.1:${admin}/readyz`)).ok);
    }
  } catch (error) {
    console.error(logs());
    await stop();
    throw error;
  }
  return {
    url: `http://127.0.0.1:${http}`,
    http,
    media,
    folder,
    logs,
    stop,
    /** Hangs up the calls that the edge's log says it answered and that are still there; gives how many. */
    endCalls: async () => {
      const ids = [...new Set(logs().match(/rtc_[0-9a-f]{16}/g))];
      const ended = await Promise.all(ids.map((id) => fetch(`http://127.0.0.1:${http}/v1/realtime/calls/${id}`, { method: "DELETE" })));
      return ended.filter(({ ok }) => ok).length;
    },
    alive: () => processes.every(({ child }) => child.exitCode === null && child.signalCode === null),
    metrics: async () => ({ edge: await metrics(edgeAdmin), transceiver: await metrics(transceiverAdmin) }),
  };
}

/** `{ "name{label="value"}": number }` of a Prometheus page. */
async function metrics(port) {
  // A connection of its own, so that each reading finds the same: the one that reads.
  const text = await new Promise((resolve, reject) => {
    get({ host: "127.0.0.1", port, path: "/metrics", agent: false }, (response) => {
      response.setEncoding("utf8");
      response.toArray().then((parts) => resolve(parts.join("")), reject);
    }).on("error", reject);
  });
  const lines = text.split("\n").filter((line) => line && !line.startsWith("#"));
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.split(" ").at(-1))]));
}

/**
 * Our proxy in front of the edge's media port `to` at `host`, delaying each direction by `delayMs` and losing `lossPercent`;
 * with `http` (`{ port, to }`) its TCP port too. Its log (crates/loadgen/src/proxy/log.rs) has one object per datagram:
 * `{ t_us, edge_us, dir: "up"|"down", kind: "stun"|"dtls"|"srtp"|"srtcp"|"http", len, stun?, records?, seq?, level?, dropped? }`.
 */
export async function startProxy(to, { delayMs = 0, lossPercent = 0, seed = 1, host = "127.0.0.1", port, http } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "fronthaul-proxy-"));
  port ??= await udpPort();
  const file = join(folder, "packets.jsonl");
  const proxy = start(folder, "proxy", [
    "fronthaul-proxy",
    ...["--listen", `${host}:${port}`, "--to", `${host}:${to}`],
    ...["--delay-ms", `${delayMs}`, "--loss-percent", `${lossPercent}`, "--seed", `${seed}`, "--log", file],
    ...(http ? ["--tcp-listen", `127.0.0.1:${http.port}`, "--tcp-to", `127.0.0.1:${http.to}`] : []),
  ]);
  await until("the proxy's log", () => readFileSync(file) && true);
  return {
    port,
    packets: () => readFileSync(file, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line)),
    stop: async () => {
      await proxy.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
