// What goes in and out of an engine.

/** A file of a model that is fetched. */
export interface RemoteFile {
  url: string;
  /** Bytes, if known: another size is refused. */
  size?: number;
  /** Of the whole file, in hexadecimal digits, if known: another file is refused. */
  sha256?: string;
}

/**
 * Where a model is: a URL (absolute, or relative to the page), a file on Hugging Face (`owner/repo:file.gguf`), a file in
 * this origin's cache (`opfs:NAME`), a `File` or `Blob`, or a list with the parts of a split model in order.
 */
export type Source = string | URL | RemoteFile | Blob | (string | URL | RemoteFile | Blob)[];

/** What opening a model is busy with. */
export interface Progress {
  phase: "fetch" | "check" | "load";
  /** Bytes that are there, those of the cache too. */
  loaded: number;
  /** Bytes in all; 0 while that is unknown. */
  total: number;
  /** Bytes a second over the last seconds; 0 while nothing is fetched. */
  speed: number;
  /** Seconds to go; undefined while nobody knows. */
  remaining?: number;
}

export interface OpenOptions {
  /** `auto` (the default) takes a GPU if the machine has a real one that passes a self-test, and the CPU otherwise. */
  device?: "auto" | "webgpu" | "cpu";
  /** Tokens that fit in a conversation; by default what the model was trained for, at most 8192. */
  contextLength?: number;
  /** How keys and values are kept, e.g. `f16` (the default), `q8_0`, `turbo`. */
  kv?: string;
  /** Whether fetched files are kept in this origin's private storage; true by default. */
  cache?: boolean;
  /** Threads on the CPU; by default as many as the page may have. */
  threads?: number;
  /** Tokens of a prompt that are computed together; 256 by default. */
  batch?: number;
  /** `floor`: of the GPU no more than what every WebGPU device has. */
  limits?: "floor";
  onProgress?: (progress: Progress) => void;
  /** Told in plain words what did not go as it should but does no harm: no room in the cache, no threads. */
  onNotice?: (notice: string) => void;
  signal?: AbortSignal;
}

/** How the next token is chosen; names and defaults are llama.cpp's. */
export interface Sampling {
  /** 0 takes the most likely token; 0.8 by default. */
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  typicalP?: number;
  repeatPenalty?: number;
  presencePenalty?: number;
  frequencyPenalty?: number;
  dryMultiplier?: number;
  /** The same seed gives the same text; above 2⁵³ as text. */
  seed?: number | string;
  /** Texts at which the answer ends. */
  stop?: string[];
  maxTokens?: number;
}

export interface SendOptions {
  signal?: AbortSignal;
  sampling?: Sampling;
}

export interface Message {
  role: "system" | "user" | "assistant";
  content: string;
}

/** How an answer ended and what it took. */
export interface Stats {
  finish: "stop" | "length" | "context" | "aborted";
  promptTokens: number;
  /** Of these, how many were known from before. */
  cachedTokens: number;
  generatedTokens: number;
  promptSeconds: number;
  generateSeconds: number;
  firstTokenSeconds: number;
  seed: string;
}

/** What was loaded and what runs it. */
export interface Info {
  name: string;
  architecture: string;
  /** The format that most weights are stored in. */
  format: string;
  parameters: number;
  /** Bytes of all weights, in the GPU's memory or the module's. */
  weightBytes: number;
  /** Files of a split model. */
  parts: number;
  contextLength: number;
  trainedContextLength: number;
  vocabulary: number;
  layers: number;
  kv: string;
  /** Bytes of the key/value cache once the context is full. */
  kvBytes: number;
  /** Bytes that are kept for computing the next tokens: so far. */
  scratchBytes: number;
  /** Bytes of the module's memory, which grows and never shrinks. On the CPU all of the above is in it. */
  moduleBytes: number;
  /** `cpu`, or the GPU's name. */
  device: string;
  gpuLayers: number;
  /** Bytes of the GPU's buffers, all together. */
  gpuBytes: number;
  /** Kernels in use beyond WebGPU's floor: `HALVES`, `SUBGROUPS`. */
  gpuVariants: string[];
  threads: number;
  /** The CPU's vectors in use. */
  simd: string;
  /** Whether the model has a chat template. */
  canChat: boolean;
  /** Why it runs on what it runs on, in a sentence. */
  why: string;
}

/** A file in the cache. */
export interface CachedFile {
  name: string;
  /** Where it was fetched. */
  url: string;
  /** Bytes that are there. */
  bytes: number;
  /** Bytes of the whole file. */
  size: number;
  /** Whether all of it is there. */
  complete: boolean;
}
