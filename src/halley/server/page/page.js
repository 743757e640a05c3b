// The chat and the server's state. Text of models and servers is set as text, never as HTML.

import { readEvents } from "/sse.js";

const POLL_MS = 2000;
const byId = (id) => document.getElementById(id);
// The inputs of the sampling form; the id of each is the name of a request's field.
const NUMBERS = [...document.querySelectorAll("#sampling input[type=number]")];

let model = null;       // its name, from /v1/models
let messages = [];      // the conversation, without the system message
let running = null;     // the AbortController of the answer in progress
let lastTokens = null;  // {count, time} of the server's last state

function headers() {
  const key = byId("key").value;
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

function element(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function notice(text) {
  byId("notice").textContent = text;
}

// The error message of an answer without success.
async function errorOf(response) {
  const text = await response.text();
  try {
    const body = JSON.parse(text);
    return `${response.status}: ${body.error?.message ?? body.message ?? text.slice(0, 200)}`;
  } catch {
    return `${response.status}: ${text.slice(0, 200) || response.statusText}`;
  }
}

// The conversation ---------------------------------------------------------------------------

// Applies `change` to the conversation, and keeps its end visible if it was visible.
function followEnd(change) {
  const log = byId("log");
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  change();
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}

function addMessage(role, text) {
  byId("hint")?.remove();
  const article = element("article", role);
  article.append(element("h2", "", role === "user" ? "You" : "Model"));
  const paragraph = element("p", "text", text);
  article.append(paragraph);
  const log = byId("log");
  log.append(article);
  log.scrollTop = log.scrollHeight;
  return { article, paragraph };
}

function requestBody() {
  const system = byId("system").value;
  const body = {
    model,
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
    stream: true,
    stream_options: { include_usage: true },
  };
  for (const input of NUMBERS) {
    if (input.value !== "") body[input.id] = Number(input.value);
  }
  return body;
}

function showSpeed(times, numTokens) {
  if (times.length === 0) return;
  const first = ((times[0] - times.start) / 1000).toFixed(2);
  const seconds = (times.at(-1) - times[0]) / 1000;
  const rate = seconds > 0 ? `, ${((numTokens - 1) / seconds).toFixed(1)} tokens/s` : "";
  byId("speed").textContent = `First token after ${first} s${rate}, ${numTokens} tokens`;
}

// A folded part above the answer's text, for the model's reasoning.
function addThoughts(paragraph) {
  const thoughts = element("p", "");
  const details = element("details", "");
  details.append(element("summary", "", "Thoughts"), thoughts);
  paragraph.before(details);
  return thoughts;
}

// Reads the stream into `paragraph`. Returns why it ended.
async function readAnswer(response, paragraph, times) {
  let reason = null;
  let numTokens = null;
  let thoughts = null;
  for await (const data of readEvents(response.body)) {
    if (data === "[DONE]") return { reason, isDone: true };
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message ?? "the server failed");
    if (chunk.usage) numTokens = chunk.usage.completion_tokens;
    const choice = chunk.choices?.[0];
    if (choice?.delta?.reasoning_content) {
      times.push(performance.now());
      thoughts ??= addThoughts(paragraph);
      followEnd(() => thoughts.append(choice.delta.reasoning_content));
    }
    if (choice?.delta?.content) {
      times.push(performance.now());
      followEnd(() => paragraph.append(choice.delta.content));
    }
    reason = choice?.finish_reason ?? reason;
    showSpeed(times, numTokens ?? times.length);
  }
  return { reason, isDone: false };
}

function setRunning(controller) {
  running = controller;
  byId("send").disabled = controller !== null;
  byId("stop").disabled = controller === null;
  byId("log").setAttribute("aria-busy", String(controller !== null));
}

async function ask() {
  const conversation = messages;  // a new one may begin meanwhile
  const { article, paragraph } = addMessage("assistant", "");
  article.classList.add("running");
  const controller = new AbortController();
  setRunning(controller);
  const times = [];
  times.start = performance.now();
  let note = "";
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST", headers: headers(), body: JSON.stringify(requestBody()),
      signal: controller.signal,
    });
    if (!response.ok) throw new Error(await errorOf(response));
    const { reason, isDone } = await readAnswer(response, paragraph, times);
    if (!isDone) throw new Error("the answer broke off");
    if (reason === "length") note = "Stopped at the most tokens that were asked for.";
  } catch (error) {
    if (controller.signal.aborted) {
      note = "Stopped.";
    } else {
      notice(`No complete answer: ${error.message}`);
      note = "Incomplete.";
    }
  }
  article.classList.remove("running");
  const answer = paragraph.textContent;
  if (answer) {
    conversation.push({ role: "assistant", content: answer });
  } else {
    const question = conversation.pop().content;  // without an answer: it can be sent again
    if (conversation === messages) byId("message").value ||= question;
  }
  if (note) followEnd(() => article.append(element("p", "note", note)));
  setRunning(null);
  byId("message").focus();
}

function send() {
  const field = byId("message");
  if (running || field.value.trim() === "") return;
  const invalid = NUMBERS.find((input) => !input.checkValidity());
  if (invalid) {
    invalid.closest("details").open = true;
    invalid.reportValidity();
    return;
  }
  if (model === null) {
    notice("The server has not said yet which model it has. Try again in a moment.");
    return;
  }
  notice("");
  messages.push({ role: "user", content: field.value });
  addMessage("user", field.value);
  field.value = "";
  ask();
}

function restart() {
  running?.abort();
  messages = [];
  byId("log").replaceChildren();
  byId("speed").textContent = "";
  notice("");
  byId("message").focus();
}

// The server's state ---------------------------------------------------------------------------

// Samples of Prometheus' text format: {name: [{labels, value}]}.
function parseMetrics(text) {
  const samples = {};
  for (const line of text.split("\n")) {
    const match = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    }
    (samples[match[1]] ??= []).push({ labels, value: Number(match[3]) });
  }
  return samples;
}

function showRows(id, rows) {
  byId(id).replaceChildren(...rows.flatMap(([name, value]) => [
    element("dt", "", name.replaceAll("_", " ")), element("dd", "", value)]));
}

function showPlan(info, numPositions) {
  const rows = Object.entries(info);
  if (numPositions) rows.push(["max_model_len", String(numPositions)]);
  showRows("plan", rows);
}

// Why a step has its precision.
const REASONS = {
  fixed: "the mode demands it",
  unknown: "nothing was measured yet",
  holds: "holds all SLOs",
  token: "a better one would be late for a next token",
  first_token: "a better one would be late for a first token",
  overload: "none holds all SLOs",
  pinned: "a step of requests that demand full precision",
  dwell: "a better one would hold too briefly or too narrowly",
};

function age(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}

// `state`: the answer of /precision.
function showPrecision(state) {
  const reason = (name) => REASONS[name] ?? name;
  byId("precision").textContent = state.precision;
  const limits = Object.entries(state.slo).filter(([, limit]) => limit !== null)
    .map(([name, limit]) => `${name.replace("_ms", "").toUpperCase()} ${+limit.toFixed(3)} ms`);
  showRows("precision-plan", [
    ["mode", state.mode], ["SLO", limits.join(", ") || "none"], ["now", state.precision],
    ["reason", reason(state.reason)], ["switches", String(state.num_switches)]]);
  byId("switches").replaceChildren(...state.last_switches.map((event) => element(
    "li", "", `${age(event.seconds_ago)} ago: ${event.precision}, ${reason(event.reason)}`))
    .reverse());
}

async function pollPrecision() {
  const response = await fetch("/precision", { headers: headers() });
  if (response.ok) showPrecision(await response.json());
}

let numPositions = null;

function showMetrics(samples) {
  const value = (name) => samples[`halley:${name}`]?.[0]?.value;
  byId("running").textContent = value("num_requests_running") ?? "–";
  byId("waiting").textContent = value("num_requests_waiting") ?? "–";
  const usage = value("kv_cache_usage_perc");
  byId("kv-meter").value = usage ?? 0;
  byId("kv").textContent = usage === undefined ? "–" : `${(100 * usage).toFixed(0)} %`;
  const tokens = { count: value("generation_tokens_total"), time: performance.now() };
  if (lastTokens && tokens.count !== undefined && tokens.time > lastTokens.time) {
    const rate = (1000 * (tokens.count - lastTokens.count)) / (tokens.time - lastTokens.time);
    byId("server-rate").textContent = `${Math.max(0, rate).toFixed(1)} tokens/s`;
  }
  lastTokens = tokens.count === undefined ? null : tokens;
  const info = samples["halley:model_info"]?.[0]?.labels;
  if (info) showPlan(info, numPositions);
  const hasPrecisions = "halley:precision_active" in samples;
  for (const id of ["precision-state", "precision-details"]) byId(id).hidden = !hasPrecisions;
  return hasPrecisions;
}

async function poll() {
  if (!document.hidden) {
    try {
      if (model === null) await loadModel();
      const response = await fetch("/metrics", { headers: headers() });
      const hasPrecisions = response.ok && showMetrics(parseMetrics(await response.text()));
      if (hasPrecisions) await pollPrecision();
    } catch {
      byId("server-rate").textContent = "no connection";
      lastTokens = null;
    }
  }
  setTimeout(poll, POLL_MS);
}

async function loadModel() {
  const response = await fetch("/v1/models", { headers: headers() });
  if (response.status === 401) {
    notice("This server asks for an API key: see Access.");
    byId("key").closest("details").open = true;
    return;
  }
  if (response.status === 503) notice("The server is loading its model.");
  if (!response.ok) return;
  const first = (await response.json()).data[0];
  model = first.id;
  numPositions = first.max_model_len ?? null;
  byId("model-name").textContent = model;
  document.title = `${model} – Halley`;
  notice("");
}

byId("chat").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
byId("message").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
byId("stop").addEventListener("click", () => running?.abort());
byId("new").addEventListener("click", restart);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
});
for (const id of ["sampling", "access"]) {
  byId(id).addEventListener("submit", (event) => event.preventDefault());
}
poll();
