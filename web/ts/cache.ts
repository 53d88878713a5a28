// The cache of fetched files: the folder `hadal` of this origin's private file system. Each file has a page of notes
// beside it, which says where it is from and how much of it is there.

import { HadalError } from "./errors.js";
import type { CachedFile } from "./types.js";

/** Bytes that one request fetches. */
export const CHUNK = 8 << 20;

/** What is known of a file that is fetched. */
export interface Notes {
  url: string;
  name: string;
  size: number;
  /** What the server says of this version of the file; empty if nothing. */
  tag: string;
  /** Bytes that are there of each chunk. */
  done: number[];
  /** The hash that was found, once all is there and was asked for. */
  sha256?: string;
}

export function isComplete(notes: Notes): boolean {
  return bytesThere(notes) === notes.size;
}

export function bytesThere(notes: Notes): number {
  return notes.done.reduce((sum, bytes) => sum + bytes, 0);
}

export async function folder(): Promise<FileSystemDirectoryHandle> {
  const root = await navigator.storage.getDirectory();
  return root.getDirectoryHandle("hadal", { create: true });
}

/** The name of a URL's file in the folder. */
export async function keyOf(url: string): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(url));
  return [...new Uint8Array(hash).subarray(0, 16)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The notes of a file, if they are there and make sense. */
export async function readNotes(folder: FileSystemDirectoryHandle, key: string): Promise<Notes | undefined> {
  try {
    const file = await (await folder.getFileHandle(`${key}.json`)).getFile();
    const notes = JSON.parse(await file.text()) as Notes;
    const whole = Number.isSafeInteger(notes.size) && notes.done.length === Math.ceil(notes.size / CHUNK);
    return whole && typeof notes.url === "string" ? notes : undefined;
  } catch {
    return undefined;
  }
}

/** What is in the cache. */
export async function list(): Promise<CachedFile[]> {
  const found: CachedFile[] = [];
  const files = await folder();
  for await (const name of files.keys()) {
    if (!name.endsWith(".json")) continue;
    const notes = await readNotes(files, name.slice(0, -".json".length));
    if (!notes) continue;
    const { url, size } = notes;
    found.push({ name: notes.name, url, size, bytes: bytesThere(notes), complete: isComplete(notes) });
  }
  return found;
}

/** Deletes a file by its URL or name, as {@link list} gives them; all of them without. Returns how many there were. */
export async function remove(file?: string): Promise<number> {
  const files = await folder();
  let count = 0;
  for (const { name, url } of await list()) {
    if (file !== undefined && file !== name && file !== url) continue;
    const key = await keyOf(url);
    try {
      await files.removeEntry(`${key}.gguf`).catch(ignoreMissing);
      await files.removeEntry(`${key}.json`).catch(ignoreMissing);
    } catch (error) {
      throw new HadalError("file", `${name} is being fetched or read: ${(error as Error).message}`);
    }
    count++;
  }
  return count;
}

function ignoreMissing(error: unknown): void {
  if ((error as Error).name !== "NotFoundError") throw error;
}

/** A complete file by its name: of the cache, or any file of this origin's private file system. */
export async function openByName(name: string): Promise<File> {
  const root = await navigator.storage.getDirectory();
  const cached = (await list()).find((file) => file.name === name && file.complete);
  try {
    const handle = cached
      ? await (await folder()).getFileHandle(`${await keyOf(cached.url)}.gguf`)
      : await root.getFileHandle(name);
    return await handle.getFile();
  } catch {
    throw new HadalError("file", `there is no whole file ${name} in this origin's storage`);
  }
}
