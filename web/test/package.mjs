// The package as a developer gets it: packed, installed, and the documentation's lines as they stand.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { ISOLATION, MOUNTS } from "../serve.mjs";
import { MODEL, expected, inPage, repository, visit } from "./visit.mjs";

const web = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const npm = (folder, ...args) => execFileSync("npm", args, { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });

/** A program that uses all that the types promise. */
const PROGRAM = `
import { Engine, HadalError, cache, type Info, type Stats } from "hadal";
const engine: Engine = await Engine.open(["a.gguf", new Blob([])], { onProgress: ({ remaining }) => remaining?.toFixed(), kv: "q8_0" });
const info: Info = engine.info();
for await (const piece of engine.chat("Be terse.").send("Hello", { sampling: { topK: 1 } })) piece.toUpperCase();
const stats: Stats = await engine.generate("It").stats;
const files = (await cache.list()).map(({ name }) => name.length);
if (info.threads + stats.generatedTokens + files.length < 0) throw new HadalError("internal", "never");
// @ts-expect-error: no such option.
await Engine.open("a.gguf", { colour: "red" });
`;

export const packageTests = {
  /** What `npm pack` makes is installed as anybody would, has types, and runs in a page. */
  async pack() {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "hadal-package-"));
    const [{ filename, files, size }] = JSON.parse(npm(web, "pack", "--json", "--silent", "--pack-destination", folder));
    console.log(`  ${filename}: ${files.length} files, ${(size / 1e6).toFixed(1)} MB`);
    fs.writeFileSync(path.join(folder, "package.json"), JSON.stringify({ type: "module", private: true }));
    npm(folder, "install", "--offline", "--no-audit", "--no-fund", "--silent", path.join(folder, filename));
    const installed = path.join(folder, "node_modules/hadal");
    const strangers = files.map((file) => file.path).filter((name) => !/^(package\.json|README\.md|dist\/(\w+\/)?\w+(\.d)?\.(js|ts|wasm))$/.test(name));
    assert.deepEqual(strangers.filter((name) => !name.endsWith(".wasm.d.ts")), []);

    fs.writeFileSync(path.join(folder, "program.ts"), PROGRAM);
    const flags = ["--noEmit", "--strict", "--target", "es2022", "--module", "es2022", "--moduleResolution", "bundler", "--lib", "es2022,esnext.disposable,dom,dom.asynciterable"];
    execFileSync(process.execPath, [path.join(web, "node_modules/typescript/bin/tsc"), ...flags, "program.ts"], { cwd: folder, stdio: ["ignore", 2, 2] });

    const { exports } = JSON.parse(fs.readFileSync(path.join(installed, "package.json"), "utf8"));
    const mounts = { "/models": MOUNTS["/models"], "/hadal": path.dirname(path.join(installed, exports["."].default)) };
    for (const headers of [{}, ISOLATION]) {
      const { page, end, complaints } = await visit({ mounts, headers, args: [] });
      const found = await inPage(page, async ({ Engine }, { model, prompt }) => {
        const engine = await Engine.open(model, { device: "cpu", threads: globalThis.crossOriginIsolated ? 2 : 1 });
        const text = await engine.generate(prompt, { sampling: { temperature: 0, maxTokens: 8 } }).text();
        const { threads } = engine.info();
        await engine.dispose();
        return { text, threads };
      }, { model: MODEL, prompt: expected.prompt });
      assert.ok(found.text.length > 10 && expected.greedy.startsWith(found.text), found.text);
      assert.equal(found.threads, headers === ISOLATION ? 2 : 1);
      assert.deepEqual(complaints, []);
      await end();
    }
    fs.rmSync(folder, { recursive: true });
  },

  /** The ten lines of docs/web.md, as they stand there. */
  async docs() {
    const text = fs.readFileSync(path.join(repository, "docs/web.md"), "utf8");
    const lines = /```js\n([^]*?)```/.exec(text)[1];
    assert.ok(lines.trim().split("\n").length <= 10);
    const imports = `<script type="importmap">{"imports": {"hadal": "/hadal/index.js"}}</script>`;
    const answer = (request, response) => {
      if (request.url !== "/ten.html") return false;
      response.writeHead(200, { ...ISOLATION, "content-type": "text/html" });
      response.end(`<!doctype html>${imports}<body><script type="module">${lines}document.title = "done";</script>`);
      return true;
    };
    const { page, end, complaints } = await visit({ address: "/ten.html", answer });
    await page.waitForFunction(() => document.title === "done");
    assert.ok((await page.textContent("body")).length > 20);
    assert.deepEqual(complaints, []);
    await end();
  },
};
