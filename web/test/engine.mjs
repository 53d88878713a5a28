// The engine: what it computes on each device, how it stops and ends, and what can go wrong.
import assert from "node:assert/strict";
import os from "node:os";
import { MODEL, expected, inPage, input, speed, visit } from "./visit.mjs";
import { resident, workerSeconds } from "./processes.mjs";

/** What SwiftShader has beyond the floor: subgroups of four lanes, and small halves are converted. */
const VARIANTS = ["HALVES", "SUBGROUPS"];

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

export const engineTests = {
  /** (a) and (f): the same tokens on WebGPU, with all that the adapter has and with the floor. */
  async webgpu() {
    const { page, end, complaints } = await visit();
    for (const options of [{ device: "webgpu" }, { device: "webgpu", limits: "floor" }]) {
      // A GPU that is a program on one core takes its time.
      const found = await inPage(page, compute, input(options, 12));
      assert.notEqual(found.info.device, "cpu");
      assert.equal(found.info.gpuLayers, found.info.layers);
      const { weightBytes, kvBytes, gpuBytes, scratchBytes, moduleBytes, gpuVariants } = found.info;
      assert.ok(gpuBytes > weightBytes + scratchBytes && scratchBytes > 0 && kvBytes > 0, "the weights are on the device");
      assert.ok(moduleBytes > 1e6 && moduleBytes < 100e6, `${moduleBytes}`);
      assert.deepEqual(gpuVariants, options.limits ? [] : VARIANTS);
      assert.ok(found.greedy.length > 20 && expected.greedy.startsWith(found.greedy), found.greedy);
      console.log(`  ${found.info.device} ${options.limits ?? "all limits"}: ${speed(found.stats)}`);
    }
    assert.deepEqual(complaints, []);
    await end();
  },

  /** (b) The CPU, on one thread and on several: the bits of the native engine. */
  async cpu() {
    const checked = async (page, options) => {
      const found = await inPage(page, compute, input({ device: "cpu", ...options }));
      assert.deepEqual(found.tokens, expected.tokens);
      assert.equal(found.text, expected.prompt);
      assert.deepEqual(found.bits, expected.bits);
      assert.equal(found.sum, expected.sum);
      assert.equal(found.greedy, expected.greedy);
      assert.equal(found.info.simd, "simd128");
      console.log(`  ${found.info.why}: ${speed(found.stats)}`);
      return found.info.threads;
    };
    const plain = await visit({ args: [], headers: {} });
    assert.equal(await checked(plain.page, {}), 1);
    await plain.end();
    const isolated = await visit({ args: [] });
    assert.equal(await checked(isolated.page, {}), Math.min(os.availableParallelism(), 8));
    for (const threads of [1, 2, 3]) assert.equal(await checked(isolated.page, { threads }), threads);
    assert.deepEqual(isolated.complaints, []);
    await isolated.end();
  },

  /** Threads compute, sleep while nothing is to be done, and end with their engine. */
  async threads() {
    const { page, end } = await visit({ args: [] });
    await inPage(page, async ({ Engine }, model) => {
      globalThis.engine = await Engine.open(model, { device: "cpu", threads: 3 });
    }, MODEL);
    const idle = workerSeconds();
    assert.equal(idle.length, 3);
    let worked = idle;
    // Where other programs have the cores, threads keep away for a while.
    for (let tries = 0; tries < 20 && worked.some((seconds, index) => seconds < idle[index] + 0.05); tries++) {
      await page.evaluate("engine.generate('It is a truth', { sampling: { temperature: 0, maxTokens: 400 } }).text()");
      worked = workerSeconds();
    }
    assert.ok(worked.every((seconds, index) => seconds >= idle[index] + 0.05), `${idle}, then ${worked}`);
    await page.waitForTimeout(1000);
    const rested = workerSeconds().map((seconds, index) => seconds - worked[index]);
    assert.ok(rested.every((seconds) => seconds < 0.1), `${rested}`);
    await page.evaluate("engine.dispose()");
    for (let tries = 0; tries < 50 && workerSeconds().length > 0; tries++) await page.waitForTimeout(100);
    assert.deepEqual(workerSeconds(), []);
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
    const { page, end } = await visit();
    // Four at a time: most of it is one thing after another. A GPU that is a program takes seconds for its shaders.
    const cycle = (count) => inPage(page, async ({ Engine }, { model, count }) => {
      let next = 0;
      const openAndClose = async () => {
        for (let index = next++; index < count; index = next++) {
          const engine = await Engine.open(model, { device: index % 50 === 10 ? "webgpu" : "cpu", contextLength: 64, threads: 2 });
          await engine.generate("It", { sampling: { maxTokens: 2 } }).stats;
          await engine.dispose();
        }
      };
      await Promise.all(Array.from({ length: 4 }, openAndClose));
    }, { model: MODEL, count });
    await cycle(20);
    const before = resident();
    await cycle(80);
    const grown = resident() - before;
    console.log(`  ${(before / 1e6).toFixed(0)} MB after 20 engines, ${(grown / 1e6).toFixed(0)} MB more after 100`);
    // Each that stayed would take 20 MB at least.
    assert.ok(grown < 300e6, `${grown} bytes stay`);
    for (let tries = 0; tries < 50 && workerSeconds().length > 0; tries++) await page.waitForTimeout(100);
    assert.deepEqual(workerSeconds(), [], "workers and their threads are gone");
    const after = await inPage(page, async ({ Engine }, model) => {
      const engine = await Engine.open(model, { device: "cpu" });
      const answer = engine.generate("It is", { sampling: { maxTokens: 400 } }).text().catch((error) => error.code);
      await engine.dispose();
      return [await answer, await engine.tokenize("x").catch((error) => error.code)];
    }, MODEL);
    assert.deepEqual(after, ["disposed", "disposed"]);
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
