// What ended a module.

import { HadalError } from "./errors.js";

/** What the trap `thrown` was about, if it is one; `panic` is what the module said before it. */
export function lastWords(thrown: unknown, panic: string): HadalError | undefined {
  if (!(thrown instanceof WebAssembly.RuntimeError)) return undefined;
  // A panic tells why it stops the module; an allocation that fails stops it without a word.
  if (!panic) return new HadalError("memory", "this tab has no more memory for the model");
  return new HadalError(/file can no longer/.test(panic) ? "file" : "internal", panic);
}
