// Drives the package and the page in headless Chromium: `npm test [NAME...]`. $CHROMIUM names the browser, $SHOTS the folder
// for pictures of the page.
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { engineTests } from "./engine.mjs";
import { fileTests } from "./files.mjs";
import { largeTests } from "./large.mjs";
import { packageTests } from "./package.mjs";
import { pageTests } from "./page.mjs";
import { expected, visit } from "./visit.mjs";

const shots = process.env.SHOTS ?? path.join(os.tmpdir(), "hadal-page");

/** A test that hangs fails: nothing else bounds what a page computes. */
const LIMIT_MS = 900_000;

function within(milliseconds, work) {
  const over = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`not done after ${milliseconds / 1000} s`)), milliseconds).unref();
  });
  return Promise.race([work, over]);
}

/** Those that take longest come first. */
const tests = { ...largeTests, ...engineTests, ...fileTests, ...packageTests, ...pageTests({ visit, shots, expected }) };

async function run(name) {
  const start = performance.now();
  try {
    await within(LIMIT_MS, tests[name]());
    console.log(`ok ${name} (${((performance.now() - start) / 1000).toFixed(1)} s)`);
    return true;
  } catch (error) {
    console.log(`FAILED ${name}: ${error.stack}`);
    return false;
  }
}

/** A test in a process of its own, for what it counts of its browser's processes; what it prints comes at its end. */
function apart(name) {
  const child = spawn(process.execPath, [fileURLToPath(import.meta.url), name], { stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (more) => (text += more));
  return new Promise((resolve) => {
    child.on("close", (code) => {
      process.stdout.write(text);
      resolve(code === 0);
    });
  });
}

/** Two side by side: most of a test is one thing after another. */
async function all(names) {
  const results = [];
  const lane = async () => {
    for (let name = names.shift(); name !== undefined; name = names.shift()) results.push(await apart(name));
  };
  await Promise.all([lane(), lane()]);
  return results.every((passed) => passed);
}

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !(name in tests));
if (unknown.length) throw new Error(`no test ${unknown}`);
fs.mkdirSync(shots, { recursive: true });
const passed = wanted.length === 1 ? await run(wanted[0]) : await all(wanted.length ? wanted : Object.keys(tests));
process.exit(passed ? 0 : 1);
