// Texts in English and Russian. A text is a string, or for an integer n an object by Intl.PluralRules
// ({one, few, other}). {name} in it is replaced.

import { keep, readKept } from "./storage.js";

const texts = new Map();
const languages = ["en", "ru"];
const plurals = Object.fromEntries(languages.map((l) => [l, new Intl.PluralRules(l)]));

let current = pick();

function pick() {
  const chosen = readKept("localStorage", "mneme.language");
  const wanted = [chosen, ...navigator.languages].filter(Boolean).map((l) => l.slice(0, 2));
  return wanted.find((l) => languages.includes(l)) ?? "en";
}

// addTexts takes key → [English, Russian].
export function addTexts(more) {
  for (const [key, both] of Object.entries(more)) texts.set(key, both);
}

export const language = () => current;

export function setLanguage(l) {
  current = l;
  document.documentElement.lang = l;
  keep("localStorage", "mneme.language", l);
}

// t is the text of a key in the language that is set.
export function t(key, values = {}) {
  let text = texts.get(key)?.[languages.indexOf(current)];
  if (text === undefined) return key;
  if (typeof text === "object") text = text[plurals[current].select(values.n)] ?? text.other;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

// known is the text of a word under a prefix, or else the word itself: what a later service may say.
export const known = (prefix, word) => (texts.has(prefix + word) ? t(prefix + word) : word.replaceAll("_", " "));

document.documentElement.lang = current;
