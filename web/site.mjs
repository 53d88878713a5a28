// The page as a folder for any server of static files: `npm run site [FOLDER]`.
import fs from "node:fs";
import path from "node:path";
import { MOUNTS } from "./serve.mjs";

const folder = process.argv[2] ?? "site";
for (const [mount, from] of Object.entries(MOUNTS)) fs.cpSync(from, path.join(folder, mount), { recursive: true });
console.log(`${folder}/ is ready: serve it with the headers that docs/web.md names`);
