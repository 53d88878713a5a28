// How far something is, how fast, and for how long yet.

import type { Progress } from "./types.js";

/** Seconds over which speed is counted. */
const WINDOW = 4;
/** Between two reports, unless the phase changes. */
const REPORT_MS = 100;

export class Meter {
  readonly #report: (progress: Progress) => void;
  #phase: Progress["phase"] = "fetch";
  #loaded = 0;
  #total = 0;
  /** Times in seconds and bytes that were fetched by then. */
  #fetched: [number, number][] = [];
  #reported = 0;

  constructor(report: (progress: Progress) => void) {
    this.#report = report;
  }

  readonly total = (bytes: number): void => {
    this.#total += bytes;
    this.#tell(true);
  };

  readonly add = (bytes: number, fetched: boolean): void => {
    this.#loaded += bytes;
    if (fetched) {
      const now = performance.now() / 1000;
      const [, sum] = this.#fetched.at(-1) ?? [now, 0];
      this.#fetched.push([now, sum + bytes]);
      while (this.#fetched.length > 2 && this.#fetched[0]![0] < now - WINDOW) this.#fetched.shift();
    }
    this.#tell(this.#loaded === this.#total);
  };

  /** Something else begins; `of` bytes, if it is counted. */
  phase(phase: Progress["phase"], of?: number): void {
    this.#phase = phase;
    this.#fetched = [];
    if (of !== undefined) [this.#loaded, this.#total] = [0, of];
    this.#tell(true);
  }

  end(): void {
    this.#loaded = this.#total;
    this.#tell(true);
  }

  #tell(now: boolean): void {
    const time = performance.now();
    if (!now && time - this.#reported < REPORT_MS) return;
    this.#reported = time;
    const [first, last] = [this.#fetched[0], this.#fetched.at(-1)];
    const seconds = first && last ? last[0] - first[0] : 0;
    const speed = first && last && seconds > 0 ? (last[1] - first[1]) / seconds : 0;
    const remaining = speed > 0 ? (this.#total - this.#loaded) / speed : undefined;
    this.#report({ phase: this.#phase, loaded: this.#loaded, total: this.#total, speed, remaining });
  }
}
