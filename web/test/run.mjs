// Drives the package and the page in headless Chromium: `npm test [NAME...]`. $CHROMIUM names the browser, $SHOTS the folder
// for pictures of the page. Every test has a page, a server and storage of its own.
import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { ISOLATION, MOUNTS, serve } from "../serve.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const repository = path.join(here, "../..");
const expected = JSON.parse(fs.readFileSync(path.join(repository, "tests/data/web/austen.json"), "utf8"));
const shots = process.env.SHOTS ?? path.join(os.tmpdir(), "hadal-page");
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const ARGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run", "--enable-precise-memory-info"];
const SOFTWARE_GPU = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];
const MODEL = "/models/austen-q8_0.gguf";
const MODEL_FILE = path.join(MOUNTS["/models"], "austen-q8_0.gguf");

/** A page of a fresh browser, with what its server was asked for. */
async function visit({ args = SOFTWARE_GPU, headers = ISOLATION, address = "/blank.html", answer = () => false, ...rest } = {}) {
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
  const { server, url } = await serve({ headers, answer: hear });
  const browser = await chromium.launch({ executablePath, args: [...ARGS, ...args], ignoreDefaultArgs: ["--disable-gpu"] });
  const context = await browser.newContext(rest);
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.setDefaultTimeout(120_000);
  await page.goto(url + address);
  const end = async () => {
    await browser.close();
    server.closeAllConnections();
    server.close();
  };
  return { page, asked, url, complaints, browser, context, end };
}

/** What `work` gives in a page; `hadal` is the package there. */
function inPage(page, work, input) {
  const source = `async (input) => { const hadal = await import("/hadal/index.js"); return (${work})(hadal, input); }`;
  return page.evaluate(`(${source})(${JSON.stringify(input ?? null)})`);
}

async function compute({ Engine }, { model, options, prompt, tokens, maxTokens }) {
  const engine = await Engine.open(model, options);
  const logits = await engine.logits(tokens);
  const bits = new Uint32Array(logits.buffer, logits.byteOffset, logits.length);
  const answer = engine.generate(prompt, { sampling: { temperature: 0, maxTokens } });
  const result = {
    info: engine.info(),
    tokens: [...(await engine.tokenize(prompt))],
    text: await engine.detokenize(tokens),
    bits: [...bits].filter((_, index) => index % 16 === 0),
    sum: bits.reduce((sum, bits) => (sum + bits) >>> 0, 0),
    best: logits.indexOf(Math.max(...logits)),
    greedy: await answer.text(),
    stats: await answer.stats,
  };
  await engine.dispose();
  return result;
}

const input = (options, maxTokens = 48) => ({ ...expected, model: MODEL, options, maxTokens });

const tests = {
  /** (a) and (f): the same tokens on WebGPU, with all that the adapter has and with the floor. */
  async webgpu() {
    const { page, end, complaints } = await visit();
    for (const options of [{ device: "webgpu" }, { device: "webgpu", limits: "floor" }]) {
      // A GPU that is a program on one core takes its time.
      const found = await inPage(page, compute, input(options, 12));
      assert.notEqual(found.info.device, "cpu");
      assert.equal(found.info.gpuLayers, found.info.layers);
      assert.ok(found.info.gpuBytes > 4e6, "the weights are on the device");
      assert.ok(found.greedy.length > 20 && expected.greedy.startsWith(found.greedy), found.greedy);
      console.log(`  ${found.info.device} ${options.limits ?? "all limits"}: ${speed(found.stats)}`);
    }
    assert.deepEqual(complaints, []);
    await end();
  },

  /** (b) The CPU: the bits of the native engine. */
  async cpu() {
    const { page, end } = await visit({ args: [] });
    const found = await inPage(page, compute, input({ device: "cpu" }));
    assert.deepEqual(found.tokens, expected.tokens);
    assert.equal(found.text, expected.prompt);
    assert.deepEqual(found.bits, expected.bits);
    assert.equal(found.sum, expected.sum);
    assert.equal(found.greedy, expected.greedy);
    assert.equal(found.info.simd, "simd128");
    console.log(`  ${found.info.why}: ${speed(found.stats)}`);
    await end();
  },

  /** The choice of `auto`: no software GPU, and no word to WebGPU where the CPU was asked for. */
  async device() {
    const { page, end } = await visit();
    const found = await inPage(page, async ({ Engine }, model) => {
      const engine = await Engine.open(model);
      const { device, why } = engine.info();
      await engine.dispose();
      return { device, why };
    }, MODEL);
    assert.equal(found.device, "cpu");
    assert.match(found.why, /adapter is a program on the CPU/);
    await end();
  },

  /** (c) An answer ends with the token that is being computed; two engines answer at once; a hundred come and go. */
  async stopping() {
    const { page, end } = await visit();
    const found = await inPage(page, async ({ Engine }, model) => {
      const result = {};
      for (const device of ["cpu", "webgpu"]) {
        const engine = await Engine.open(model, { device });
        const stop = new AbortController();
        const answer = engine.generate("It is", { signal: stop.signal, sampling: { temperature: 0, maxTokens: 400 } });
        let heard = 0;
        for await (const _ of answer) if (++heard === 3) stop.abort();
        const stats = await answer.stats;
        let left = 0;
        const second = engine.generate("It is", { sampling: { temperature: 0, maxTokens: 400 } });
        for await (const _ of second) if (++left === 2) break;
        const after = await engine.generate("It is", { sampling: { temperature: 0, maxTokens: 4 } }).stats;
        result[device] = { finish: stats.finish, tokens: stats.generatedTokens, left: (await second.stats).finish, after: after.generatedTokens };
        await engine.dispose();
      }
      return result;
    }, MODEL);
    for (const { finish, tokens, left, after } of Object.values(found)) {
      assert.equal(finish, "aborted");
      assert.ok(tokens <= 5, `${tokens} tokens, of which three were heard before it was stopped`);
      assert.equal(left, "aborted");
      assert.equal(after, 4);
    }
    await end();
  },

  async two() {
    const { page, end } = await visit();
    const texts = await inPage(page, async ({ Engine }, { model, prompt }) => {
      const engines = await Promise.all(["cpu", "webgpu"].map((device) => Engine.open(model, { device })));
      const answers = engines.map((engine, index) => engine.generate(prompt, { sampling: { temperature: 0, maxTokens: index ? 8 : 48 } }).text());
      const texts = await Promise.all(answers);
      await Promise.all(engines.map((engine) => engine.dispose()));
      return texts;
    }, input());
    assert.equal(texts[0], expected.greedy);
    assert.ok(texts[1].length > 10 && expected.greedy.startsWith(texts[1]), texts[1]);
    await end();
  },

  async dispose() {
    const { page, browser, end } = await visit();
    const cycle = (count) => inPage(page, async ({ Engine }, { model, count }) => {
      for (let index = 0; index < count; index++) {
        const engine = await Engine.open(model, { device: index % 20 === 0 ? "webgpu" : "cpu", contextLength: 64 });
        await engine.generate("It", { sampling: { maxTokens: 2 } }).stats;
        await engine.dispose();
      }
    }, { model: MODEL, count });
    await cycle(20);
    const before = resident(browser);
    await cycle(80);
    const grown = resident(browser) - before;
    console.log(`  ${(before / 1e6).toFixed(0)} MB after 20 engines, ${(grown / 1e6).toFixed(0)} MB more after 100`);
    // Each that stayed would take 20 MB at least.
    assert.ok(grown < 300e6, `${grown} bytes stay`);
    const after = await inPage(page, async ({ Engine }, model) => {
      const engine = await Engine.open(model, { device: "cpu" });
      const answer = engine.generate("It is", { sampling: { maxTokens: 400 } }).text().catch((error) => error.code);
      await engine.dispose();
      return [await answer, await engine.tokenize("x").catch((error) => error.code)];
    }, MODEL);
    assert.deepEqual(after, ["disposed", "disposed"]);
    await end();
  },

  /** (d) What is kept is not fetched again; what was cut goes on; what is wrong is refused. */
  async keeping() {
    let cut = 0;
    let offline = false;
    const size = fs.statSync(MODEL_FILE).size;
    const answer = (request, response) => {
      if (!request.url.startsWith(MODEL)) return false;
      if (offline) return response.destroy(), true;
      if (cut-- > 0) {
        // Some bytes more, and then nothing.
        const from = Number(/(\d+)-/.exec(request.headers.range)[1]);
        response.writeHead(206, { ...ISOLATION, etag: `"${size}-${Math.floor(fs.statSync(MODEL_FILE).mtimeMs)}"`, "content-range": `bytes ${from}-${size - 1}/${size}`, "content-length": size - from });
        fs.createReadStream(MODEL_FILE, { start: from, end: from + 1_000_000 }).on("end", () => setTimeout(() => response.destroy(), 50)).pipe(response, { end: false });
        return true;
      }
      return false;
    };
    const { page, asked, end } = await visit({ answer });
    const open = (source, options) => inPage(page, async ({ Engine }, { source, options }) => {
      const heard = [];
      try {
        const engine = await Engine.open(source, { device: "cpu", ...options, onProgress: (progress) => heard.push(progress) });
        await engine.dispose();
        return { heard };
      } catch ({ code, message, advice }) {
        return { heard, code, message, advice };
      }
    }, { source, options });
    const models = () => asked.filter(({ url }) => url.startsWith(MODEL));
    const hash = "0".repeat(64);

    cut = 2;
    const first = await open(MODEL);
    assert.equal(first.code, undefined, first.message);
    const { phase, loaded, total } = first.heard.at(-1);
    assert.deepEqual({ phase, loaded, total }, { phase: "load", loaded: size, total: size });
    const froms = models().map(({ range }) => Number(/(\d+)-/.exec(range)[1]));
    assert.equal(froms.length, 3);
    assert.ok(froms[1] > 500_000 && froms[2] > froms[1], `it goes on where it was cut: ${froms}`);

    offline = true;
    asked.length = 0;
    assert.equal((await open(MODEL)).code, undefined);
    assert.deepEqual(models(), [], "the second time nothing is fetched");
    assert.equal((await open("opfs:austen-q8_0.gguf")).code, undefined);
    const milliseconds = await inPage(page, async ({ Engine }, model) => {
      const start = performance.now();
      const engine = await Engine.open(model, { device: "cpu" });
      for await (const _ of engine.generate("It is")) break;
      const taken = performance.now() - start;
      await engine.dispose();
      return taken;
    }, MODEL);
    console.log(`  ${milliseconds.toFixed(0)} ms from opening a kept model to its first token`);
    const gone = await open(`${MODEL}?other`);
    assert.equal(gone.code, "network");
    assert.match(gone.advice, /goes on where it stopped/);

    const listed = await inPage(page, ({ cache }) => cache.list());
    assert.equal(listed.length, 1);
    assert.deepEqual([listed[0].name, listed[0].size, listed[0].complete], ["austen-q8_0.gguf", size, true]);

    const wrong = await open({ url: MODEL, sha256: hash });
    assert.equal(wrong.code, "integrity");
    assert.match(wrong.message, /has the SHA-256 [0-9a-f]{64}, not 0{64}/);
    assert.deepEqual(await inPage(page, ({ cache }) => cache.list()), [], "what is wrong is not kept");
    offline = false;
    const right = /SHA-256 ([0-9a-f]{64})/.exec(wrong.message)[1];
    assert.equal((await open({ url: MODEL, sha256: right, size })).code, undefined);
    assert.equal((await open({ url: MODEL, size: 17 })).code, "integrity");
    assert.equal(await inPage(page, ({ cache }) => cache.remove()), 1);
    assert.deepEqual(await inPage(page, ({ cache }) => cache.list()), []);
    await end();
  },

  /** A download that is stopped is gone on with by the next one. */
  async resuming() {
    const size = fs.statSync(MODEL_FILE).size;
    const { page, asked, context, end } = await visit();
    const client = await context.newCDPSession(page);
    const found = await inPage(page, async ({ Engine, cache }, model) => {
      const stop = new AbortController();
      const onProgress = ({ loaded }) => loaded > 0 && stop.abort();
      const code = await Engine.open(model, { device: "cpu", signal: stop.signal, onProgress }).catch((error) => error.code);
      const [file] = await cache.list();
      const engine = await Engine.open(model, { device: "cpu" });
      await engine.dispose();
      return { code, file };
    }, MODEL);
    assert.equal(found.code, "aborted");
    assert.ok(found.file.bytes > 0 && found.file.bytes <= size);
    const last = asked.filter(({ url }) => url === MODEL).at(-1);
    if (!found.file.complete) assert.equal(last.range, `bytes=${found.file.bytes}-${size}`.replace(String(size), String(size - 1)));
    await client.detach();
    await end();
  },

  /** No room: the model is used from memory, and said so. */
  async quota() {
    const { page, url, context, end } = await visit();
    const client = await context.newCDPSession(page);
    await client.send("Storage.overrideQuotaForOrigin", { origin: url, quotaSize: 1_000_000 });
    const found = await inPage(page, async ({ Engine, cache }, { model, prompt }) => {
      const notices = [];
      const engine = await Engine.open(model, { device: "cpu", onNotice: (text) => notices.push(text) });
      const text = await engine.generate(prompt, { sampling: { temperature: 0, maxTokens: 48 } }).text();
      await engine.dispose();
      return { notices, text, kept: await cache.list() };
    }, input());
    assert.equal(found.text, expected.greedy);
    assert.equal(found.notices.length, 1);
    assert.match(found.notices[0], /no room to keep austen-q8_0\.gguf/);
    assert.deepEqual(found.kept, []);
    await end();
  },

  /** (g) and all else that can be wrong, in words. */
  async errors() {
    const { page, end } = await visit({ args: ["--disable-features=WebGPU", "--disable-gpu"] });
    const found = await inPage(page, async ({ Engine, HadalError }, model) => {
      const code = async (work) => {
        try {
          await work();
          return "nothing was wrong";
        } catch (error) {
          return error instanceof HadalError && error.advice ? error.code : `${error}`;
        }
      };
      const engine = await Engine.open(model, { device: "cpu", contextLength: 16 });
      const codes = {
        webgpu: await code(() => Engine.open(model, { device: "webgpu" })),
        missing: await code(() => Engine.open("/models/none.gguf")),
        foreign: await code(() => Engine.open(new Blob(["no model at all"]))),
        cut: await code(() => Engine.open(new Blob(["GGUF\x03\0\0\0"]))),
        unnamed: await code(() => Engine.open("opfs:none.gguf")),
        kv: await code(() => Engine.open(model, { device: "cpu", kv: "q9" })),
        device: await code(() => Engine.open(model, { device: "gpu" })),
        long: await code(() => Engine.open(model, { device: "cpu", contextLength: 1 << 20 })),
        setting: await code(() => engine.generate("It", { sampling: { topP: 3 } }).text()),
        unknown: await code(() => engine.generate("It", { sampling: { top_p: 3 } }).text()),
        context: await code(() => engine.generate("It is a truth ".repeat(9)).text()),
        chat: await code(() => engine.chat().send("Hello").text()),
      };
      const stats = await engine.generate("It is a truth", { sampling: { temperature: 0 } }).stats;
      await engine.dispose();
      return { codes, finish: stats.finish };
    }, MODEL);
    assert.deepEqual(found.codes, {
      webgpu: "no-webgpu", missing: "network", foreign: "file", cut: "file", unnamed: "file", kv: "option", device: "option",
      long: "option", setting: "option", unknown: "option", context: "context", chat: "no-chat",
    });
    assert.equal(found.finish, "context");
    const old = await inPage(page, async ({ Engine }, model) => {
      WebAssembly.validate = () => false;
      return Engine.open(model).catch(({ code, message }) => ({ code, message }));
    }, MODEL);
    assert.deepEqual(old, { code: "old-browser", message: "this browser has no WebAssembly SIMD" });
    await end();
  },
};

/** The ten lines of docs/web.md, as they stand there. */
tests.docs = async () => {
  const text = fs.readFileSync(path.join(repository, "docs/web.md"), "utf8");
  const lines = /```js\n([^]*?)```/.exec(text)[1];
  assert.ok(lines.trim().split("\n").length <= 10);
  const imports = `<script type="importmap">{"imports": {"hadal": "/hadal/index.js"}}</script>`;
  const answer = (request, response) => {
    if (request.url !== "/ten.html") return false;
    response.writeHead(200, { ...ISOLATION, "content-type": "text/html" });
    response.end(`<!doctype html>${imports}<body><script type="module">${lines}document.title = "done";</script>`);
    return true;
  };
  const { page, end, complaints } = await visit({ address: "/ten.html", answer });
  await page.waitForFunction(() => document.title === "done");
  assert.ok((await page.textContent("body")).length > 20);
  assert.deepEqual(complaints, []);
  await end();
};

function speed({ firstTokenSeconds, generatedTokens, generateSeconds }) {
  return `${((generatedTokens - 1) / generateSeconds).toFixed(1)} tokens/s, first token after ${firstTokenSeconds.toFixed(3)} s`;
}

/** Bytes in memory of the browser's processes. */
function resident(browser) {
  void browser;
  const processes = fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  const parents = new Map();
  const bytes = new Map();
  for (const id of processes) {
    try {
      const stat = fs.readFileSync(`/proc/${id}/stat`, "utf8").split(") ")[1].split(" ");
      parents.set(id, stat[1]);
      bytes.set(id, Number(stat[21]) * 4096);
    } catch {
      // It has ended.
    }
  }
  const ours = (id) => id !== undefined && (id === String(process.pid) || ours(parents.get(id)));
  return [...bytes].filter(([id]) => id !== String(process.pid) && ours(id)).reduce((sum, [, bytes]) => sum + bytes, 0);
}

/** A test that hangs fails: nothing else bounds what a page computes. */
const LIMIT_MS = 600_000;

function within(milliseconds, work) {
  const over = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`not done after ${milliseconds / 1000} s`)), milliseconds).unref();
  });
  return Promise.race([work, over]);
}

const { pageTests } = await import("./page.mjs");
Object.assign(tests, pageTests({ visit, shots, expected }));
const wanted = process.argv.slice(2);
let failures = 0;
fs.mkdirSync(shots, { recursive: true });
for (const [name, test] of Object.entries(tests)) {
  if (wanted.length && !wanted.includes(name)) continue;
  const start = performance.now();
  try {
    await within(LIMIT_MS, test());
    console.log(`ok ${name} (${((performance.now() - start) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failures++;
    console.error(`FAILED ${name}: ${error.stack}`);
  }
}
process.exit(failures ? 1 : 0);
