// Models above what memory holds.
import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { Readable } from "node:stream";
import { ISOLATION } from "../serve.mjs";
import { llama } from "./gguf.mjs";
import { watchHeaps } from "./heap.mjs";
import { tabPeak } from "./processes.mjs";
import { inPage, visit } from "./visit.mjs";

const GIB = 2 ** 30;
const TAG = '"made"';
const LAYERS = 32;
/** What JavaScript's heaps and the module's memory may hold together while a model is loaded that none of them holds. */
const MOST = GIB / 2;

/** Answers requests for files that are made meanwhile, by their paths. */
function making(files) {
  return (request, response) => {
    const file = files[request.url];
    if (!file) return false;
    const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range);
    const [from, to] = [Number(first), last ? Number(last) + 1 : file.size];
    response.writeHead(206, { ...ISOLATION, etag: TAG, "content-range": `bytes ${from}-${to - 1}/${file.size}`, "content-length": to - from });
    function* pieces() {
      for (let at = from; at < to; at += 1 << 20) yield file.read(at, Math.min(to, at + (1 << 20)));
    }
    Readable.from(pieces()).pipe(response);
    return true;
  };
}

/** The logits behind some tokens, and what the engine says of itself. Without a model: of the file that was picked. */
async function logits({ Engine }, { model, options, tokens }) {
  const engine = await Engine.open(model ?? document.querySelector("input").files[0], options);
  const logits = [...(await engine.logits(tokens))];
  const info = engine.info();
  await engine.dispose();
  return { logits, info };
}

/**
 * Leaves a file in the storage as a download that was stopped: all chunks between `from` and `to` are there, which are zeros, and
 * none of the others.
 */
async function leaveGap({ cache }, { url, size, tag, from, to }) {
  await cache.list();
  const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("hadal");
  const address = new URL(url, location.href).href;
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(address)));
  const key = [...hash.subarray(0, 16)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const chunk = 8 << 20;
  const whole = (at) => at >= from && at + chunk <= to;
  const done = Array.from({ length: Math.ceil(size / chunk) }, (_, index) => (whole(index * chunk) ? chunk : 0));
  const notes = JSON.stringify({ url: address, name: url.slice(1), size, tag, done });
  for (const [name, write] of [[`${key}.gguf`, (file) => file.truncate(size)], [`${key}.json`, (file) => file.write(notes)]]) {
    const file = await (await folder.getFileHandle(name, { create: true })).createWritable();
    await write(file);
    await file.close();
  }
}

/** The mean squared difference, of the mean square. */
function difference(found, expected) {
  const squares = (values) => values.reduce((sum, value) => sum + value * value, 0);
  return squares(found.map((value, index) => value - expected[index])) / squares(expected);
}

export const largeTests = {
  /** (e) 3 GiB in four files go from the network through the storage to the GPU, and never into the tab's memory. */
  async large() {
    const [small] = llama({ layers: LAYERS, copies: 1 });
    const parts = llama({ layers: LAYERS, copies: 128, parts: 4 });
    const total = parts.reduce((sum, { size }) => sum + size, 0);
    assert.ok(total >= 3 * GIB);
    const files = { "/small.gguf": small };
    parts.forEach((part, index) => (files[`/large-0000${index + 1}-of-00004.gguf`] = part));
    const { page, context, end } = await visit({ onDisk: true, answer: making(files) });
    const stop = await watchHeaps(context, page);
    const tokens = [1, 100];
    const start = performance.now();
    const found = await inPage(page, logits, { model: Object.keys(files).slice(1), options: { device: "webgpu" }, tokens });
    const [peak, tab, seconds] = [await stop(), tabPeak(), (performance.now() - start) / 1000];
    const mib = (bytes) => `${(bytes / 2 ** 20).toFixed(0)} MiB`;
    console.log(`  ${(total / GIB).toFixed(1)} GiB on ${found.info.device} after ${seconds.toFixed(0)} s: heaps had ${mib(peak)} at most, the module's memory ${mib(found.info.moduleBytes)}; the tab's process ${mib(tab)}`);
    assert.equal(found.info.parts, 4);
    assert.equal(found.info.gpuLayers, LAYERS);
    assert.ok(found.info.gpuBytes > 3 * GIB, "the weights are on the device");
    assert.ok(peak > found.info.moduleBytes, `${peak} bytes: the worker was seen`);
    // Should the debugger leave modules out: once more.
    assert.ok(peak + found.info.moduleBytes < MOST, `${peak} bytes`);
    // The same model without copies, on the CPU. Sums in another order were 1.04e-8 off; a wrong copy is one of 128 terms.
    const expected = await inPage(page, logits, { model: "/small.gguf", options: { device: "cpu" }, tokens });
    const off = difference(found.logits, expected.logits);
    assert.ok(off < 1e-7, `${off}`);
    await end();
  },

  /** A file whose tensors lie beyond 4 GiB, behind one that no graph reads: picked by a user, and the end of a download. */
  async beyond() {
    const [small] = llama({ layers: 2, copies: 1 });
    const [large] = llama({ layers: 2, copies: 1, gap: 4.5 * GIB });
    const first = large.size - small.size;
    assert.ok(first > 4 * GIB);
    const files = { "/small.gguf": small, "/beyond.gguf": large };
    const { page, asked, end } = await visit({ onDisk: true, answer: making(files) });
    const [options, tokens] = [{ device: "cpu", threads: 1 }, [1, 100, 7]];
    const expected = await inPage(page, logits, { model: "/small.gguf", options, tokens });
    const same = ({ logits, info }) => {
      assert.deepEqual(logits, expected.logits);
      assert.ok(info.moduleBytes < 200e6, "what is not read is not held");
    };

    // The gap is a hole on the disk.
    const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "hadal-beyond-")), "beyond.gguf");
    fs.writeFileSync(file, large.header);
    const handle = fs.openSync(file, "r+");
    fs.writeSync(handle, large.read(first, large.size), 0, large.size - first, first);
    fs.closeSync(handle);
    await page.setContent('<input type="file">');
    await page.setInputFiles("input", file);
    same(await inPage(page, logits, { options, tokens }));
    fs.rmSync(path.dirname(file), { recursive: true });

    await inPage(page, leaveGap, { url: "/beyond.gguf", size: large.size, tag: TAG, from: large.header.length, to: first });
    asked.length = 0;
    same(await inPage(page, logits, { model: "/beyond.gguf", options, tokens }));
    const ranges = asked.filter(({ url }) => url === "/beyond.gguf").map(({ range }) => Number(/\d+/.exec(range)[0]));
    assert.ok(ranges.some((from) => from > 4 * GIB), `${ranges}`);
    // What was fetched is kept.
    asked.length = 0;
    same(await inPage(page, logits, { model: "/beyond.gguf", options, tokens }));
    assert.deepEqual(asked.filter(({ url }) => url === "/beyond.gguf"), []);
    await end();
  },
};
