// Components that several views use.

import { html, useCallback, useEffect, useListener, useRef, useState } from "./html.js";
import { addTexts, t } from "./i18n.js";
import { asking, askForKey, may, useNextKey } from "./key.js";
import { clock, fullTime, get } from "./lib.js";

addTexts({
  copy: ["Copy", "Копировать"],
  copied: ["Copied", "Скопировано"],
  cancel: ["Cancel", "Отмена"],
  close: ["Close", "Закрыть"],
  delete: ["Delete", "Удалить"],
  retry: ["Try again", "Повторить"],
  loading: ["Loading…", "Загрузка…"],
  "key.enter": ["Enter a key", "Ввести ключ"],
  "scope.missing": ["This key may not do this: it lacks the scope {scope}. Ask whoever runs the service for a key that has it.",
    "Этому ключу это не разрешено: нет права {scope}. Попросите ключ с ним у того, кто ведёт сервис."],
  "show.more": ["Show more", "Показать ещё"],
});

// The lines of the icons, in a square of 16.
const icons = {
  plus: "M8 3v10M3 8h10",
  send: "M2.5 8 13.5 3l-4 10.5-2-4.5zM7.5 9 13.5 3",
  stop: "M4.5 4.5h7v7h-7z",
  refresh: "M13 8a5 5 0 1 1-1.6-3.7M13 2.5v3h-3",
  edit: "M3 13l.7-2.9L10.5 3.3a1.3 1.3 0 0 1 2 0 1.3 1.3 0 0 1 0 2L5.8 12.3z",
  fork: "M5 5v6M5 8h3.5A2.5 2.5 0 0 0 11 5.5V5M5 5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM11 5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM5 14a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3z",
  copy: "M6 6h7v7H6zM10 6V3H3v7h3",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  clip: "M12.5 7.5 8 12a2.8 2.8 0 0 1-4-4l5-5a1.9 1.9 0 0 1 2.7 2.7L6.8 10.5a.9.9 0 0 1-1.3-1.3L9.5 5.2",
  image: "M2.5 3h11v10h-11zM2.5 11l3.5-3.5 3 3 2-2 2.5 2.5M10.5 6.2h.1",
  pin: "M5.5 2.5h5l-.7 4 2.2 2.5H4l2.2-2.5zM8 9v4.5",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.6 10.6 14 14",
  trash: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.5 9h6l.5-9",
  check: "M3 8.5 6.5 12 13 4.5",
  close: "M4 4l8 8M12 4l-8 8",
  chevron: "M6 4l4 4-4 4",
  back: "M10 3 5 8l5 5",
  down: "M8 3v10M4 9l4 4 4-4",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3.5l2 1.5",
  chat: "M2.5 3.5h11v8h-6l-3 2.5v-2.5h-2z",
  memory: "M3 4.5C3 3.1 13 3.1 13 4.5v7c0 1.4-10 1.4-10 0zM3 4.5c0 1.4 10 1.4 10 0M3 8c0 1.4 10 1.4 10 0",
  runs: "M3 4h3M3 8h6M3 12h4M9 4h4M11 8h2M9 12h4",
  warn: "M8 2.5 14.5 13.5h-13zM8 6.5v3.5M8 11.8v.2",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M12.6 3.4l-.7.7M4.1 11.9l-.7.7",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  auto: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 2v12M8 5h3.5M8 8h6M8 11h3.5",
  dots: "M3.5 8h.1M8 8h.1M12.5 8h.1",
  download: "M8 3v8M4.5 7.5 8 11l3.5-3.5M3 13h10",
  key: "M6.5 9.5a3 3 0 1 1-4.2 4.2 3 3 0 0 1 4.2-4.2zM6.5 9.5 13 3M10.5 5.5l2 2",
  upload: "M8 11V3M4.5 6.5 8 3l3.5 3.5M3 13h10",
};

export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
  <path d=${icons[name]} /></svg>`;

// IconButton is a button, or with href a link, that shows only an icon. button is a ref to it.
export const IconButton = ({ icon, label, class: kind = "", button, ...rest }) => html`
  <${rest.href ? "a" : "button"} type=${rest.href ? undefined : "button"} ref=${button} class=${"icon-button " + kind}
    aria-label=${label} title=${label} ...${rest}><${Icon} name=${icon} /><//>`;

// CopyButton copies a text, and says so.
export function CopyButton({ text, label = t("copy") }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await copyText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<span><${IconButton} icon=${done ? "check" : "copy"} label=${done ? t("copied") : label}
    onClick=${copy} />
    <span class="visually-hidden" role="status">${done ? t("copied") : ""}</span></span>`;
}

// copyText also works where the page is not of a secure origin, by a field that is selected.
async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

// Time is a time of day that says all of itself when it is pointed at; nothing for what another program has stored in
// the place of one.
export const Time = ({ at, text }) =>
  at > 0 && at < 8e12 ? html`<time datetime=${new Date(at * 1000).toISOString()} title=${fullTime(at)}>
    ${text ?? clock(at)}</time>` : null;

// ProblemNote says what went wrong where it did, and its code when it is pointed at; retry, if given, is what the
// button does.
export function ProblemNote({ problem, retry, children }) {
  if (!problem) return null;
  if (problem.scope) return html`<${NoScope} scope=${problem.scope} />`;
  const unknown = problem.status === 401;
  const enter = async () => await askForKey() && retry?.();
  return html`<div class="problem" role="alert" title=${problem.code}><${Icon} name="warn" />
    <div class="grow"><span>${problem.message}</span>${children}</div>
    ${retry || unknown ? html`<button type="button" class="button" onClick=${unknown ? enter : retry}>
      ${t(unknown ? "key.enter" : "retry")}</button>` : null}
  </div>`;
}

// NoScope says which scope the key lacks for what would stand in its place.
export const NoScope = ({ scope }) => html`<div class="hint row" role="status"><${Icon} name="key" />
  <span class="grow">${t("scope.missing", { scope })}</span></div>`;

// Empty is what is shown where there is nothing yet.
export const Empty = ({ title, children }) =>
  html`<div class="empty"><h2>${title}</h2>${children}</div>`;

export const Loading = () => html`<div class="loading" role="status">${t("loading")}</div>`;

let dialogs = 0; // so far, since one can stand before another

// Dialog stands before the page until it is closed, by its buttons or by Esc.
export function Dialog({ title, onClose, children }) {
  const ref = useRef();
  const [id] = useState(() => "dialog-title-" + ++dialogs);
  useEffect(() => {
    const before = document.activeElement;
    ref.current.showModal();
    return () => before?.isConnected && before.focus();
  }, []);
  // A browser closes a dialog without asking when Esc comes twice.
  return html`<dialog ref=${ref} aria-labelledby=${id} onCancel=${(e) => (e.preventDefault(), onClose())}
    onClose=${onClose}>
    <div class="row"><h2 id=${id} class="grow">${title}</h2>
      <${IconButton} icon="close" label=${t("close")} onClick=${onClose} /></div>
    ${children}</dialog>`;
}

// Confirm asks before act, which may fail. With done, act has succeeded and only closing remains.
export function Confirm({ title, button, act, ready = true, done = false, onClose, children }) {
  const { work, busy, problem } = useWork();
  return html`<${Dialog} title=${title} onClose=${onClose}>${children}
    <${ProblemNote} problem=${problem} />
    <div class="row">
      <button type="button" class="button end" onClick=${onClose}>${t(done ? "close" : "cancel")}</button>
      ${done ? null : html`<button type="button" class="button danger" disabled=${!ready || busy}
        onClick=${() => work(act)}>${button}</button>`}</div><//>`;
}

// LineForm edits one line of text. save stores it and reports whether it did; leave, if given, closes the form.
export function LineForm({ text = "", label, button, most, mayBeEmpty = false, save, leave, children }) {
  const [value, setValue] = useState(text);
  const field = useRef();
  useEffect(() => leave && field.current.select(), []);
  const submit = async (e) => {
    e.preventDefault();
    if (await save(value.trim())) setValue("");
  };
  const escape = (e) => leave && e.key === "Escape" && (e.stopPropagation(), leave());
  return html`<form class="row wrap grow" onSubmit=${submit}><input type="text" ref=${field} class="grow"
    maxlength=${most} value=${value} aria-label=${label} placeholder=${leave ? undefined : label}
    onInput=${(e) => setValue(e.target.value)} onKeyDown=${escape} />
    <button class="button" disabled=${!mayBeEmpty && !value.trim()}>${button}</button>${children}</form>`;
}

// Fold is what opens below its summary. What is inside is made when it is opened first.
export function Fold({ summary, open = false, class: kind = "", children }) {
  const [opened, setOpened] = useState(open);
  return html`<details class=${"fold " + kind} open=${open} onToggle=${(e) => e.currentTarget.open && setOpened(true)}>
    <summary><${Icon} name="chevron" />${summary}</summary>
    ${opened ? html`<div class="fold-body">${children}</div>` : null}
  </details>`;
}

// useLoad gives {value, problem, loading, reload} of what load fetches when the inputs change; load is given an
// AbortSignal. A value stays until the next one is there.
export function useLoad(load, inputs) {
  const [state, setState] = useState({ loading: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const leave = new AbortController();
    setState((s) => ({ ...s, loading: true }));
    load(leave.signal).then(
      (value) => leave.signal.aborted || setState({ value, loading: false }),
      (problem) => leave.signal.aborted || setState((s) => ({ ...s, problem, loading: false })),
    );
    return () => leave.abort();
  }, [...inputs, turn]);
  const reload = useCallback(() => setTurn((n) => n + 1), []);
  useNextKey(state.problem, reload);
  return { ...state, reload };
}

// useGet returns what useLoad does, for a GET.
export const useGet = (where, query = {}) =>
  useLoad((signal) => get(where, query, { signal }), [where, JSON.stringify(query)]);

// useWork returns {work, busy, problem}. work calls a function and reports whether it succeeded. Its error is the
// problem until the next call.
export function useWork() {
  const [state, setState] = useState({});
  const work = async (call) => {
    setState({ busy: true });
    try {
      await call();
      setState({});
      return true;
    } catch (problem) {
      setState({ problem });
      return false;
    }
  };
  return { ...state, work };
}

// useDrop returns {over, drop}. over reports whether files are dragged over an element, and drop has the element's event
// handlers. give receives the dropped files, without folders. over stays false unless open is true.
export function useDrop(give, open = true) {
  const [over, setOver] = useState(false);
  const onDragOver = (e) => {
    if (!e.dataTransfer.types.includes("Files")) return;
    e.preventDefault();
    setOver(open);
  };
  const onDragLeave = (e) => e.currentTarget.contains(e.relatedTarget) || setOver(false);
  const onDrop = (e) => {
    e.preventDefault();
    setOver(false);
    const folders = [...e.dataTransfer.items].map((i) => i.webkitGetAsEntry()?.isDirectory);
    give([...e.dataTransfer.files].filter((_, i) => !folders[i]));
  };
  return { over, drop: { onDragOver, onDragLeave, onDrop } };
}

// useTabTitle names the browser's tab; what is empty is left out.
export function useTabTitle(...parts) {
  useEffect(() => {
    document.title = [...parts, "mneme"].filter(Boolean).join(" · ");
  });
}

// usePoll calls a function every so many milliseconds while the page is seen, and when it is seen again; not
// without the scope to read memory, and not while a key is asked for.
export function usePoll(call, every) {
  const latest = useRef();
  latest.current = () => document.visibilityState === "visible" && !asking() && may("memory:read") && call();
  useListener("visibilitychange", latest.current);
  useEffect(() => {
    const timer = setInterval(() => latest.current(), every);
    return () => clearInterval(timer);
  }, [every]);
}
