// Drives the package and the page in headless Chromium: `npm test [NAME...]`. $CHROMIUM names the browser, $SHOTS the folder
// for pictures of the page.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { engineTests } from "./engine.mjs";
import { fileTests } from "./files.mjs";
import { largeTests } from "./large.mjs";
import { packageTests } from "./package.mjs";
import { pageTests } from "./page.mjs";
import { expected, visit } from "./visit.mjs";

const shots = process.env.SHOTS ?? path.join(os.tmpdir(), "hadal-page");

/** A test that hangs fails: nothing else bounds what a page computes. */
const LIMIT_MS = 600_000;

function within(milliseconds, work) {
  const over = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`not done after ${milliseconds / 1000} s`)), milliseconds).unref();
  });
  return Promise.race([work, over]);
}

const tests = { ...engineTests, ...fileTests, ...largeTests, ...packageTests, ...pageTests({ visit, shots, expected }) };
const wanted = process.argv.slice(2);
let failures = 0;
fs.mkdirSync(shots, { recursive: true });
for (const [name, test] of Object.entries(tests)) {
  if (wanted.length && !wanted.includes(name)) continue;
  const start = performance.now();
  try {
    await within(LIMIT_MS, test());
    console.log(`ok ${name} (${((performance.now() - start) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failures++;
    console.error(`FAILED ${name}: ${error.stack}`);
  }
}
process.exit(failures ? 1 : 0);
