// Texts in English and Russian. A text is a string, or for a number n an object by Intl.PluralRules
// ({one, few, many, other}); {name} in it is replaced.

const texts = new Map();
const languages = ["en", "ru"];
const plurals = Object.fromEntries(languages.map((l) => [l, new Intl.PluralRules(l)]));

let current = pick();

function pick() {
  const wanted = [stored(), ...navigator.languages].filter(Boolean).map((l) => l.slice(0, 2));
  return wanted.find((l) => languages.includes(l)) ?? "en";
}

function stored() {
  try {
    return localStorage.getItem("mneme.language");
  } catch {
    return null;
  }
}

// addTexts takes key → [English, Russian].
export function addTexts(more) {
  for (const [key, both] of Object.entries(more)) texts.set(key, both);
}

export const language = () => current;

export function setLanguage(l) {
  current = l;
  document.documentElement.lang = l;
  try {
    localStorage.setItem("mneme.language", l);
  } catch { /* the browser keeps nothing; it holds for this tab */ }
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
