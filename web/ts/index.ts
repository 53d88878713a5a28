// What a page calls. Everything that takes time happens in a worker; here messages are passed on.

import { checkBrowser } from "./browser.js";
import { list, remove } from "./cache.js";
import { HadalError, aborted } from "./errors.js";
import { Port } from "./port.js";
import type { Info, Message, OpenOptions, Sampling, SendOptions, Source, Stats } from "./types.js";

export { HadalError, type ErrorCode } from "./errors.js";
export type * from "./types.js";

/** The files that were fetched and kept. */
export const cache = { list, remove };

/** A model in a worker of its own. */
export class Engine {
  readonly #port: Port;

  private constructor(port: Port) {
    this.#port = port;
  }

  /** Opens a model: see {@link Source} and {@link OpenOptions}. Throws a {@link HadalError}. */
  static async open(source: Source, options: OpenOptions = {}): Promise<Engine> {
    checkBrowser();
    const { onProgress, onNotice, signal, ...plain } = options;
    if (signal?.aborted) throw aborted();
    const port = new Port();
    try {
      const sources = (Array.isArray(source) ? source : [source]).map(absolute);
      port.info = await port.call<Info>("open", { sources, options: plain }, signal, (event) => {
        if (event.progress) onProgress?.(event.progress);
        if (event.notice) onNotice?.(event.notice);
      });
      return new Engine(port);
    } catch (error) {
      await port.end();
      throw HadalError.from(error);
    }
  }

  /** What was loaded, what runs it, and what it takes of memory since the last answer. */
  info(): Info {
    return { ...this.#port.info! };
  }

  /** A conversation, from its beginning. */
  chat(system?: string): Chat {
    return new Chat(this.#port, system);
  }

  /** Continues `prompt`. */
  generate(prompt: string, options: SendOptions = {}): Answer {
    return new Answer(this.#port, "generate", { prompt, sampling: options.sampling ?? {} }, options.signal);
  }

  /** The ids of the tokens of `text`; with `special`, control tokens that it spells are such. */
  tokenize(text: string, options: { special?: boolean } = {}): Promise<Uint32Array> {
    return this.#port.call("tokenize", { text, special: options.special ?? false });
  }

  /** The text of tokens. */
  detokenize(tokens: ArrayLike<number>): Promise<string> {
    return this.#port.call("detokenize", { tokens: Uint32Array.from(tokens) });
  }

  /** The logits that follow `tokens`, one an entry of the vocabulary. */
  logits(tokens: ArrayLike<number>): Promise<Float32Array> {
    return this.#port.call("logits", { tokens: Uint32Array.from(tokens) });
  }

  /** Ends the worker, and with it everything that the model took. What is under way throws `disposed`. */
  dispose(): Promise<void> {
    return this.#port.end();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }
}

/** Messages, and answers to them. */
export class Chat {
  readonly #port: Port;
  /** What was said so far. May be changed while nothing is being answered, to resume a conversation or to take something back. */
  messages: Message[] = [];

  /** Made by {@link Engine.chat}. */
  constructor(port: Port, system?: string) {
    this.#port = port;
    if (system) this.messages.push({ role: "system", content: system });
  }

  /**
   * Says `text` and answers piece by piece. An answer that is stopped half way stays in the conversation as far as it got;
   * after an error the conversation is as before.
   */
  send(text: string, options: SendOptions = {}): Answer {
    const before = this.messages;
    const asked: Message[] = [...before, { role: "user", content: text }];
    this.messages = asked;
    const settle = (answer: string | undefined) => {
      if (this.messages !== asked) return;
      this.messages = answer === undefined ? before : [...asked, { role: "assistant", content: answer }];
    };
    const args = { messages: asked, sampling: options.sampling ?? {} };
    return new Answer(this.#port, "chat", args, options.signal, settle);
  }
}

/** An answer: iterate over its pieces, or await {@link Answer.text}. Leaving the loop stops it. */
export class Answer implements AsyncIterable<string> {
  /** How it ended and what it took; rejects as the loop throws. */
  readonly stats: Promise<Stats>;
  readonly #stop = new AbortController();
  #pieces: string[] = [];
  #text = "";
  #ended = false;
  #wake: () => void = () => {};

  /** Made by {@link Engine.generate} and {@link Chat.send}. */
  constructor(
    port: Port,
    call: "generate" | "chat",
    args: { sampling: Sampling } & Record<string, unknown>,
    signal?: AbortSignal,
    settle: (answer: string | undefined) => void = () => {},
  ) {
    const signals = signal ? [signal, this.#stop.signal] : [this.#stop.signal];
    const hear = (event: { piece?: string }) => {
      this.#pieces.push(event.piece ?? "");
      this.#text += event.piece ?? "";
      this.#wake();
    };
    // A signal ends an answer early, which is no error: `stats.finish` says so.
    this.stats = port.call<Stats>(call, args, AbortSignal.any(signals), hear, "finish");
    const end = () => {
      this.#ended = true;
      this.#wake();
    };
    this.stats.then(
      () => (settle(this.#text), end()),
      () => (settle(undefined), end()),
    );
  }

  /** All of it, once it has ended. */
  async text(): Promise<string> {
    await this.stats;
    return this.#text;
  }

  /** Ends it after the token that is being computed. */
  stop(): void {
    this.#stop.abort();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, undefined> {
    try {
      for (;;) {
        const piece = this.#pieces.shift();
        if (piece !== undefined) yield piece;
        else if (this.#ended) break;
        else await new Promise<void>((wake) => (this.#wake = wake));
      }
      await this.stats;
    } finally {
      if (!this.#ended) this.stop();
    }
  }
}

/** Addresses as the page means them; a worker has another base. */
function absolute(source: Exclude<Source, unknown[]>): unknown {
  const isAddress = (text: string) => !text.startsWith("opfs:") && !/^[\w.-]+\/[\w.-]+:[^/].*$/.test(text);
  const resolve = (url: string) => (isAddress(url) ? new URL(url, globalThis.document?.baseURI ?? location.href).href : url);
  if (typeof source === "string") return { url: resolve(source) };
  if (source instanceof URL) return { url: source.href };
  if (source instanceof Blob) return source;
  return { ...source, url: resolve(source.url) };
}
