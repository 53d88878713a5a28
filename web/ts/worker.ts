// The worker: one model, and the files that it is read from.

import { whyNoGpu } from "./browser.js";
import { openByName } from "./cache.js";
import { HadalError } from "./errors.js";
import { fetchFile, nameOf } from "./fetch.js";
import { prepareGpu } from "./gpu.js";
import { checkHash } from "./hash.js";
import type { CallEvent, Told } from "./port.js";
import { Meter } from "./meter.js";
import type { Info, Message, OpenOptions, RemoteFile, Sampling } from "./types.js";
import { type Model, type Module, loadModule } from "./module.js";
import { threadsFor } from "./threads.js";

type Plain = Omit<OpenOptions, "onProgress" | "onNotice" | "signal">;
type Tell = (event: CallEvent) => void;
type Part = { name: string; blob: Blob };

let module: Module | undefined;
let model: Model | undefined;
/** Of the model's files, by number: see `files.rs`. */
let blobs: Blob[] = [];
/** Calls that are under way or wait, and what stops them. */
const calls = new Map<number, AbortController>();
let queue: Promise<unknown> = Promise.resolve();

const reader = new FileReaderSync();
(globalThis as unknown as { hadalFiles: object }).hadalFiles = {
  read(file: number, offset: number, into: Uint8Array): string {
    try {
      const bytes = reader.readAsArrayBuffer(blobs[file]!.slice(offset, offset + into.length));
      if (bytes.byteLength < into.length) return "the file ends early";
      into.set(new Uint8Array(bytes));
      // Freed at once: a model is read faster than dead buffers are collected.
      bytes.transfer(0);
      return "";
    } catch (error) {
      return `the browser can't read the file: ${(error as Error).message}`;
    }
  },
};

/** How files are opened, and who hears of it. */
interface Opening {
  keep: boolean;
  meter: Meter;
  notice: (text: string) => void;
  signal: AbortSignal;
}

/** Whether only the CPU is left, and why. A browser whose GPU nobody asked for is not asked either. */
async function choose(device: "auto" | "webgpu" | "cpu"): Promise<{ onCpu: boolean; noGpu?: string }> {
  if (device === "cpu") return { onCpu: true };
  const noGpu = await whyNoGpu();
  if (device === "webgpu" && noGpu && !noGpu.startsWith("the only")) throw new HadalError("no-webgpu", noGpu);
  return { onCpu: device === "auto" && noGpu !== undefined, noGpu };
}

async function open({ sources, options }: { sources: (RemoteFile | Blob)[]; options: Plain }, tell: Tell, signal: AbortSignal): Promise<Info> {
  const { cache: keep = true, threads: asked, device = "auto", ...engine } = options;
  const notice = (text: string) => tell({ notice: text });
  const meter = new Meter((progress) => tell({ progress }));
  const { onCpu, noGpu } = await choose(device);
  const threads = threadsFor(asked, notice);
  module = await loadModule(onCpu ? threads : 1, notice);
  const parts: Part[] = [];
  for (const source of sources) parts.push(await part(source, module, { keep, meter, notice, signal }));
  meter.phase("load");
  blobs = parts.map((part) => part.blob);
  const extras = onCpu || engine.limits === "floor" ? {} : await prepareGpu();
  const load = async (device: string): Promise<Info> => {
    const sizes = Float64Array.from(blobs, (blob) => blob.size);
    const options = JSON.stringify({ ...engine, ...extras, device, threads: module!.threads });
    model = await module!.Model.open(parts.map((part) => part.name), sizes, options);
    return JSON.parse(model.info()) as Info;
  };
  let info = await load(onCpu ? "cpu" : device);
  const refusal = module.refusal();
  if (!onCpu && info.device === "cpu" && threads > 1) {
    // The GPU was given up: the module with threads has none.
    model?.free();
    module = await loadModule(threads, notice);
    info = await load("cpu");
  }
  meter.end();
  return { ...info, why: why(device, noGpu, info, refusal) };
}

function why(asked: string, noGpu: string | undefined, info: Info, refusal: string): string {
  if (info.device !== "cpu") return asked === "webgpu" ? "WebGPU, as asked" : "WebGPU, which passed its self-test";
  const threads = info.threads > 1 ? `${info.threads} threads` : "one thread";
  const reason = asked === "cpu" ? "as asked" : (noGpu ?? (refusal || "the GPU could not be used"));
  return `WebAssembly on ${threads}: ${reason}`;
}

/** One file of a model, wherever it is. */
async function part(source: RemoteFile | Blob, module: Module, { keep, meter, notice, signal }: Opening): Promise<Part> {
  if (source instanceof Blob) {
    meter.total(source.size);
    meter.add(source.size, false);
    return { name: source instanceof File ? source.name : "the model", blob: source };
  }
  if (source.url.startsWith("opfs:")) {
    const blob = await openByName(source.url.slice("opfs:".length));
    meter.total(blob.size);
    meter.add(blob.size, false);
    return { name: blob.name, blob };
  }
  const remote = { ...source, url: address(source.url) };
  const listener = { signal, notice, add: meter.add, total: meter.total };
  const { blob, notes } = await fetchFile(remote, keep, listener);
  if (remote.sha256) await checkHash(module, remote.url, remote.sha256, blob, notes, keep, meter, signal);
  return { name: nameOf(remote.url), blob };
}

/** `owner/repo:file` is a file on Hugging Face. */
function address(url: string): string {
  const hub = /^([\w.-]+\/[\w.-]+):(.+)$/.exec(url);
  return hub && !url.includes("://") ? `https://huggingface.co/${hub[1]}/resolve/main/${hub[2]}` : url;
}

/** Called with each piece: gives messages their turn and says whether to stop. */
function hearing(tell: Tell, signal: AbortSignal): (piece: string) => Promise<boolean> {
  return (piece) => {
    if (piece) tell({ piece });
    return nextTurn().then(() => signal.aborted);
  };
}

const turns = new MessageChannel();
const waiting: (() => void)[] = [];
turns.port1.onmessage = () => waiting.shift()?.();

/** Resolves once the messages that are there were heard: promises alone never let them in. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    waiting.push(resolve);
    turns.port2.postMessage(0);
  });
}

/** What calls bring; each its own. */
interface Args {
  text: string;
  special: boolean;
  tokens: Uint32Array;
  prompt: string;
  messages: Message[];
  sampling: Sampling;
}

async function call(name: string, args: Args, tell: Tell, signal: AbortSignal): Promise<unknown> {
  if (name === "open") return open(args as unknown as Parameters<typeof open>[0], tell, signal);
  if (!model) throw new HadalError("internal", "no model is open");
  const { text, special, tokens, prompt, messages, sampling } = args;
  switch (name) {
    case "tokenize":
      return model.tokenize(text, special);
    case "detokenize":
      return model.detokenize(tokens);
    case "logits":
      return model.logits(tokens);
    case "generate":
      return JSON.parse(await model.generate(prompt, JSON.stringify(sampling), hearing(tell, signal)));
    case "chat":
      return JSON.parse(await model.chat(JSON.stringify(messages), JSON.stringify(sampling), hearing(tell, signal)));
    default:
      throw new HadalError("internal", `no call ${name}`);
  }
}

function tell(told: Told): void {
  postMessage(told);
}

async function run(id: number, name: string, args: Args, signal: AbortSignal): Promise<void> {
  try {
    // What was stopped before it began: answers end at their first step and say so.
    const value = await call(name, args, (event) => tell({ id, event }), signal);
    if (model && name !== "open") tell({ id, event: { info: JSON.parse(model.info()) as Info } });
    tell({ id, value });
  } catch (thrown) {
    const { code, message } = module?.lastWords(thrown) ?? HadalError.from(thrown);
    tell({ id, error: { code, message } });
  } finally {
    calls.delete(id);
  }
}

onmessage = ({ data }: MessageEvent<{ id: number; name: string; args: Args; abort?: number; end?: true }>) => {
  if (data.end) {
    for (const call of calls.values()) call.abort();
    queue.finally(() => postMessage({ ended: true, id: -1 }));
    return;
  }
  if (data.abort !== undefined) {
    calls.get(data.abort)?.abort();
    return;
  }
  const stop = new AbortController();
  calls.set(data.id, stop);
  queue = queue.then(() => run(data.id, data.name, data.args, stop.signal));
};
