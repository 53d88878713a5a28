// Whether a file is the one that was asked for.

import { folder, keyOf, remove, type Notes } from "./cache.js";
import { HadalError, aborted } from "./errors.js";
import type { Meter } from "./meter.js";
import type { Module } from "./module.js";

const PIECE = 8 << 20;

/** Throws `integrity`, and forgets the file, if `blob` has another hash. What was found once is noted. */
export async function checkHash(module: Module, url: string, sha256: string, blob: Blob, notes: Notes, kept: boolean, meter: Meter, signal: AbortSignal): Promise<void> {
  const expected = sha256.toLowerCase();
  if (notes.sha256 !== expected) {
    notes.sha256 = await hashOf(module, blob, meter, signal);
    if (kept) await keep(url, notes);
  }
  if (notes.sha256 !== expected) {
    if (kept) await remove(url).catch(() => {});
    throw new HadalError("integrity", `${url} has the SHA-256 ${notes.sha256}, not ${expected}`);
  }
}

async function hashOf(module: Module, blob: Blob, meter: Meter, signal: AbortSignal): Promise<string> {
  const hash = new module.Sha256();
  meter.phase("check", blob.size);
  for (let at = 0; at < blob.size; at += PIECE) {
    if (signal.aborted) throw aborted();
    const bytes = new Uint8Array(await blob.slice(at, at + PIECE).arrayBuffer());
    hash.update(bytes);
    meter.add(bytes.length, false);
  }
  return hash.finish();
}

/** Notes what was found, so that it is not counted again. */
async function keep(url: string, notes: Notes): Promise<void> {
  try {
    const key = await keyOf(url);
    const page = await (await folder()).getFileHandle(`${key}.json`);
    const file = await page.createSyncAccessHandle();
    file.truncate(0);
    file.write(new TextEncoder().encode(JSON.stringify(notes)), { at: 0 });
    file.close();
  } catch {
    // It is counted again next time.
  }
}
