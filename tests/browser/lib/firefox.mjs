// Firefox ESR on the harness page, with a fake microphone that hums. It pairs with no loopback address as long as there is
// another, so the tests give it one of this machine's.

import { mkdtempSync, rmSync } from "node:fs";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import puppeteer from "puppeteer-core";
import { serveHarness } from "./browser.mjs";

/** An IPv4 address of this machine's, loopback when there is no other. */
export function ownAddress() {
  const all = Object.values(networkInterfaces()).flat();
  return all.find(({ family, internal }) => family === "IPv4" && !internal)?.address ?? "127.0.0.1";
}

export async function openFirefox() {
  const folder = mkdtempSync(join(tmpdir(), "fronthaul-firefox-"));
  const server = await serveHarness();
  const browser = await puppeteer.launch({
    browser: "firefox",
    executablePath: process.env.FIREFOX ?? "/usr/bin/firefox-esr",
    headless: true,
    userDataDir: folder,
    extraPrefsFirefox: {
      "media.peerconnection.ice.loopback": true,
      "media.peerconnection.ice.obfuscate_host_addresses": false,
      "media.navigator.streams.fake": true,
      "media.navigator.permission.disabled": true,
      "media.autoplay.default": 0,
      "media.autoplay.blocking_policy": 0,
    },
  });
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  await page.waitForFunction("window.call");
  return {
    page,
    close: async () => {
      await browser.close();
      server.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
