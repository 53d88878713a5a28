// Runs a WASI program that sees this folder and nothing else: node --no-warnings wasi.mjs PROGRAM.wasm [ARGUMENT...]
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const [program, ...rest] = process.argv.slice(2);
const folder = process.cwd();
const wasi = new WASI({
  version: "preview1",
  args: [program, ...rest],
  env: process.env,
  preopens: { [folder]: folder },
  returnOnExit: true,
});
const module = await WebAssembly.compile(await readFile(program));
process.exitCode = wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject()));
