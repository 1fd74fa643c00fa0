// A headless Chromium whose microphone plays a file, on the harness page of its own origin.

import { createServer } from "node:http";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { writeWav } from "./speech.mjs";

const TYPES = { html: "text/html", js: "text/javascript" };

/** Serves the harness on a port of its own, so that calls to the edge are cross-origin as in production. */
export async function serveHarness() {
  const server = createServer((request, response) => {
    const name = request.url === "/" ? "index.html" : request.url.slice(1);
    try {
      const body = readFileSync(new URL(`../harness/${name}`, import.meta.url));
      response.writeHead(200, { "Content-Type": TYPES[name.split(".").at(-1)] }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

/** Opens a browser whose microphone says `pcm` (16 kHz) once, from the moment it is opened; `args` are further switches. */
export async function openBrowser(pcm, { loopback = true, args = [] } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "fronthaul-browser-"));
  const wav = join(folder, "microphone.wav");
  writeWav(wav, pcm);
  const server = await chromium.launchServer({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      "--autoplay-policy=no-user-gesture-required",
      "--use-fake-ui-for-media-stream",
      "--use-fake-device-for-media-stream",
      `--use-file-for-fake-audio-capture=${wav}%noloop`,
      ...(loopback ? ["--allow-loopback-in-peer-connection"] : []),
      ...args,
    ],
  });
  const browser = await chromium.connect(server.wsEndpoint());
  const context = await browser.newContext({ permissions: ["microphone"] });
  // Killed, it leaves as a phone without battery does: nothing is said to anybody.
  const close = async ({ kill = false } = {}) => {
    if (kill) await server.kill();
    else await server.close();
    rmSync(folder, { recursive: true, force: true });
  };
  return { context, close };
}

/** The harness page in a browser of its own. */
export async function openHarness(pcm, options) {
  const server = await serveHarness();
  const { context, close } = await openBrowser(pcm, options);
  const page = await context.newPage();
  page.on("pageerror", (error) => console.error("page:", error.message));
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  await page.waitForFunction(() => window.call);
  return {
    page,
    close: async (how) => {
      await close(how);
      server.close();
    },
  };
}
