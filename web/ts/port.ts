// Calls to the worker: each has a number, an end, and events before it.

import { HadalError, aborted } from "./errors.js";
import type { Info, Progress } from "./types.js";

/** Something that a call tells before its end. */
export interface CallEvent {
  progress?: Progress;
  notice?: string;
  piece?: string;
  /** Memory as it is now; the rest has not changed. */
  info?: Info;
}

interface Call {
  resolve: (value: never) => void;
  reject: (error: HadalError) => void;
  hear: (event: CallEvent) => void;
}

/** What the worker says. */
export interface Told {
  id: number;
  event?: CallEvent;
  value?: unknown;
  error?: { code: string; message: string };
  /** Where a thread of the worker's tells how it ended. */
  alarm?: MessagePort;
}

/** How long a worker may take to put things in order when it is stopped. */
const LAST_WORDS_MS = 1000;

export class Port {
  readonly #worker: Worker;
  readonly #calls = new Map<number, Call>();
  #next = 0;
  #over?: HadalError;
  /** What the worker said last of its model. */
  info?: Info;

  constructor() {
    this.#worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "hadal" });
    this.#worker.onmessage = ({ data }: MessageEvent<Told>) => this.#hear(data);
    this.#worker.onerror = (event) => {
      event.preventDefault();
      this.#fail(new HadalError("internal", `the worker failed: ${event.message || "its script could not be loaded"}`));
    };
  }

  /**
   * Calls `name` in the worker. When `signal` is aborted, either the call is rejected at once (`leave`), or it ends by
   * itself soon (`finish`).
   */
  call<T>(
    name: string,
    args: object,
    signal?: AbortSignal,
    hear: (event: CallEvent) => void = () => {},
    onAbort: "leave" | "finish" = "leave",
  ): Promise<T> {
    if (this.#over) return Promise.reject(this.#over);
    const id = this.#next++;
    const abort = () => {
      this.#worker.postMessage({ abort: id });
      if (onAbort === "leave") this.#calls.get(id)?.reject(aborted());
    };
    const promise = new Promise<T>((resolve, reject) => {
      this.#calls.set(id, { resolve: resolve as Call["resolve"], reject, hear });
      this.#worker.postMessage({ id, name, args });
      if (signal?.aborted) abort();
      signal?.addEventListener("abort", abort);
    });
    const done = () => {
      signal?.removeEventListener("abort", abort);
      this.#calls.delete(id);
    };
    promise.then(done, done);
    return promise;
  }

  /** Ends the worker. */
  async end(): Promise<void> {
    if (!this.#over) {
      this.#fail(new HadalError("disposed", "the engine was disposed of"));
      const gone = new Promise<void>((resolve) => {
        this.#worker.addEventListener("message", ({ data }) => data.ended && resolve());
        setTimeout(resolve, LAST_WORDS_MS);
      });
      this.#worker.postMessage({ end: true });
      await gone;
    }
    this.#worker.terminate();
  }

  #hear({ id, event, value, error, alarm }: Told): void {
    if (alarm) {
      alarm.onmessage = ({ data }) => {
        // The worker may wait for that thread for ever.
        this.#fail(HadalError.from(data));
        this.#worker.terminate();
      };
      return;
    }
    const call = this.#calls.get(id);
    if (event?.info) this.info = { ...this.info, ...event.info };
    else if (event) call?.hear(event);
    else if (error) call?.reject(HadalError.from(error));
    else call?.resolve(value as never);
  }

  #fail(error: HadalError): void {
    this.#over = error;
    for (const call of this.#calls.values()) call.reject(error);
  }
}
