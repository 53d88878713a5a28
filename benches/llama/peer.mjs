// Times llama.cpp's CPU engine (through node-llama-cpp, see fetch.sh) with the tests of `hadal bench`: a prompt in
// batches of 512, or tokens one after the other, each once to warm up, then a number of times.
//
//     node peer.mjs MODEL [-p 512,128] [-n 128] [-d 0] [-r 5] [-t 2]   one JSON line a test
//     node peer.mjs MODEL --serve [-c 1024]                            a test a line from standard input, like
//                                                                      {"test": "pp512", "threads": 1, "repetitions": 1}
//
// The weights are memory-mapped, no GPU, no flash attention, the K/V cache is f16 (llama.cpp's defaults but for flash
// attention, which it takes for itself where it can: -fa auto).

import {readFileSync} from "node:fs";
import {cpus} from "node:os";
import {createInterface} from "node:readline";
import {parseArgs} from "node:util";

const BATCH = 512;
const {getLlama, LlamaLogLevel} = await import(
    new URL("../../target/llama/node_modules/node-llama-cpp/dist/index.js", import.meta.url)
);

const {values: options, positionals: [path]} = parseArgs({
    allowPositionals: true,
    options: {
        "n-prompt": {type: "string", short: "p", default: "512"},
        "n-gen": {type: "string", short: "n", default: "128"},
        depth: {type: "string", short: "d", default: "0"},
        repetitions: {type: "string", short: "r", default: "5"},
        threads: {type: "string", short: "t", default: String(cpus().length)},
        "ctx-size": {type: "string", short: "c"},
        "flash-attention": {type: "string", default: "off"},
        serve: {type: "boolean", default: false},
        verbose: {type: "boolean", short: "v", default: false}
    }
});
const numbers = (list) => list.split(",").map(Number).filter((number) => number > 0);

// What the log says of where the weights lie: `CPU_REPACK model buffer size = 1024.00 MiB` is a repacked copy.
const buffers = {};
function heed(message) {
    const [, name, mib] = /(\S+) model buffer size = +([\d.]+) MiB/.exec(message) ?? [];
    if (name != null)
        buffers[name] = Number(mib);
    if (options.verbose)
        process.stderr.write(message.trimEnd() + "\n");
}

const depths = options.depth.split(",").map(Number);
const tests = depths.flatMap((depth) => [
    ...numbers(options["n-prompt"]).map((tokens) => ({kind: "pp", tokens, depth})),
    ...numbers(options["n-gen"]).map((tokens) => ({kind: "tg", tokens, depth}))
]);
const threads = Number(options.threads);
const contextSize = Number(options["ctx-size"] ?? Math.max(...tests.map(({tokens, depth}) => tokens + depth)));

const llama = await getLlama({
    gpu: false, build: "never", skipDownload: true, maxThreads: 0,
    logLevel: LlamaLogLevel.debug, logger: (_, message) => heed(message)
});
const start = performance.now();
const model = await llama.loadModel({modelPath: path, useMmap: true, defaultContextFlashAttention: false});
const loadMilliseconds = performance.now() - start;
const context = await model.createContext({
    contextSize, batchSize: BATCH, threads,
    flashAttention: {off: false, on: true, auto: "auto"}[options["flash-attention"]]
});
// The native context: one call is one llama_decode. The package's own loop would also sample.
const native = context._ctx;
const vocabulary = [...model.iterateAllTokens()].length;
const variant = /libggml-cpu-(\w+)\.so/.exec(readFileSync("/proc/self/maps", "utf8"))?.[1];

// Any tokens do, the work is the same; the same ones every time.
function randomTokens(count) {
    let state = 1;
    return Uint32Array.from({length: count}, () => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return Math.floor(state / 2 ** 32 * vocabulary);
    });
}

// One llama_decode a batch; logits of the last token of each.
async function evaluate(tokens, position, batch) {
    for (let at = 0; at < tokens.length; at += batch) {
        const part = tokens.subarray(at, at + batch);
        native.initBatch(part.length);
        native.addToBatch(0, position + at, part, Uint32Array.of(part.length - 1));
        await native.decodeBatch();
    }
}

async function once({kind, tokens, depth}) {
    native.disposeSequence(0);
    const all = randomTokens(depth + tokens);
    await evaluate(all.subarray(0, depth), 0, BATCH);
    const start = performance.now();
    await evaluate(all.subarray(depth), depth, kind === "pp" ? BATCH : 1);
    return tokens * 1000 / (performance.now() - start);
}

async function measure(test, threads, repetitions, warmUp = true) {
    native.setThreads(threads);
    if (warmUp)
        await once(test);
    const speeds = [];
    while (speeds.length < repetitions)
        speeds.push(await once(test));
    const name = `${test.kind}${test.tokens}` + (test.depth > 0 ? ` @ d${test.depth}` : "");
    return {
        engine: "llama.cpp", release: llama.llamaCppRelease.release, variant, buffers_mib: buffers, model: path,
        load_ms: loadMilliseconds, threads, test: name, tokens_per_second: speeds
    };
}

const print = (row) => process.stdout.write(JSON.stringify(row) + "\n");
if (options.serve) {
    for await (const line of createInterface({input: process.stdin})) {
        const {test, threads: count = threads, repetitions = 1, warm_up: warmUp = true} = JSON.parse(line);
        const [, kind, tokens, depth = "0"] = /^(pp|tg)(\d+)(?: @ d(\d+))?$/.exec(test);
        print(await measure({kind, tokens: Number(tokens), depth: Number(depth)}, count, repetitions, warmUp));
    }
} else {
    for (const test of tests)
        print(await measure(test, threads, Number(options.repetitions)));
}
process.exit(0);
