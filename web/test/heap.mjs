// What a page and its workers have in their heaps, as the browser's own debugger counts it.

/** Between two looks. A heap that is busy answers later. */
const PAUSE_MS = 50;

/**
 * Looks at the heaps of a page and of the workers that it starts, again and again: JavaScript's objects, dead ones too that
 * were not collected yet, and what buffers hold, of which a module's memory is one. `stop` tells the most that they had together.
 */
export async function watchHeaps(context, page) {
  const client = await context.newCDPSession(page);
  /** Bytes by worker; the page's own under "". */
  const heaps = new Map();
  let [peak, asked, over] = [0, 0, false];
  const note = (id, usage) => {
    heaps.set(id, usage.usedSize + usage.embedderHeapUsedSize + usage.backingStorageSize);
    peak = Math.max(peak, [...heaps.values()].reduce((sum, bytes) => sum + bytes, 0));
  };
  client.on("Target.attachedToTarget", ({ sessionId }) => heaps.set(sessionId, 0));
  client.on("Target.detachedFromTarget", ({ sessionId }) => heaps.delete(sessionId));
  client.on("Target.receivedMessageFromTarget", ({ sessionId, message }) => {
    const { result } = JSON.parse(message);
    if (result && heaps.has(sessionId)) note(sessionId, result);
  });
  await client.send("Target.setAutoAttach", { autoAttach: true, waitForDebuggerOnStart: false, flatten: false });
  const look = async () => {
    while (!over) {
      note("", await client.send("Runtime.getHeapUsage"));
      const message = JSON.stringify({ id: ++asked, method: "Runtime.getHeapUsage" });
      // A worker that ends meanwhile is none.
      const workers = [...heaps.keys()].filter(Boolean);
      await Promise.all(workers.map((sessionId) => client.send("Target.sendMessageToTarget", { sessionId, message }).catch(() => {})));
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  };
  const looking = look();
  return async function stop() {
    over = true;
    await looking;
    await client.detach();
    return peak;
  };
}
