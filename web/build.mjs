// The package as `npm pack` packs it: both modules, and the TypeScript around them. `npm run build`.
import { execFileSync } from "node:child_process";
import fs from "node:fs";

const run = (program, args, env = {}) => execFileSync(program, args, { stdio: "inherit", env: { ...process.env, ...env } });
const pack = (folder, more, env) => {
  run("wasm-pack", ["build", "--release", "--no-pack", "--target", "web", "--out-dir", folder, ...more], env);
  // It says that nothing here should be kept, which npm heeds.
  fs.rmSync(`${folder}/.gitignore`, { force: true });
};

fs.rmSync("dist", { recursive: true, force: true });
pack("dist/wasm", []);
// The standard library's sources are built with a flag that only this variable allows a stable compiler.
pack("dist/threads", ["--", "--no-default-features", "--config", "threads.toml"], { RUSTC_BOOTSTRAP: "1" });
run(process.execPath, ["node_modules/typescript/bin/tsc", "-p", "ts"]);
