// The WebAssembly module: the one that has WebGPU, or the one that has threads. And what a panic in it said.

import type { HadalError } from "./errors.js";
import { lastWords } from "./panic.js";
import { startThreads } from "./threads.js";
import type * as Plain from "./wasm/hadal_web.js";

export type { Model } from "./wasm/hadal_web.js";

export type Module = Pick<typeof Plain, "Model" | "Sha256"> & {
  /** Workers that it computes with, its own included. */
  threads: number;
  /** Why the GPU was given up, if it was. */
  refusal(): string;
  /** What a trap was about, which by itself says nothing. */
  lastWords(thrown: unknown): HadalError | undefined;
};

let warning = "";
let panic = "";

/** Loads the module; that with shared memory for several threads, if they can be had. */
export async function loadModule(asked: number, notice: (text: string) => void): Promise<Module> {
  Object.assign((globalThis as unknown as { hadalFiles: object }).hadalFiles, {
    warned: (text: string) => (warning = text),
    panicked: (text: string) => (panic = text),
  });
  const threaded = asked > 1 ? await startThreads(asked).catch((error: Error) => notice(`one thread: ${error.message}`)) : undefined;
  const wasm = threaded ?? (await startPlain());
  const threads = threaded ? asked : Math.min(asked, 1);
  return {
    Model: wasm.Model,
    Sha256: wasm.Sha256,
    threads,
    refusal: () => warning,
    lastWords: (thrown) => lastWords(thrown, panic),
  };
}

async function startPlain(): Promise<typeof Plain> {
  const wasm = await import("./wasm/hadal_web.js");
  await wasm.default();
  wasm.start();
  return wasm;
}
