// A local server for the page, with the headers that isolate it from other origins, and ranges: `npm run dev [PORT]`.
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));

/** What is where: `site.mjs` copies the same. */
export const MOUNTS = {
  "/": path.join(here, "page"),
  "/hadal": path.join(here, "dist"),
  "/models": path.join(here, "../models/austen"),
};

const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".wasm": "application/wasm", ".svg": "image/svg+xml" };

export const ISOLATION = { "cross-origin-opener-policy": "same-origin", "cross-origin-embedder-policy": "require-corp", "cross-origin-resource-policy": "same-origin" };

/** The file of an address, if it lies inside its mount. */
function find(mounts, address) {
  const [mount, root] = Object.entries(mounts).filter(([mount]) => address === mount || address.startsWith(mount === "/" ? "/" : `${mount}/`)).sort(([a], [b]) => b.length - a.length)[0] ?? [];
  if (!root) return undefined;
  const file = path.join(root, address.slice(mount.length) || "");
  const inside = file === root || file.startsWith(root + path.sep);
  return inside ? (address.endsWith("/") ? path.join(file, "index.html") : file) : undefined;
}

/** The first and last byte that are asked for; all of them without a range. */
function asked(range, size) {
  const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(range ?? "") ?? [];
  return from === undefined ? undefined : [Number(from), Math.min(to ? Number(to) : size - 1, size - 1)];
}

/** Serves `mounts`; `answer(request, response)` may take a request for itself by returning true. */
export function serve({ mounts = MOUNTS, headers = ISOLATION, port = 0, answer = () => false } = {}) {
  const server = http.createServer((request, response) => {
    if (answer(request, response)) return;
    const file = find(mounts, decodeURIComponent(new URL(request.url, "http://localhost").pathname));
    const stat = file && fs.statSync(file, { throwIfNoEntry: false });
    if (!stat?.isFile()) {
      response.writeHead(404).end();
      return;
    }
    const range = asked(request.headers.range, stat.size);
    if (range && range[0] > range[1]) {
      response.writeHead(416, { "content-range": `bytes */${stat.size}` }).end();
      return;
    }
    const [from, to] = range ?? [0, stat.size - 1];
    response.writeHead(range ? 206 : 200, {
      ...headers,
      ...(range && { "content-range": `bytes ${from}-${to}/${stat.size}` }),
      "content-type": TYPES[path.extname(file)] ?? "application/octet-stream",
      "content-length": to - from + 1,
      "accept-ranges": "bytes",
      "cache-control": "no-cache",
      etag: `"${stat.size}-${Math.floor(stat.mtimeMs)}"`,
    });
    if (request.method === "HEAD" || stat.size === 0) response.end();
    else fs.createReadStream(file, { start: from, end: to }).pipe(response);
  });
  return new Promise((resolve) => {
    server.listen(port, "127.0.0.1", () => resolve({ server, url: `http://localhost:${server.address().port}` }));
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await serve({ port: Number(process.argv[2] ?? 8080) });
  console.log(`Hadal is at ${url}`);
}
