// What the browser's processes take, as the system counts it.
import fs from "node:fs";

/** Ids of the processes that this one started, and that those started. */
function started() {
  const parents = new Map();
  for (const id of fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    // A process that has ended meanwhile has no parent.
    const stat = read(`/proc/${id}/stat`);
    parents.set(id, stat.split(") ").at(-1).split(" ")[1]);
  }
  const ours = (id) => id !== undefined && (id === String(process.pid) || ours(parents.get(id)));
  return [...parents.keys()].filter((id) => id !== String(process.pid) && ours(id));
}

function read(path) {
  try {
    return fs.readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** Bytes of field `name` of `/proc/ID/status`. */
function bytes(id, name) {
  return 1024 * Number(new RegExp(`^${name}:\\s*(\\d+) kB`, "m").exec(read(`/proc/${id}/status`))?.[1] ?? 0);
}

/** Bytes in memory of the browser's processes. */
export function resident() {
  return started().reduce((sum, id) => sum + bytes(id, "VmRSS"), 0);
}

/** The processes that run pages and their workers. */
function tabs() {
  return started().filter((id) => read(`/proc/${id}/cmdline`).includes("--type=renderer"));
}

/** The most bytes that a tab had in memory so far: its heaps, its modules' memories, and what it shares with others. */
export function tabPeak() {
  return Math.max(...tabs().map((id) => bytes(id, "VmHWM")));
}

/** Seconds that each of the tabs' workers has computed. */
export function workerSeconds() {
  const threads = tabs().flatMap((id) => {
    const tasks = fs.existsSync(`/proc/${id}/task`) ? fs.readdirSync(`/proc/${id}/task`) : [];
    return tasks.map((task) => read(`/proc/${id}/task/${task}/stat`));
  });
  const workers = threads.filter((stat) => stat.includes("(DedicatedWorker"));
  const ticks = workers.map((stat) => stat.split(") ").at(-1).split(" ").slice(11, 13).map(Number));
  return ticks.map(([user, system]) => (user + system) / 100);
}
