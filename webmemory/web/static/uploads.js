// Files on their way into collections. They go on while another view is shown.

import { addTexts, t } from "./i18n.js";
import { refusal, withKey } from "./key.js";
import { path, Problem } from "./lib.js";
import { useListener, useState } from "./html.js";

addTexts({
  "uploads.broken": ["The service did not say what became of it. Add the file again.",
    "Сервис не сообщил, чем кончилась загрузка. Добавьте файл ещё раз."],
  "uploads.key": ["No key was given. Add the file again.", "Ключ не введён. Добавьте файл ещё раз."],
  "uploads.unreadable": ["The file could not be read or the service not be reached. Add it again.",
    "Файл не прочитан, или сервис недоступен. Добавьте его ещё раз."],
});

// atOnce is how many files are sent at one time.
const atOnce = 2;

let uploads = [];
let keys = 0;

// set replaces the uploads and tells the page.
function set(all) {
  uploads = all;
  dispatchEvent(new Event("mneme-uploads"));
}

const change = (upload, to) => set(uploads.map((u) => (u.key === upload.key ? { ...u, ...to } : u)));

const current = (upload) => uploads.find((u) => u.key === upload.key);

// useUploads are those of a collection, the latest last.
export function useUploads(collection) {
  const [, draw] = useState();
  useListener("mneme-uploads", () => draw(uploads));
  return uploads.filter((u) => u.collection === collection);
}

// clearUploads forgets those that have ended.
export const clearUploads = (collection) => set(uploads.filter((u) => u.collection !== collection || !u.ended));

// uploadFiles sends files; done is called behind each of them.
export function uploadFiles(collection, files, done) {
  const added = files.map((file) => ({
    key: ++keys, collection, file, id: file.webkitRelativePath || file.name, size: file.size, sent: 0, counts: {}, refused: [],
    pages: [], skipped: [], stop: () => {}, done,
  }));
  for (const upload of added) upload.stop = () => change(upload, { ended: true, stopped: true });
  set([...uploads, ...added]);
  sendNext();
}

function sendNext() {
  const waiting = uploads.filter((u) => !u.began && !u.ended);
  const busy = uploads.filter((u) => u.began && !u.ended).length;
  waiting.slice(0, Math.max(0, atOnce - busy)).forEach(send);
}

// send puts a file's bytes, once more if the service asked for another key meanwhile.
async function send(upload) {
  const leave = new AbortController();
  const stopped = new Promise((_, reject) => {
    leave.signal.addEventListener("abort", () => reject({ stopped: true }));
  });
  change(upload, { began: true, stop: () => leave.abort() });
  let end = {};
  try {
    const x = await Promise.race([stopped, withKey((key) => transfer(upload, key, leave.signal))]);
    if (!x.whole && !current(upload).problem) end = { problem: refused(x) };
  } catch (why) {
    end = why;
  }
  change(upload, { ended: true, file: undefined, ...end });
  upload.done();
  sendNext();
}

// transfer sends the file by XMLHttpRequest, which says how far its bytes are, as fetch does not. What became of each
// document comes as a line as soon as it is known, and a last line says that these were all: whole. It comes to the
// answer; what it fails with is how the upload ends.
function transfer(upload, key, signal) {
  const x = new XMLHttpRequest();
  let read = 0; // of the answer, in characters
  const lines = () => {
    if (x.status >= 300 || !x.getResponseHeader("Content-Type")?.includes("ndjson")) return;
    for (let end; (end = x.responseText.indexOf("\n", read)) >= 0; read = end + 1) {
      const line = x.responseText.slice(read, end);
      if (line.trim()) x.whole = note(upload, JSON.parse(line)) || x.whole;
    }
  };
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject({ stopped: true });
    x.open("PUT", path("collections", upload.collection, "documents", upload.id) + "?stream=true");
    x.setRequestHeader("Content-Type", "application/octet-stream");
    for (const [name, value] of Object.entries(key)) x.setRequestHeader(name, value);
    x.upload.onprogress = (e) => change(upload, { sent: Math.min(e.loaded, upload.size) });
    x.upload.onload = () => change(upload, { sent: upload.size });
    x.onprogress = lines;
    x.onload = () => {
      lines();
      resolve(x);
    };
    x.onerror = async () => {
      const no = await refusal(key);
      if (no) resolve(no);
      else reject({ problem: new Problem(0, { code: "unreachable", message: t("uploads.unreadable") }) });
    };
    signal.addEventListener("abort", () => x.abort());
    x.send(upload.file);
  });
}

// note takes a line of the answer and says whether it was the last.
function note(upload, line) {
  const { counts, refused, pages, skipped } = current(upload);
  if (line.error) change(upload, { problem: new Problem(0, line.error) });
  if (!line.status) return line.done || Boolean(line.error);
  change(upload, {
    counts: { ...counts, [line.status]: (counts[line.status] ?? 0) + 1 },
    refused: line.reason ? [...refused, line] : refused,
    pages: [...pages, ...(line.unread_pages ?? [])],
    skipped: [...skipped, ...Object.entries(line.skipped ?? {})],
  });
  return false;
}

function refused(x) {
  if (x.status === 401) return new Problem(401, { code: "unauthorized", message: t("uploads.key") });
  try {
    const { error } = JSON.parse(x.responseText);
    return new Problem(x.status, error);
  } catch {
    return new Problem(x.status, { code: "status_" + x.status, message: t("uploads.broken") });
  }
}
