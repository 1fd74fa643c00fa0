// A certificate by ACME (RFC 8555) over TLS-ALPN-01 (RFC 8737) from Pebble, Let's Encrypt's test server.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createServer } from "node:net";
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { connect } from "node:tls";

const NAME = "edge.test";
const BIN = join(process.env.FRONTHAUL_BIN, "fronthaul");
const folder = mkdtempSync(join(tmpdir(), "fronthaul-acme-"));
const running = [];

const port = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

function start(command, ...args) {
  const child = spawn(command, args);
  const process = { child, log: "" };
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (process.log += text));
  process.exited = new Promise((resolve) => child.once("exit", resolve));
  running.push(process);
  return process;
}

async function until(what, probe, ms = 60_000) {
  for (const deadline = Date.now() + ms; Date.now() < deadline; await new Promise((next) => setTimeout(next, 100))) {
    const found = await probe();
    if (found) return found;
  }
  throw new Error(`not within ${ms} ms: ${what}\n${running.map(({ log }) => log).join("\n")}`);
}

/** Who issued what the port shows. */
const shown = (http) =>
  new Promise((resolve, reject) => {
    const socket = connect({ port: http, host: "127.0.0.1", servername: NAME, rejectUnauthorized: false }, () => {
      const certificate = socket.getPeerCertificate();
      resolve({ issuer: certificate.issuer.CN ?? "", names: certificate.subjectaltname, serial: certificate.serialNumber });
      socket.end();
    }).on("error", reject);
  });

let http, directory, config;
before(async () => {
  const [acme, management, dns, control, admin] = await Promise.all([port(), port(), port(), port(), port()]);
  http = await port();
  directory = `https://127.0.0.1:${acme}/dir`;
  execFileSync("openssl", [
    ..."req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=acme.test".split(" "),
    ...["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"],
    ...["-keyout", join(folder, "acme.key"), "-out", join(folder, "acme.crt")],
  ]);
  const pebble = {
    listenAddress: `127.0.0.1:${acme}`,
    managementListenAddress: `127.0.0.1:${management}`,
    certificate: join(folder, "acme.crt"),
    privateKey: join(folder, "acme.key"),
    httpPort: 1,
    tlsPort: http,
  };
  writeFileSync(join(folder, "pebble.json"), JSON.stringify({ pebble }));
  config = join(folder, "edge.toml");
  writeFileSync(
    config,
    `workers = 1\nmedia_bind = "127.0.0.1:0"\nhttp_bind = "127.0.0.1:${http}"\nadmin_bind = "127.0.0.1:${admin}"\n` +
      `state_dir = "${folder}/state"\ndefault_model = "echo"\ntransceivers = []\n[models]\necho = "echo"\n` +
      `[tls]\nmode = "acme"\nnames = ["${NAME}"]\nacme_directory = "${directory}"\nacme_roots = "${folder}/acme.crt"\n`,
  );
  start("pebble-challtestsrv", 
    ...["-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-dns01", `127.0.0.1:${dns}`],
    ...["-http01", "", "-https01", "", "-tlsalpn01", "", "-management", `127.0.0.1:${control}`],
  );
  const authority = start("pebble", "-config", join(folder, "pebble.json"), "-dnsserver", `127.0.0.1:${dns}`);
  await until("the authority", () => authority.log.includes("directory available"));
});
after(async () => {
  for (const { child, exited } of running) {
    child.kill("SIGTERM");
    await exited;
  }
  rmSync(folder, { recursive: true, force: true });
});

test("a certificate is ordered, proven over the port itself, shown, and kept over a restart", async () => {
  const first = start(BIN, "edge", "--config", config);
  await until("the port", () => shown(http).catch(() => undefined));
  const issued = await until("a certificate of the authority", async () => {
    const certificate = await shown(http);
    return certificate.issuer.startsWith("Pebble") && certificate;
  });
  assert.equal(issued.names, `DNS:${NAME}`);
  assert.match(first.log, /the authority has issued a certificate/);
  first.child.kill("SIGTERM");
  assert.equal(await first.exited, 0, first.log);
  for (const name of readdirSync(join(folder, "state")).filter((name) => /^(acme|tls)-/.test(name))) {
    assert.equal(statSync(join(folder, "state", name)).mode & 0o777, 0o600, name);
  }

  const second = start(BIN, "edge", "--config", config);
  const again = await until("the port", () => shown(http).catch(() => undefined));
  assert.equal(again.serial, issued.serial);
  assert.doesNotMatch(second.log, /issued/);
  second.child.kill("SIGTERM");
  assert.equal(await second.exited, 0, second.log);
});
