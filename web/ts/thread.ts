// A thread of the engine's, in a worker of its own: see `threads.ts`.

import { HadalError } from "./errors.js";
import { lastWords } from "./panic.js";
import type { Start } from "./threads.js";
import init, { lend } from "./threads/hadal_web.js";

onmessage = async ({ data }: MessageEvent<Start>) => {
  let panic = "";
  (globalThis as unknown as { hadalFiles: object }).hadalFiles = {
    read: () => "files are read before threads compute",
    warned() {},
    panicked: (text: string) => (panic = text),
  };
  try {
    await init({ module_or_path: data.module, memory: data.memory });
    postMessage("ready");
    lend();
  } catch (thrown) {
    const { code, message } = lastWords(thrown, panic) ?? HadalError.from(thrown);
    data.alarm.postMessage({ code, message });
  }
};
