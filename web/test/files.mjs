// Files: what is fetched, kept, gone on with and refused.
import assert from "node:assert/strict";
import fs from "node:fs";
import { ISOLATION } from "../serve.mjs";
import { MODEL, MODEL_FILE, expected, inPage, input, visit } from "./visit.mjs";

export const fileTests = {
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
};
