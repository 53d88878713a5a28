// Models above what memory holds.
import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { ISOLATION } from "../serve.mjs";
import { llama } from "./gguf.mjs";
import { tabPeak } from "./processes.mjs";
import { inPage, visit } from "./visit.mjs";

const GIB = 2 ** 30;
const LAYERS = 32;
/** What the tab may have in memory beside the model: heaps, modules, what it shares with the GPU's process. */
const MOST = GIB;

/** Answers requests for files that are made meanwhile, by their paths. */
function making(files) {
  return (request, response) => {
    const file = files[request.url];
    if (!file) return false;
    const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range);
    const [from, to] = [Number(first), last ? Number(last) + 1 : file.size];
    response.writeHead(206, { ...ISOLATION, etag: '"made"', "content-range": `bytes ${from}-${to - 1}/${file.size}`, "content-length": to - from });
    function* pieces() {
      for (let at = from; at < to; at += 1 << 20) yield file.read(at, Math.min(to, at + (1 << 20)));
    }
    Readable.from(pieces()).pipe(response);
    return true;
  };
}

/** The logits behind some tokens, and what the engine says of itself. */
async function logits({ Engine }, { model, options, tokens }) {
  const engine = await Engine.open(model, options);
  const logits = [...(await engine.logits(tokens))];
  const info = engine.info();
  await engine.dispose();
  return { logits, info };
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
    const { page, end } = await visit({ onDisk: true, answer: making(files) });
    const tokens = [1, 100];
    const start = performance.now();
    const found = await inPage(page, logits, { model: Object.keys(files).slice(1), options: { device: "webgpu" }, tokens });
    const [peak, seconds] = [tabPeak(), (performance.now() - start) / 1000];
    console.log(`  ${(total / GIB).toFixed(1)} GiB on ${found.info.device} after ${seconds.toFixed(0)} s: the tab had ${(peak / 2 ** 20).toFixed(0)} MiB at most`);
    assert.equal(found.info.parts, 4);
    assert.equal(found.info.gpuLayers, LAYERS);
    assert.ok(found.info.gpuBytes > 3 * GIB, "the weights are on the device");
    assert.ok(peak < MOST, `${peak} bytes`);
    // The same model without copies, on the CPU. Sums in another order were 1.04e-8 off; a wrong copy is one of 128 terms.
    const expected = await inPage(page, logits, { model: "/small.gguf", options: { device: "cpu" }, tokens });
    const off = difference(found.logits, expected.logits);
    assert.ok(off < 1e-7, `${off}`);
    await end();
  },
};
