// A block of code: a button that copies it, and colours where its language is known. sugar-high only takes the code
// apart, and is loaded with the first block that wants it; nodes are made here.

import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { timer } from "./budget.js";
import { addTexts, t } from "./i18n.js";
import { CopyButton } from "./parts.js";

addTexts({
  "code.copy": ["Copy this code", "Копировать этот код"],
});

// longest is how many characters are coloured; a longer block is shown as it is.
const longest = 20_000;

// names are those of the languages, by the files that know them; javascript and typescript are known here.
const names = {
  c: "c h", cpp: "cpp c++ cc cxx hpp", diff: "diff patch", dockerfile: "dockerfile docker", go: "go golang",
  java: "java", javascript: "javascript js jsx mjs node", json: "json jsonc json5 ndjson", kotlin: "kotlin kt",
  php: "php", python: "python py python3", rust: "rust rs", shell: "shell sh bash zsh console", sql: "sql",
  toml: "toml ini", typescript: "typescript ts tsx", yaml: "yaml yml",
};
const languages = new Map(Object.entries(names).flatMap(([of, all]) => all.split(" ").map((name) => [name, of])));

const words = (text) => new Set(text.split(" "));
const script = "async await break case catch class const continue debugger default delete do else export extends " +
  "false finally for from function if import in instanceof let new null of return static super switch this throw " +
  "true try typeof undefined var void while with yield";
const own = {
  javascript: { keywords: words(script), templateStrings: true },
  typescript: { keywords: words(script + " abstract as declare enum implements infer interface is keyof namespace " +
    "override private protected public readonly satisfies type"), templateStrings: true,
    typeKeywords: words("any bigint boolean never number object string symbol unknown") },
};

// Where an apostrophe in a word begins no text, as in what's.
const prose = new Set(["diff", "dockerfile", "yaml"]);
const apostrophe = (_, at, code) => (/\w/.test(code[at - 1] ?? "") ? 1 : 0);

const from = "./vendor/sugar-high/";
const lexers = new Map(); // by language, as far as they are loaded

async function load(language) {
  const file = own[language] ? "presets/clike-base" : "lang/" + language;
  const [{ parse }, rules] = await Promise.all([import(from + "core.js"), import(`${from}${file}.js`)]);
  const config = { ...rules, ...own[language], ...(prose.has(language) ? { onQuote: apostrophe } : {}) };
  lexers.set(language, (code) => {
    const tick = timer(code.length);
    const onCommentStart = (...at) => (tick(), config.onCommentStart?.(...at) ?? 0); // asked at each piece
    return parse(code, { ...config, onCommentStart }).lines;
  });
}

// Code shows a block; info is what stands behind its fence.
export function Code({ text, info = "" }) {
  const [name] = info.trim().toLowerCase().split(/[\s{,:]/, 1);
  const language = text.length <= longest ? languages.get(name) : undefined;
  const [, draw] = useState(0);
  const slow = useRef(); // the beginning of the text that took too long
  const lexer = lexers.get(language);
  useEffect(() => {
    if (language && !lexer) load(language).then(() => draw((n) => n + 1), console.error);
  }, [language]);
  const nodes = useMemo(() => {
    if (!lexer || (slow.current && text.startsWith(slow.current))) return text;
    try {
      return lexer(text).map(line);
    } catch { // it takes too long
      slow.current = text;
      return text;
    }
  }, [text, lexer]);
  return html`<div class="code-block">
    <div class="code-top"><span class="cut">${name}</span><${CopyButton} text=${text} label=${t("code.copy")} /></div>
    <pre class="code" tabindex="0"><code>${nodes}</code></pre></div>`;
}

const coloured = new Set(["keyword", "string", "class", "property", "comment"]);

function line({ tokens, annotations }, at) {
  const pieces = tokens.map(({ type, value }) =>
    (coloured.has(type) ? html`<span class=${"code-" + type}>${value}</span>` : value));
  const inside = annotations.length ? html`<span class=${"code-" + annotations[0]}>${pieces}</span>` : pieces;
  return at ? ["\n", inside] : inside;
}
