// The page: which view is shown, by the address behind #, and the header.

import { Component, html, render, useListener, useState } from "./html.js";
import { addTexts, language, setLanguage, t } from "./i18n.js";
import { may, useKey } from "./key.js";
import { KeyButton, KeyForm } from "./keyform.js";
import { href } from "./lib.js";
import { Icon, IconButton, NoScope, ProblemNote, useTabTitle } from "./parts.js";
import { keep } from "./storage.js";
import * as chats from "./views/chats.js";
import * as documents from "./views/documents.js";
import * as memory from "./views/memory.js";
import * as runs from "./views/runs.js";

addTexts({
  "view.chats": ["Chats", "Чаты"],
  "view.memory": ["Memory", "Память"],
  "view.documents": ["Documents", "Документы"],
  "view.runs": ["Runs", "Запуски"],
  "header.views": ["Views", "Разделы"],
  "header.language": ["Русский", "English"],
  "header.skip": ["Skip to the content", "К содержимому"],
  "theme.auto": ["Theme: as the system", "Тема: как в системе"],
  "theme.light": ["Theme: light", "Тема: светлая"],
  "theme.dark": ["Theme: dark", "Тема: тёмная"],
  "app.broken": ["This view broke. Reload the page; if it breaks again, the browser's console says why.",
    "Раздел сломался. Обновите страницу; если не поможет, причина в консоли браузера."],
});

const views = { chats, memory, documents, runs };
const scopes = { memory: "memory:read", documents: "documents", runs: "memory:read" }; // that views take
const viewIcons = { chats: "chat", memory: "memory", documents: "file", runs: "runs" };

// route is the address behind #: the view and what it shows.
function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  const decoded = parts.map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const [view, ...path] = decoded;
  return views[view] ? { view, path } : { view: "chats", path: [] };
}

function App() {
  const [at, setAt] = useState(route);
  const [, setShown] = useState(language());
  useListener("hashchange", () => setAt(route()));
  useListener("keydown", focusSearch);
  useKey(); // which says what may be shown
  const { View } = views[at.view];
  const scope = scopes[at.view];
  const switchLanguage = () => {
    setLanguage(language() === "en" ? "ru" : "en");
    setShown(language());
  };
  return html`
    <a class="skip" href="#main" onClick=${skip}>${t("header.skip")}</a>
    <header class="top">
      <a class="brand" href=${href("chats")} aria-label="mneme">
        <img class="mark" src="ui/icon.svg" alt="" /><span>mneme</span></a>
      <nav class="views" aria-label=${t("header.views")}>
        ${Object.keys(views).map((v) => html`<a key=${v} href=${href(v)}
          aria-current=${v === at.view ? "page" : undefined}>
          <${Icon} name=${viewIcons[v]} /><span>${t("view." + v)}</span></a>`)}
      </nav>
      <div class="grow"></div>
      <${KeyButton} />
      <button type="button" class="quiet" lang=${language() === "en" ? "ru" : "en"} onClick=${switchLanguage}>
        ${t("header.language")}</button>
      <${ThemeButton} />
    </header>
    <main id="main" tabindex="-1">${may(scope) ? html`<${Guard} key=${at.view}><${View} path=${at.path} /><//>` :
      html`<${NotFor} view=${at.view} scope=${scope} />`}</main>
    <${KeyForm} />`;
}

// NotFor stands in the place of a view that the key is not for.
function NotFor({ view, scope }) {
  useTabTitle(t("view." + view));
  return html`<div class="pad stack"><h1>${t("view." + view)}</h1><${NoScope} scope=${scope} /></div>`;
}

// Guard shows a view, or that it broke.
class Guard extends Component {
  static getDerivedStateFromError = (problem) => ({ problem });
  componentDidCatch = (problem) => console.error(problem);
  render({ children }, { problem }) {
    return problem ? html`<div class="pad">
      <${ProblemNote} problem=${{ message: t("app.broken"), code: problem.message }} /></div>` : children;
  }
}

function skip(e) {
  e.preventDefault(); // what stands behind # is the view
  document.getElementById("main").focus();
}

// The key / goes to the search field of the view, as long as nobody is writing.
function focusSearch(e) {
  if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.target.closest("input, textarea, select, dialog")) return;
  const field = document.querySelector("main input[type=search]");
  if (!field) return;
  e.preventDefault();
  field.focus();
}

const themes = { auto: "auto", light: "sun", dark: "moon" }; // and their icons

function ThemeButton() {
  const [theme, set] = useState(document.documentElement.dataset.theme ?? "auto");
  const next = () => {
    const names = Object.keys(themes);
    const to = names[(names.indexOf(theme) + 1) % names.length];
    setTheme(to); // of theme.js
    keep("localStorage", "mneme.theme", to);
    set(to);
  };
  return html`<${IconButton} icon=${themes[theme]} label=${t("theme." + theme)} onClick=${next} />`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
