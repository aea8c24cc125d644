// Images that go with a message: those that wait beside the field, and those that this tab has sent. The service keeps
// none of them, only that they were there.

import { html, useRef, useState } from "./html.js";
import { addTexts, t } from "./i18n.js";
import { link } from "./markdown.js";
import { Icon, IconButton } from "./parts.js";

addTexts({
  "image.list": ["Images that go with the message", "Изображения к сообщению"],
  "image.remove": ["Remove {name}", "Убрать {name}"],
  "image.alt": ["Image {n}", "Изображение {n}"],
  "image.kept": [{ one: "{n} image", other: "{n} images" },
    { one: "{n} изображение", few: "{n} изображения", other: "{n} изображений" }],
  "image.type": ["{name} is not sent: models are shown PNG, JPEG, GIF and WebP alone.",
    "{name} не отправить: модели видят только PNG, JPEG, GIF и WebP."],
  "image.large": ["{name} is not sent: it is larger than 5 MiB.", "{name} не отправить: файл больше 5 МиБ."],
  "image.many": ["{name} is not sent: a message takes at most 8 images.",
    "{name} не отправить: в сообщении не больше 8 изображений."],
  "image.all": ["{name} is not sent: all images of a message have at most 20 MiB.",
    "{name} не отправить: все изображения сообщения не больше 20 МиБ."],
});

// What a message may have, as the service says.
const most = 8;
const largest = 5 * 2 ** 20; // bytes
const largestAll = 20 * 2 ** 20;

// kinds are the types of images by how their bytes begin, in base64; what a file is called tells less.
const kinds = { "iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp" };

export const imageTypes = Object.values(kinds).join();
export const isImage = (file) => file.type.startsWith("image/");

// read gives an image as a data: URL; undefined for a file that is no image of these types.
async function read(file) {
  const whole = await new Promise((resolve) => {
    const reader = new FileReader();
    reader.onloadend = () => resolve(reader.result ?? "");
    reader.readAsDataURL(file);
  });
  const data = whole.slice(whole.indexOf(",") + 1);
  const begins = Object.keys(kinds).find((b) => data.startsWith(b));
  return begins && `data:${kinds[begins]};base64,${data}`;
}

const waiting = new Map(); // the images of each chat's field; they are there as long as the page is
let keys = 0;

// useImages are those that wait in a chat: {all, problems, reading, add, remove, take, restore}.
export function useImages(chat) {
  const [all, setAll] = useState(() => waiting.get(chat) ?? []);
  const [problems, setProblems] = useState([]);
  const [reading, setReading] = useState(0);
  const now = useRef(all);
  const set = (next) => {
    now.current = next;
    waiting.set(chat, next);
    setAll(next);
  };
  // wrong says why a file cannot go with those that are there; empty if it can.
  const wrong = (file, url) => {
    if (file.size > largest) return "image.large";
    if (!url) return "image.type";
    if (now.current.length >= most) return "image.many";
    return file.size + now.current.reduce((sum, i) => sum + i.bytes, 0) > largestAll ? "image.all" : "";
  };
  const add = async (files) => {
    if (!files.length) return;
    setProblems([]);
    setReading((n) => n + 1);
    for (const file of files) {
      const url = file.size <= largest ? await read(file) : undefined;
      const problem = wrong(file, url);
      const name = file.name || t("image.alt", { n: now.current.length + 1 }); // what is pasted may have none
      if (problem) setProblems((all) => [...all, { problem, name }]);
      else set([...now.current, { key: ++keys, name, bytes: file.size, url }]);
    }
    setReading((n) => n - 1);
  };
  const leave = (next) => {
    setProblems([]);
    set(next);
  };
  return { all, problems, reading: reading > 0, add,
    remove: (key) => leave(now.current.filter((i) => i.key !== key)),
    take: () => {
      const taken = now.current;
      leave([]);
      return taken;
    },
    restore: (taken) => set([...taken, ...now.current]) };
}

// Waiting shows the images beside the field, each with a button that takes it away, and what could not be taken.
export const Waiting = ({ images, onRemove }) => html`<div aria-live="polite">
  ${images.problems.length ? html`<div class="problem composer-place" role="alert"><${Icon} name="warn" />
    <div class="grow">${images.problems.map(({ problem, name }) => html`<div>${t(problem, { name })}</div>`)}</div></div>` : null}
  ${images.all.length ? html`<ul class="plain-list pictures composer-place" aria-label=${t("image.list")}>
    ${images.all.map((i) => html`<li key=${i.key}><img src=${i.url} alt=${i.name} title=${i.name} />
      <${IconButton} icon="close" label=${t("image.remove", { name: i.name })} onClick=${() => onRemove(i.key)} />
        </li>`)}</ul>` : null}</div>`;

const sent = new Map(); // data: URLs by the run that they were sent to
const mostSent = 2 ** 26; // characters of them all

// keepSent keeps what was sent to a run, to be shown, and sent again with another try.
export function keepSent(run, urls) {
  if (!run || !urls.length) return;
  sent.set(run, urls);
  const length = (of) => of.reduce((sum, url) => sum + url.length, 0);
  let all = [...sent.values()].reduce((sum, of) => sum + length(of), 0);
  for (const [id, of] of sent) {
    if (all <= mostSent || id === run) break;
    sent.delete(id);
    all -= length(of);
  }
}

export const sentTo = (run) => sent.get(run) ?? [];

// wordsOf is the text of a message without the lines behind it that say which images were there.
export function wordsOf(content, images = []) {
  const lines = content.split("\n");
  const words = lines.slice(0, lines.length - images.length);
  if (!images.length || !lines.slice(words.length).every((l) => l.startsWith("[image"))) return content;
  return words.join("\n").replace(/\n$/, "");
}

// Pictures shows the images of a message: as they are where this tab has sent them, else how many there were.
export function Pictures({ images = [], urls }) {
  if (urls.length) {
    return html`<ul class="plain-list pictures">${urls.map((url, i) => html`<li key=${i}>
      <img src=${url} alt=${t("image.alt", { n: i + 1 })} /></li>`)}</ul>`;
  }
  const kept = images.filter((i) => !i.url).length;
  return images.length ? html`<div class="soft small">
    ${kept ? html`<span class="with-icon"><${Icon} name="image" />${t("image.kept", { n: kept })}</span>` : null}
    ${images.filter((i) => i.url).map((i) => html`<div class="break">${link(i.url, i.url)}</div>`)}</div>` : null;
}
