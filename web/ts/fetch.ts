// Files from the network: chunks side by side, each by a range of its own, straight into the cache or, where there is no
// room, into memory in pieces that the browser may move to its disk. What was fetched once is not fetched again.

import * as cache from "./cache.js";
import { CHUNK, type Notes } from "./cache.js";
import { HadalError, aborted } from "./errors.js";
import type { RemoteFile } from "./types.js";

/** Requests at a time. */
const PARALLEL = 4;
/** Tries of a chunk without a byte in between, and what is waited before the second; doubled each time. */
const TRIES = 5;
const PAUSE_MS = 250;
/** At least this is between two writes of the notes: what a tab that is killed loses. */
const NOTES_MS = 1000;

/** Whom a download is told to. */
export interface Listener {
  signal: AbortSignal;
  /** How many more bytes there are, and whether they came just now. */
  add(bytes: number, fetched: boolean): void;
  /** Bytes in all. */
  total(bytes: number): void;
  notice(text: string): void;
}

/** Where bytes go. */
interface Sink {
  write(offset: number, bytes: Uint8Array<ArrayBuffer>): void;
  /** Keeps the notes, at the latest when it is over. */
  note(notes: Notes, now: boolean): void;
  /** Ends writing and gives the file. */
  close(notes: Notes): Promise<Blob>;
}

/** A whole file: from the cache, or fetched as far as it is not there. */
export async function fetchFile(remote: RemoteFile, keep: boolean, to: Listener): Promise<{ blob: Blob; notes: Notes }> {
  const key = await cache.keyOf(remote.url);
  // Another tab, or another engine, may fetch the same file: the second one waits and finds it.
  return navigator.locks.request(`hadal-${key}`, { signal: to.signal }, async () => {
    const files = keep ? await cache.folder().catch(() => undefined) : undefined;
    const old = files && (await cache.readNotes(files, key));
    if (files && old && cache.isComplete(old) && (remote.size === undefined || remote.size === old.size)) {
      const blob = await files.getFileHandle(`${key}.gguf`).then((handle) => handle.getFile(), () => undefined);
      if (blob?.size === old.size) {
        to.total(old.size);
        to.add(old.size, false);
        return { blob, notes: old };
      }
    }
    return download(remote, key, files, old, keep, to);
  });
}

async function download(
  remote: RemoteFile,
  key: string,
  files: FileSystemDirectoryHandle | undefined,
  old: Notes | undefined,
  keep: boolean,
  to: Listener,
): Promise<{ blob: Blob; notes: Notes }> {
  const first = await ask(remote.url, 0, to.signal);
  const { size, tag } = first;
  if (remote.size !== undefined && remote.size !== size) {
    await first.response.body?.cancel();
    throw new HadalError("integrity", `${remote.url} has ${size} bytes, not the ${remote.size} that were asked for`);
  }
  to.total(size);
  const fresh: Notes = { url: remote.url, name: nameOf(remote.url), size, tag, done: new Array(Math.ceil(size / CHUNK)).fill(0) };
  const goesOn = old && first.ranges && old.size === size && old.tag === tag;
  let notes = goesOn ? old : fresh;
  let sink: Sink | undefined;
  try {
    sink = files && (await opfsSink(files, key, notes));
  } catch (error) {
    if (!isNoRoom(error)) throw error;
    to.notice(noRoom(fresh));
  }
  if (!sink) {
    if (keep && !files) to.notice("this browser gives no storage here: the model is fetched again next time");
    notes = fresh;
    sink = memorySink(size);
  }
  to.add(cache.bytesThere(notes), false);
  try {
    await fetchAll(remote.url, notes, sink, first, to);
  } catch (error) {
    sink.note(notes, true);
    await sink.close(notes);
    if (files && isNoRoom(error)) {
      // The disk was filled by somebody else meanwhile.
      await cache.remove(remote.url);
      to.add(-cache.bytesThere(notes), false);
      to.notice(noRoom(fresh));
      return download(remote, key, undefined, undefined, false, { ...to, total() {} });
    }
    throw to.signal.aborted ? aborted() : error;
  }
  sink.note(notes, true);
  return { blob: await sink.close(notes), notes };
}

interface Opened {
  response: Response;
  size: number;
  tag: string;
  ranges: boolean;
}

/** Asks for everything from `from` on; whoever has enough stops reading. */
async function ask(url: string, from: number, signal: AbortSignal, to?: number): Promise<Opened> {
  const range = `bytes=${from}-${to === undefined ? "" : to - 1}`;
  let response: Response;
  try {
    response = await fetch(url, { headers: { range }, signal, cache: "no-store" });
  } catch (error) {
    if (signal.aborted) throw aborted();
    throw new HadalError("network", `${url} can't be reached: ${(error as Error).message}`);
  }
  if (!response.ok) throw new HadalError("network", `${url}: the server says ${response.status} ${response.statusText}`);
  const ranges = response.status === 206;
  const said = ranges ? response.headers.get("content-range")?.split("/")[1] : response.headers.get("content-length");
  const size = Number(said);
  if (!said || !Number.isSafeInteger(size) || size <= 0) {
    throw new HadalError("network", `${url}: the server doesn't say how long the file is`);
  }
  return { response, size, ranges, tag: response.headers.get("etag") ?? response.headers.get("last-modified") ?? "" };
}

/** Fetches all chunks, several at a time where the server gives ranges. */
async function fetchAll(url: string, notes: Notes, sink: Sink, first: Opened, to: Listener): Promise<void> {
  if (!first.ranges) return stream(first.response, notes, 0, notes.size, sink, to);
  const open = notes.done.map((_, index) => index).filter((index) => notes.done[index]! < lengthOf(notes, index));
  // The answer that told the size is the first chunk, if that is missing.
  let ready: Opened | undefined = first;
  if (open[0] !== 0 || notes.done[0] !== 0) {
    ready = undefined;
    await first.response.body?.cancel();
  }
  const failed = new AbortController();
  const signal = AbortSignal.any([to.signal, failed.signal]);
  const work = async () => {
    for (let index = open.shift(); index !== undefined; index = open.shift()) {
      const begun = index === 0 ? ready : undefined;
      await fetchChunk(url, index, notes, sink, begun, { ...to, signal });
    }
  };
  const workers = Array.from({ length: PARALLEL }, () =>
    work().catch((error) => {
      failed.abort();
      throw error;
    }),
  );
  const ends = await Promise.allSettled(workers);
  const errors = ends.flatMap((end) => (end.status === "rejected" ? [end.reason as HadalError] : []));
  if (errors.length) throw errors.find((error) => error.code !== "aborted") ?? errors[0];
}

function lengthOf(notes: Notes, index: number): number {
  return Math.min(CHUNK, notes.size - index * CHUNK);
}

/** Fetches what is missing of a chunk, again where the connection is cut. */
async function fetchChunk(url: string, index: number, notes: Notes, sink: Sink, begun: Opened | undefined, to: Listener): Promise<void> {
  const end = index * CHUNK + lengthOf(notes, index);
  for (let failures = 0; notes.done[index]! < lengthOf(notes, index); ) {
    const from = index * CHUNK + notes.done[index]!;
    try {
      const opened = begun ?? (await ask(url, from, to.signal, end));
      begun = undefined;
      if (!opened.ranges || opened.size !== notes.size || opened.tag !== notes.tag) {
        throw new HadalError("integrity", `${url} changed while it was fetched`);
      }
      await stream(opened.response, notes, from, end, sink, to);
    } catch (error) {
      if (to.signal.aborted) throw aborted();
      const wrong = HadalError.from(error);
      if (isNoRoom(error) || wrong.code === "integrity") throw error;
      failures = index * CHUNK + notes.done[index]! > from ? 1 : failures + 1;
      if (failures === TRIES) throw new HadalError("network", `${url}: the connection was cut ${TRIES} times: ${wrong.message}`);
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * 2 ** (failures - 1)));
    }
  }
}

/** Writes what comes from `from` to `end`. */
async function stream(response: Response, notes: Notes, from: number, end: number, sink: Sink, to: Listener): Promise<void> {
  const reader = response.body!.getReader();
  let at = from;
  try {
    while (at < end) {
      const { done, value } = await reader.read();
      if (done) throw new HadalError("network", `the answer ended ${end - at} bytes early`);
      const bytes = value.subarray(0, end - at);
      sink.write(at, bytes);
      for (let rest = bytes.length; rest > 0; ) {
        const index = Math.floor(at / CHUNK);
        const count = Math.min(rest, (index + 1) * CHUNK - at);
        notes.done[index]! += count;
        at += count;
        rest -= count;
      }
      to.add(bytes.length, true);
      sink.note(notes, false);
    }
  } finally {
    // Not waited for: a connection that was cut may never answer.
    reader.cancel().catch(() => {});
  }
}

/** Into the cache; throws where there is no room for all of it. */
async function opfsSink(files: FileSystemDirectoryHandle, key: string, notes: Notes): Promise<Sink> {
  const handle = await files.getFileHandle(`${key}.gguf`, { create: true });
  const file = await handle.createSyncAccessHandle();
  let page: FileSystemSyncAccessHandle;
  try {
    file.truncate(notes.size);
    page = await (await files.getFileHandle(`${key}.json`, { create: true })).createSyncAccessHandle();
  } catch (error) {
    file.close();
    await files.removeEntry(`${key}.gguf`);
    throw error;
  }
  let written = 0;
  return {
    write(offset, bytes) {
      if (file.write(bytes, { at: offset }) !== bytes.length) throw new DOMException("no room", "QuotaExceededError");
    },
    note(notes, now) {
      if (!now && performance.now() - written < NOTES_MS) return;
      written = performance.now();
      // First the bytes, then what says that they are there.
      file.flush();
      const text = new TextEncoder().encode(JSON.stringify(notes));
      page.truncate(0);
      page.write(text, { at: 0 });
      page.flush();
    },
    async close() {
      file.close();
      page.close();
      return handle.getFile();
    },
  };
}

/** Into memory, as blobs: those a browser keeps outside the tab's heap, on its disk if they are many. */
function memorySink(size: number): Sink {
  const chunks: (Uint8Array<ArrayBuffer> | Blob)[] = new Array(Math.ceil(size / CHUNK));
  const done: number[] = new Array(chunks.length).fill(0);
  return {
    write(offset, bytes) {
      for (let at = 0; at < bytes.length; ) {
        const index = Math.floor((offset + at) / CHUNK);
        const within = (offset + at) % CHUNK;
        const length = Math.min(CHUNK, size - index * CHUNK);
        const part = bytes.subarray(at, at + length - within);
        const chunk = (chunks[index] ??= new Uint8Array(length)) as Uint8Array<ArrayBuffer>;
        chunk.set(part, within);
        done[index]! += part.length;
        if (done[index] === length) chunks[index] = new Blob([chunk]);
        at += part.length;
      }
    },
    note() {},
    close: async () => new Blob(chunks.filter((chunk) => chunk !== undefined)),
  };
}

function noRoom({ name, size }: Notes): string {
  return `there is no room to keep ${name} (${size} bytes): it stays in memory and is fetched again next time`;
}

function isNoRoom(error: unknown): boolean {
  return (error as Error | undefined)?.name === "QuotaExceededError";
}

/** The last part of a URL's path. */
export function nameOf(url: string): string {
  const name = new URL(url).pathname.split("/").pop();
  return name ? decodeURIComponent(name) : url;
}
