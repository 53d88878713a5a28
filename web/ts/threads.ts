// Threads: workers that this worker starts, which load the same module with the same memory and lend themselves to the
// engine. They sleep in it between computations and end with this worker.

import { HadalError } from "./errors.js";
import type * as Threaded from "./threads/hadal_web.js";

/** What a thread is started with. */
export interface Start {
  module: WebAssembly.Module;
  memory: WebAssembly.Memory;
  /** Tells the page how it ended, which it never should: this worker may wait for it, and hears nothing then. */
  alarm: MessagePort;
}

/** More seldom help: memory is the limit before. */
const MOST = 8;

/** How many threads the page may have, of `asked` or as many as help. */
export function threadsFor(asked: number | undefined, notice: (text: string) => void): number {
  if (globalThis.crossOriginIsolated) return asked ?? Math.min(navigator.hardwareConcurrency, MOST);
  if (asked !== undefined && asked > 1) {
    notice("one thread instead of " + asked + ": the page is not isolated from other origins (no COOP and COEP headers)");
  }
  return Math.min(asked ?? 1, 1);
}

/** Loads the module and starts all threads but the one that this is. */
export async function startThreads(count: number): Promise<typeof Threaded> {
  const wasm = await import("./threads/hadal_web.js");
  await wasm.default();
  wasm.start();
  const [module, memory] = wasm.share();
  await Promise.all(Array.from({ length: count - 1 }, () => startThread(module, memory)));
  return wasm;
}

function startThread(module: WebAssembly.Module, memory: WebAssembly.Memory): Promise<void> {
  const worker = new Worker(new URL("./thread.js", import.meta.url), { type: "module", name: "hadal thread" });
  const { port1, port2 } = new MessageChannel();
  postMessage({ id: -1, alarm: port1 }, [port1]);
  worker.postMessage({ module, memory, alarm: port2 } satisfies Start, [port2]);
  return new Promise((resolve, reject) => {
    worker.onmessage = () => resolve();
    worker.onerror = (event) => {
      event.preventDefault();
      reject(new HadalError("internal", `a thread failed: ${event.message || "its script could not be loaded"}`));
    };
  });
}
