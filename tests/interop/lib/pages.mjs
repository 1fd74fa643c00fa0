// Apps on clients as they are shipped: bundled, and served on a port of their own, as an app's server is another one than the edge.

import { createServer } from "node:http";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { openBrowser } from "../../browser/lib/browser.mjs";
import { openFirefox, ownAddress } from "../../browser/lib/firefox.mjs";
import { until } from "../../browser/lib/servers.mjs";
import { concat, prompt, silence, writeWav } from "../../browser/lib/speech.mjs";
import { run } from "./client.mjs";

const SAID = prompt("tt-weasels");
/** Said from the start of the browser: a first sentence, and a second one into the reply. */
const SPEECH = concat(silence(4), SAID, silence(2.2), SAID, silence(30));

const web = (name) => new URL(`../web/${name}`, import.meta.url).pathname;

/** Serves the page of `web/NAME.js`, and `recording` as /speech.wav; gives its address. */
async function servePage(name, recording) {
  const { outputFiles } = await build({ entryPoints: [web(`${name}.js`)], bundle: true, format: "iife", platform: "browser", write: false, logLevel: "error" });
  const script = outputFiles[0].text;
  const page = `<!doctype html><meta charset="utf-8"><title>${name}</title><script src="/app.js"></script>`;
  const server = createServer(({ url }, response) => {
    const [type, body] = url === "/app.js" ? ["text/javascript", script] : url === "/" ? ["text/html", page] : url === "/speech.wav" && recording ? ["audio/wav", recording] : [undefined, ""];
    response.writeHead(type ? 200 : 404, { "Content-Type": type ?? "text/plain" }).end(body);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

function wav(pcm) {
  const folder = mkdtempSync(join(tmpdir(), "fronthaul-interop-"));
  writeWav(join(folder, "speech.wav"), pcm);
  const bytes = readFileSync(join(folder, "speech.wav"));
  rmSync(folder, { recursive: true, force: true });
  return bytes;
}

const BROWSERS = {
  chromium: {
    address: "127.0.0.1",
    open: async (url) => {
      const { context, close } = await openBrowser(SPEECH);
      const page = await context.newPage();
      await page.goto(url);
      return { page, close };
    },
  },
  firefox: {
    address: ownAddress(),
    // Its fake microphone hums: what is said is the page's.
    speech: "/speech.wav",
    open: async (url) => {
      const { page, close } = await openFirefox();
      await page.goto(url);
      return { page, close };
    },
  },
};

/** Runs `work(step, page, edge)` with the page of `web/APP.js` in a browser; gives the events of the API that the page saw. */
export async function withPage(name, app, browser, version, work) {
  const { address, open, speech } = BROWSERS[browser];
  const servers = { host: address, top: `public = ["${address}"]` };
  return run({ name: `${name}, ${browser}`, version, edge: servers }, async (step, edge) => {
    const site = await servePage(app, wav(SPEECH));
    const { page, close } = await open(site.url);
    try {
      await work(step, page, { ...edge, speech: speech && new URL(speech, site.url).href });
      return (await seenBy(page)).filter(({ detail }) => detail?.event_id).map(({ detail }) => detail);
    } catch (error) {
      const seen = await page.evaluate(() => JSON.stringify(window.app.seen.map(({ type, detail }) => [type, type.includes("error") ? detail : ""]))).catch(() => "");
      throw new Error(`${error.message}\nthe page saw ${seen}`, { cause: error });
    } finally {
      await close();
      site.close();
    }
  });
}

/** What the page noted: `{ at, type, detail }`. */
export const seenBy = (page) => page.evaluate(() => window.app.seen);
/** Waits until the page noted `count` of a type. */
export const came = (page, type, count = 1, ms = 20_000) =>
  until(`${type} (${count})`, async () => (await seenBy(page)).filter((event) => event.type === type).length >= count, { ms });
