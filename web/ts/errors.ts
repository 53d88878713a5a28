// What can go wrong. Every error says what happened and what to do about it; `code` tells programs.

/** What kind of error a {@link HadalError} is. */
export type ErrorCode =
  /** This browser, or this machine, has no WebGPU, and it was asked for. */
  | "no-webgpu"
  /** WebGPU is there and fails. */
  | "webgpu"
  /** The GPU went away: its driver was reset, or the system took it. */
  | "device-lost"
  /** Memory, of the GPU or of the tab, does not hold the model. */
  | "memory"
  /** The model's file is damaged, of another kind, or needs what this version has not. */
  | "file"
  /** The file could not be fetched. */
  | "network"
  /** The file is not the one that was asked for: another size or hash. */
  | "integrity"
  /** The text is longer than the context. */
  | "context"
  /** The model has no chat template: it only continues texts. */
  | "no-chat"
  /** An option outside its range. */
  | "option"
  /** The template or the arithmetic of the model refused. */
  | "model"
  /** What was going on was stopped by its signal. */
  | "aborted"
  /** The engine was disposed of. */
  | "disposed"
  /** A browser without WebAssembly SIMD, module workers or what else this needs. */
  | "old-browser"
  /** The module itself failed, which it never should. */
  | "internal";

const ADVICE: Record<ErrorCode, string> = {
  "no-webgpu": 'Open with device "auto" or "cpu", or use a browser with WebGPU (Chrome 113, Edge 113, Safari 26, Firefox 141 or later) on a machine whose graphics driver it supports.',
  webgpu: 'Open with device "cpu"; if a newer graphics driver does not help, please report this.',
  "device-lost": "Open the engine again; if this repeats, take a smaller model or a shorter contextLength.",
  memory: "Take a smaller model, a smaller quantization, a shorter contextLength or a smaller kv, or close other tabs.",
  file: "Give a GGUF file of an architecture that this version runs; if the download may be damaged, delete it from the cache and fetch it again.",
  network: "Check the address and the connection. What was fetched is kept: opening again goes on where it stopped.",
  integrity: "The server has another file than the one that was asked for: check address, size and sha256.",
  context: "Shorten the text, begin a new conversation, or open with a longer contextLength.",
  "no-chat": "Use engine.generate, or a model that was trained to chat.",
  option: "See the package's types for what is allowed.",
  model: "Try other messages or settings; if it repeats, the file is damaged.",
  aborted: "",
  disposed: "Open another engine.",
  "old-browser": "Update the browser: Chrome or Edge 116, Firefox 124 or Safari 17.4 at least.",
  internal: "Please report this, with the model's name and the browser's.",
};

/** Everything that this package throws. */
export class HadalError extends Error {
  /** What to do about it; empty if nothing has to be done. */
  readonly advice: string;

  constructor(
    readonly code: ErrorCode,
    message: string,
  ) {
    super(message);
    this.name = code === "aborted" ? "AbortError" : "HadalError";
    this.advice = ADVICE[code];
  }

  /** What something thrown is. */
  static from(thrown: unknown): HadalError {
    if (thrown instanceof HadalError) return thrown;
    const { code, message, name } = (thrown ?? {}) as { code?: unknown; message?: unknown; name?: unknown };
    const text = typeof message === "string" ? message : String(thrown);
    if (typeof code === "string" && code in ADVICE) return new HadalError(code as ErrorCode, text);
    if (name === "AbortError") return new HadalError("aborted", "stopped");
    // A browser refuses memory with a RangeError; a module that runs out of its own ends with a trap.
    if (name === "RangeError") return new HadalError("memory", text);
    if (name === "RuntimeError") return new HadalError("internal", `the module stopped: ${text}`);
    return new HadalError("internal", text);
  }
}

/** The error of something that its signal stopped. */
export function aborted(): HadalError {
  return new HadalError("aborted", "stopped");
}
