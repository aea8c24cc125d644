// The client of the API, streams of events, and how times and sizes are written.

import { addTexts, language, t } from "./i18n.js";
import { refusal, withKey } from "./key.js";

addTexts({
  "time.now": ["just now", "только что"],
  "problem.answer": ["The answer cannot be read (status {status}).", "Ответ не читается (статус {status})."],
});

// Problem is an error of the API, or of the way to it: code "unreachable". scope is the one that the key lacks.
export class Problem extends Error {
  constructor(status, { code, message } = {}) {
    super(message);
    const scope = status === 403 && code === "forbidden" ? /needs the scope ([a-z:]+)/.exec(message)?.[1] : undefined;
    Object.assign(this, { status, code, scope });
  }
}

// path joins parts below the API's root, each escaped: path("chats", id, "history").
export const path = (...parts) => "v1/" + parts.map(encodeURIComponent).join("/");

// chatPath is where a chat's memory is, or that of a subagent in it.
export const chatPath = (chat, subagent, ...parts) =>
  subagent ? path("chats", chat, "subagents", subagent, ...parts) : path("chats", chat, ...parts);

// href is the address of a view: href("chats", id).
export const href = (...parts) => "#/" + parts.map(encodeURIComponent).join("/");

// transfer sends a request with the headers of a key.
async function transfer(url, init, key) {
  const headers = { ...init.headers, ...key };
  try {
    return await fetch(url, { ...init, headers, referrerPolicy: "no-referrer", redirect: "error" });
  } catch (err) {
    const no = err.name !== "AbortError" && init.body instanceof Blob && await refusal(key);
    if (!no) throw err;
    return no;
  }
}

// request sends one request. body is sent as JSON unless it is a Blob; query leaves out what is undefined.
// A status that is no success is a Problem.
export async function request(method, where, { query = {}, body, headers = {}, signal } = {}) {
  const given = Object.entries(query).filter(([, v]) => v !== undefined && v !== null && v !== "");
  const url = where + (given.length ? "?" + new URLSearchParams(given) : "");
  const init = { method, signal, headers: { ...headers } };
  if (body instanceof Blob) init.body = body;
  else if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await withKey((key) => transfer(url, init, key), method === "GET");
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Problem(0, { code: "unreachable", message: t("key.network") });
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  const message = t("problem.answer", { status: answer.status });
  throw new Problem(answer.status, { code: "status_" + answer.status, message, ...said.error });
}

async function json(answer) {
  return answer.status === 204 ? null : answer.json();
}

// get, post and the others give the JSON of the answer, null for none; options are those of request.
export const get = async (where, query, options) => json(await request("GET", where, { ...options, query }));
export const post = async (where, body, options) => json(await request("POST", where, { ...options, body }));
export const put = async (where, body, options) => json(await request("PUT", where, { ...options, body }));
export const patch = async (where, body, options) => json(await request("PATCH", where, { ...options, body }));
export const del = async (where, query, options) => json(await request("DELETE", where, { ...options, query }));

// randomID is an id that nobody else has, of 32 hex digits.
export const randomID = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");

// silence is how long a stream may say nothing, in milliseconds; the service sends a comment each 15 s.
const silence = 45_000;

// frames are the data of a stream's frames, as text. It ends when the stream does, however that ends.
export async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const timer = setTimeout(() => reader.cancel().catch(() => {}), silence);
      const { done, value } = await reader.read().finally(() => clearTimeout(timer));
      if (done) return; // a frame that did not come whole is none
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
        if (line !== "" || !data.length) continue;
        yield data.join("\n");
        data = [];
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const pause = (ms, signal) =>
  new Promise((resolve, reject) => {
    setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
  });

// longestPause bounds the time between two tries to reach the service, in milliseconds.
const longestPause = 5000;

// follow gives a run's events to onEvent, those behind the number after, until the run is over or waits for
// somebody. A stream that breaks off is resumed for as long as the service cannot be reached; what the service
// refuses is a Problem. first is the answer that began the stream, if one did.
export async function follow(chat, run, { after = 0, signal, onEvent, first } = {}) {
  let answer = first;
  for (let failures = 0; ; ) {
    let rests = false; // the last event was a wait, behind which the stream may end
    try {
      if (!answer) {
        const headers = { Accept: "text/event-stream", ...(after ? { "Last-Event-ID": String(after) } : {}) };
        answer = await request("GET", path("chats", chat, "runs", run, "events"), { headers, signal });
      }
      if (answer.status === 204) return; // nothing more to come
      for await (const data of frames(answer.body)) {
        const event = JSON.parse(data);
        if (event.seq === undefined) throw new Problem(502, event); // an error by which the stream ends
        if (event.seq <= after) continue;
        failures = 0;
        after = event.seq;
        rests = event.role === "run_waiting";
        onEvent(event);
        if (event.role === "run_finished") return;
      }
      if (rests) return;
    } catch (err) {
      if (err.name === "AbortError") throw err;
      if (err instanceof Problem && err.code !== "unreachable" && err.status !== 503) throw err;
    }
    answer = undefined;
    await pause(Math.min(longestPause, 250 * 2 ** failures++), signal);
  }
}

// send posts what begins a run, or what one waits for, and follows it to its end; onRun is told the run's id as
// soon as it is known, and after is the number of its last event that is known. A post of which nothing is known
// is repeated with the same key.
export async function send(chat, where, body, { key = randomID(), after, signal, onRun, onEvent } = {}) {
  const headers = { Accept: "text/event-stream", "Idempotency-Key": key };
  for (let failures = 0; ; ) {
    try {
      const first = await request("POST", where, { body, headers, signal });
      const run = first.headers.get("Mneme-Run-Id");
      onRun?.(run);
      return await follow(chat, run, { after, signal, onEvent, first });
    } catch (err) {
      if (err.status === 400 && body.time_zone) { // the service may not know this zone
        delete body.time_zone;
        continue;
      }
      if (err.code !== "unreachable" || failures >= 5) throw err;
    }
    await pause(Math.min(longestPause, 250 * 2 ** failures++), signal);
  }
}

// timeZone is the browser's IANA time zone, undefined if it names none.
export const timeZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || undefined;

// clock is a time of day, with the date where it is not today's. seconds are Unix seconds.
export function clock(seconds) {
  const at = new Date(seconds * 1000);
  const today = at.toDateString() === new Date().toDateString();
  const year = at.getFullYear() === new Date().getFullYear() ? undefined : "numeric";
  const day = today ? {} : { day: "numeric", month: "short", year };
  return at.toLocaleString(language(), { ...day, hour: "2-digit", minute: "2-digit" });
}

// fullTime is a time to the second, with its zone.
export const fullTime = (seconds) =>
  new Date(seconds * 1000).toLocaleString(language(), { dateStyle: "full", timeStyle: "long" });

// ago is how long ago a time is, in the largest unit.
export function ago(seconds) {
  const units = [["year", 31557600], ["month", 2629800], ["day", 86400], ["hour", 3600], ["minute", 60]];
  const past = Date.now() / 1000 - seconds;
  const unit = units.find(([, long]) => past >= long);
  if (!unit) return t("time.now");
  const write = new Intl.RelativeTimeFormat(language(), { numeric: "auto", style: "short" });
  return write.format(-Math.floor(past / unit[1]), unit[0]);
}

export const number = (n) => new Intl.NumberFormat(language()).format(n);

// duration is a span of seconds, as 40 ms, 4.2 s or 2:05.
export function duration(seconds) {
  if (!(seconds >= 0)) return "";
  if (seconds < 60) {
    const [n, unit] = seconds < 1 ? [seconds * 1000, "millisecond"] : [seconds, "second"];
    return new Intl.NumberFormat(language(), { style: "unit", unit, unitDisplay: "narrow",
      maximumFractionDigits: n < 10 && unit === "second" ? 1 : 0 }).format(n);
  }
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

// size is a number of bytes, as 1.5 MB.
export function size(bytes) {
  const units = ["byte", "kilobyte", "megabyte", "gigabyte"];
  let at = 0;
  while (bytes >= 1000 && at < units.length - 1) [bytes, at] = [bytes / 1000, at + 1];
  return new Intl.NumberFormat(language(), { style: "unit", unit: units[at], unitDisplay: "narrow",
    maximumFractionDigits: bytes < 10 && at ? 1 : 0 }).format(bytes);
}

// oneLine returns the beginning of a text as one line.
export function oneLine(text, most = 120) {
  const line = String(text ?? "").replace(/\s+/g, " ").trim();
  return line.length > most ? line.slice(0, most - 1) + "…" : line;
}

// plainLine returns oneLine of a model's Markdown without its marks. Marks inside words stay, and so do underscores. Titles
// and the user's messages are plain text, so they do not go through it.
export function plainLine(text, most) {
  return oneLine(oneLine(text, 2000)
    .replace(/!?\[([^[\]]*)\]\([^()\s]*\)/g, "$1") // links and images
    .replace(/^(#{1,6}|>|[-*+]|```\w*) /, "") // what begins a block
    .replace(/(^|[\s(])(\*\*?|~~|``?`?)(?=\S)([^*~`]+)\2(?=[\s).,:;!?]|$)/g, "$1$3"), most);
}

// pretty is JSON to be read: text that is JSON, or a value.
export function pretty(value) {
  try {
    return JSON.stringify(typeof value === "string" ? JSON.parse(value) : value, null, 2);
  } catch {
    return String(value);
  }
}
