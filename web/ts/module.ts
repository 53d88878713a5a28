// The WebAssembly module, and what a panic in it said.

import init, * as wasm from "./wasm/hadal_web.js";
import { HadalError } from "./errors.js";

export type { Model } from "./wasm/hadal_web.js";

export type Module = Pick<typeof wasm, "Model" | "Sha256"> & {
  /** Why the GPU was given up, if it was. */
  refusal(): string;
  /** What a trap was about, which by itself says nothing. */
  lastWords(thrown: unknown): HadalError | undefined;
};

let loaded: Promise<Module> | undefined;

/** Loads the module, once. */
export function loadModule(): Promise<Module> {
  return (loaded ??= load());
}

async function load(): Promise<Module> {
  let refusal = "";
  let panic = "";
  Object.assign((globalThis as unknown as { hadalFiles: object }).hadalFiles, {
    warned: (text: string) => (refusal = text),
    panicked: (text: string) => (panic = text),
  });
  await init();
  wasm.start();
  return {
    Model: wasm.Model,
    Sha256: wasm.Sha256,
    refusal: () => refusal,
    lastWords(thrown) {
      if (!(thrown instanceof WebAssembly.RuntimeError)) return undefined;
      // A panic tells why it stops the module; an allocation that fails stops it without a word.
      if (!panic) return new HadalError("memory", "this tab has no more memory for the model");
      return new HadalError(/file can no longer/.test(panic) ? "file" : "internal", panic);
    },
  };
}
