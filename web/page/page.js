// The page: a model, a conversation, and what to show of both.
import { Engine, HadalError, cache } from "./hadal/index.js";

const AUSTEN = "models/austen-q8_0.gguf";
const $ = (id) => document.getElementById(id);
const show = (id, visible) => ($(id).hidden = !visible);

let engine;
let chat;
/** Stops what is being opened. */
let opening;
/** The answer that is being given. */
let answer;

function bytes(count) {
  const units = ["B", "kB", "MB", "GB"];
  const unit = Math.min(3, Math.max(0, Math.floor(Math.log10(Math.max(count, 1)) / 3)));
  return `${(count / 1000 ** unit).toFixed(unit > 1 && count < 100 * 1000 ** unit ? 1 : 0)} ${units[unit]}`;
}

function time(seconds) {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.ceil(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function say(id, text) {
  $(id).textContent = text;
  show(id, Boolean(text));
}

function fail(error) {
  const { code, message, advice } = HadalError.from(error);
  if (code !== "aborted" && code !== "disposed") say("error", advice ? `${message}\n${advice}` : message);
}

const PHASES = { fetch: "Fetching the model", check: "Checking the model", load: "Starting the model" };

function progress({ phase, loaded, total, speed, remaining }) {
  $("what").textContent = PHASES[phase];
  const bar = $("bar");
  if (total > 0 && phase !== "load") [bar.max, bar.value] = [total, loaded];
  else bar.removeAttribute("value");
  const parts = [total ? `${bytes(loaded)} of ${bytes(total)}` : ""];
  if (speed && loaded < total) parts.push(`${bytes(speed)}/s`, remaining === undefined ? "" : `${time(remaining)} left`);
  $("how-far").textContent = parts.filter(Boolean).join(" · ");
}

function number(id) {
  return $(id).value === "" ? undefined : Number($(id).value);
}

async function open(source) {
  if (opening) return;
  await close();
  say("error", "");
  say("notice", "");
  show("open", false);
  show("loading", true);
  progress({ phase: "fetch", loaded: 0, total: 0, speed: 0 });
  opening = new AbortController();
  try {
    engine = await Engine.open(source, {
      device: $("device").value,
      contextLength: number("context"),
      kv: $("kv").value,
      signal: opening.signal,
      onProgress: progress,
      onNotice: (text) => say("notice", text),
    });
    begin();
  } catch (error) {
    fail(error);
    show("open", true);
  } finally {
    opening = undefined;
    show("loading", false);
    listKept();
  }
}

function begin() {
  const info = engine.info();
  $("runs").textContent = `${info.name} (${info.format}, ${bytes(info.weightBytes)}) runs on ${info.why}.`;
  document.body.dataset.device = info.device;
  const label = info.canChat ? "Message" : "A beginning, which the model goes on with";
  $("prompt-label").textContent = label;
  $("prompt").placeholder = info.canChat ? "Write a message" : "Write a beginning: this model goes on with it";
  if (!info.canChat && !$("prompt").value) $("prompt").value = "It is a truth universally acknowledged,";
  chat = engine.chat();
  show("say", true);
  $("prompt").focus();
}

async function close() {
  answer?.stop();
  const gone = engine;
  engine = chat = undefined;
  $("talk").replaceChildren();
  $("speed").textContent = "";
  $("runs").textContent = "No model is open.";
  show("say", false);
  show("open", true);
  await gone?.dispose();
}

function article(who, text) {
  const made = document.createElement("article");
  made.className = who;
  made.setAttribute("aria-label", who === "user" ? "You" : "The model");
  made.textContent = text;
  $("talk").append(made);
  return made;
}

function sampling() {
  const settings = { temperature: number("temperature"), maxTokens: number("most"), seed: number("seed") };
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined));
}

async function send(text) {
  say("error", "");
  const chats = engine.info().canChat;
  if (chats) article("user", text);
  const shown = article("model", chats ? "" : text);
  shown.classList.add("busy");
  shown.setAttribute("aria-busy", "true");
  show("stop", true);
  $("send").disabled = true;
  const begun = performance.now();
  let pieces = 0;
  try {
    const options = { sampling: sampling() };
    answer = chats ? chat.send(text, options) : engine.generate(text, options);
    for await (const piece of answer) {
      const atEnd = innerHeight + scrollY > document.body.scrollHeight - 80;
      shown.append(piece);
      if (atEnd) scrollTo(0, document.body.scrollHeight);
      pieces++;
      $("speed").textContent = `${(pieces / ((performance.now() - begun) / 1000)).toFixed(1)} tokens/s`;
    }
    const { generatedTokens, generateSeconds, firstTokenSeconds, finish } = await answer.stats;
    const speed = generateSeconds > 0 ? (generatedTokens - 1) / generateSeconds : 0;
    const ends = { length: "as long as asked", context: "the context is full", aborted: "stopped", stop: "" };
    const said = [`${speed.toFixed(1)} tokens/s`, `first after ${firstTokenSeconds.toFixed(2)} s`, ends[finish]];
    $("speed").textContent = said.filter(Boolean).join(" · ");
  } catch (error) {
    fail(error);
  } finally {
    answer = undefined;
    shown.classList.remove("busy");
    shown.removeAttribute("aria-busy");
    show("stop", false);
    $("send").disabled = false;
  }
}

async function listKept() {
  const kept = await cache.list().catch(() => []);
  const items = kept.map((file) => {
    const item = document.createElement("li");
    item.append(`${file.name}, ${bytes(file.bytes)}${file.complete ? "" : ` of ${bytes(file.size)}`}`);
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Delete";
    button.setAttribute("aria-label", `Delete ${file.name}`);
    button.onclick = () => cache.remove(file.url).then(listKept, fail);
    item.append(button);
    return item;
  });
  if (!items.length) items.push(Object.assign(document.createElement("li"), { textContent: "none" }));
  $("kept").replaceChildren(...items);
}

/** One file, or the parts of a split model in order. */
function openFiles(files) {
  const parts = [...files].sort((a, b) => a.name.localeCompare(b.name));
  if (parts.length) open(parts);
}

$("default").onclick = () => open(AUSTEN);
$("file").onchange = ({ target }) => {
  openFiles(target.files);
  target.value = "";
};
$("address").onsubmit = (event) => {
  event.preventDefault();
  open($("url").value.trim());
};
$("cancel").onclick = () => opening?.abort();
$("stop").onclick = () => answer?.stop();
$("close").onclick = () => close().then(() => $("default").focus());
$("again").onclick = () => {
  answer?.stop();
  chat = engine.chat();
  $("talk").replaceChildren();
  $("speed").textContent = "";
  $("prompt").focus();
};
$("say").onsubmit = (event) => {
  event.preventDefault();
  const text = $("prompt").value;
  if (!text.trim() || answer) return;
  $("prompt").value = "";
  send(text);
};
$("prompt").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("say").requestSubmit();
};
$("show-settings").onclick = ({ target }) => {
  const opened = target.getAttribute("aria-expanded") !== "true";
  target.setAttribute("aria-expanded", String(opened));
  show("settings", opened);
  if (opened) listKept();
};
addEventListener("keydown", (event) => {
  if (event.key === "Escape") (answer ?? { stop: () => opening?.abort() }).stop();
});
addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("drop");
});
addEventListener("dragleave", () => document.body.classList.remove("drop"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("drop");
  openFiles(event.dataTransfer.files);
});
if (!globalThis.crossOriginIsolated) {
  say("notice", "This page is not isolated from other origins (no COOP and COEP headers): on the CPU, models have one thread.");
}
