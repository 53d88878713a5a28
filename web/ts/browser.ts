// What a browser has to have, and what this one has.

import { HadalError } from "./errors.js";

/** The smallest module with a vector instruction: `(module (func (result v128) (v128.const i64x2 0 0)))`. */
const SIMD = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 22, 1, 20, 0, 253, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
  0, 0, 0, 0, 0, 0, 11,
]);

/** Throws `old-browser` where something is missing without which nothing runs. */
export function checkBrowser(): void {
  const missing: string[] = [];
  if (typeof WebAssembly !== "object" || !WebAssembly.validate(SIMD)) missing.push("WebAssembly SIMD");
  if (typeof Worker !== "function") missing.push("workers");
  if (typeof AbortSignal !== "function" || !AbortSignal.any) missing.push("AbortSignal.any");
  if (missing.length) throw new HadalError("old-browser", `this browser has no ${missing.join(", no ")}`);
}

/** Why there is no real GPU to use; nothing if there is one. */
export async function whyNoGpu(): Promise<string | undefined> {
  const gpu = (navigator as { gpu?: { requestAdapter(): Promise<Adapter | null> } }).gpu;
  if (!gpu) return isSecureContext ? "this browser has no WebGPU" : "WebGPU is only there on https pages and localhost";
  const adapter = await gpu.requestAdapter().catch(() => null);
  if (!adapter) return "the browser has WebGPU, but no adapter for this machine's graphics";
  if (adapter.info?.isFallbackAdapter) return "the only WebGPU adapter is a program on the CPU, slower than the CPU itself";
  return undefined;
}

interface Adapter {
  info?: { isFallbackAdapter?: boolean };
}
