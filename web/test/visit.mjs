// Pages to test in: each has a browser, a server and storage of its own. $CHROMIUM names the browser.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { ISOLATION, MOUNTS, serve } from "../serve.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
export const repository = path.join(here, "../..");
export const expected = JSON.parse(fs.readFileSync(path.join(repository, "tests/data/web/austen.json"), "utf8"));
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const ARGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run", "--enable-precise-memory-info"];
const SOFTWARE_GPU = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];
export const MODEL = "/models/austen-q8_0.gguf";
export const MODEL_FILE = path.join(MOUNTS["/models"], "austen-q8_0.gguf");
export const input = (options, maxTokens = 48) => ({ ...expected, model: MODEL, options, maxTokens });

/**
 * A page of a fresh browser, with what its server was asked for. What pages keep is in memory, or with `onDisk` in a
 * folder that is gone in the end.
 */
export async function visit({ onDisk = false, mounts, args = SOFTWARE_GPU, headers = ISOLATION, address = "/blank.html", answer = () => false, ...rest } = {}) {
  const asked = [];
  const hear = (request, response) => {
    asked.push({ url: request.url, range: request.headers.range });
    if (request.url === "/favicon.ico") {
      response.writeHead(204).end();
      return true;
    }
    if (request.url === "/blank.html") {
      response.writeHead(200, { ...headers, "content-type": "text/html" }).end("<!doctype html><title>test</title>");
      return true;
    }
    return answer(request, response);
  };
  const { server, url } = await serve({ mounts, headers, answer: hear });
  const profile = onDisk ? fs.mkdtempSync(path.join(os.tmpdir(), "hadal-profile-")) : undefined;
  const started = { executablePath, args: [...ARGS, ...args], ignoreDefaultArgs: ["--disable-gpu"] };
  const browser = profile ? undefined : await chromium.launch(started);
  const context = await (browser ? browser.newContext(rest) : chromium.launchPersistentContext(profile, { ...started, ...rest }));
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.setDefaultTimeout(120_000);
  await page.goto(url + address);
  const end = async () => {
    await (browser ?? context).close();
    server.closeAllConnections();
    server.close();
    if (profile) fs.rmSync(profile, { recursive: true });
  };
  return { page, asked, url, complaints, context, end };
}

/** What `work` gives in a page; `hadal` is the package there. */
export function inPage(page, work, input) {
  const source = `async (input) => { const hadal = await import("/hadal/index.js"); return (${work})(hadal, input); }`;
  return page.evaluate(`(${source})(${JSON.stringify(input ?? null)})`);
}

export function speed({ firstTokenSeconds, generatedTokens, generateSeconds }) {
  return `${((generatedTokens - 1) / generateSeconds).toFixed(1)} tokens/s, first token after ${firstTokenSeconds.toFixed(3)} s`;
}
