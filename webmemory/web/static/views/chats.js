// The view Chats: the list of chats, and beside it the one that is chosen.

import { html, useCallback, useEffect, useMemo, useRef, useState } from "../html.js";
import { addTexts, t } from "../i18n.js";
import { Chat } from "../chat.js";
import { ago, get, href, oneLine, patch, path, randomID } from "../lib.js";
import { Icon, IconButton, ProblemNote, Time, usePoll } from "../parts.js";

addTexts({
  "chats.new": ["New chat", "Новый чат"],
  "chats.search": ["Search chats", "Поиск чатов"],
  "chats.list": ["Chats", "Чаты"],
  "chats.none": ["No chat yet.", "Чатов пока нет."],
  "chats.notfound": ["No chat is called so.", "Таких чатов нет."],
  "chats.back": ["To the list", "К списку"],
  "chats.rename": ["Rename", "Переименовать"],
  "chats.title": ["Title", "Название"],
  "chats.memory": ["What is remembered", "Что запомнено"],
  "chats.busy": ["at work", "работает"],
  "chats.waiting": ["waits", "ждёт"],
  "chats.messages": [{ one: "{n} message", other: "{n} messages" },
    { one: "{n} сообщение", few: "{n} сообщения", many: "{n} сообщений", other: "{n} сообщения" }],
});

const pageSize = 50;
const pollEvery = 5000; // milliseconds

// useChats is the list, the chats used last first: {chats, more, problem, reload}.
export function useChats(query) {
  const [state, setState] = useState({ chats: null, cursor: "" });
  const shown = useRef(pageSize);
  const turn = useRef(0);
  const reading = useRef(false);
  const read = useCallback(async () => {
    const mine = ++turn.current;
    reading.current = true;
    try {
      const list = await get(path("chats"), { order: "used", q: query, limit: shown.current });
      if (mine === turn.current) setState({ chats: list.chats, cursor: list.next_cursor });
    } catch (problem) {
      if (mine === turn.current) setState((s) => ({ ...s, problem }));
    }
    if (mine === turn.current) reading.current = false;
  }, [query]);
  useEffect(() => {
    const timer = setTimeout(read, query ? 150 : 0);
    return () => clearTimeout(timer);
  }, [read]);
  usePoll(() => reading.current || read(), pollEvery);
  const more = state.cursor && shown.current < 1000 ? () => {
    shown.current = Math.min(1000, shown.current + 2 * pageSize);
    read();
  } : null;
  return { ...state, more, reload: read };
}

export function View({ path: [chosen] }) {
  const [query, setQuery] = useState("");
  const list = useChats(query);
  const { chats, reload } = list;
  const [fresh, setFresh] = useState(() => randomID().slice(0, 12));
  const chat = chosen ?? fresh;
  const known = useRef(new Map()); // those listed so far, also by another search
  for (const c of chats ?? []) known.current.set(c.chat_id, c);
  const entry = known.current.get(chat);
  const begin = () => {
    const id = randomID().slice(0, 12);
    setFresh(id);
    location.hash = href("chats", id);
  };
  const changed = useCallback(() => {
    reload();
    // A chat gets its address with its first run. Who has gone elsewhere meanwhile stays there.
    if (/^(#\/?(chats\/?)?)?$/.test(location.hash)) location.replace(href("chats", chat));
  }, [chat, reload]);
  const single = chosen || (chats && !chats.length && !query);
  return html`<div class=${"split" + (single ? " chosen" : "")}>
    <${Side} list=${list} query=${query} onQuery=${setQuery} view="chats" chosen=${chosen}>
      <${IconButton} icon="plus" class="primary" label=${t("chats.new")} onClick=${begin} /><//>
    <div class="page">
      <div class="page-top"><a class="icon-button back" href=${href("chats")} aria-label=${t("chats.back")}>
        <${Icon} name="back" /></a>
        <${Title} key=${chat} chat=${chat} entry=${entry} fresh=${chat === fresh && !entry} reload=${reload} /></div>
      <${Chat} key=${chat} chat=${chat} changed=${changed} />
    </div>
  </div>`;
}

// Side is the list of chats, as useChats gives it, beside a view, which each of them leads to. children stand behind
// the search.
export function Side({ list: { chats, more, problem, reload }, query, onQuery, view, chosen, children }) {
  return html`<aside class="side" aria-label=${t("chats.list")}>
    ${chosen ? null : html`<h1 class="visually-hidden">${t("chats.list")}</h1>`}
    <div class="side-top"><${SearchField} value=${query} onChange=${onQuery} label=${t("chats.search")} />${children}</div>
    <nav class="side-list" aria-label=${t("chats.list")}>
      <${ProblemNote} problem=${problem} retry=${reload} />
      ${chats?.map((c) => html`<${Entry} key=${c.chat_id} chat=${c} current=${c.chat_id === chosen} view=${view} />`)}
      ${chats && !chats.length ? html`<p class="soft pad">${t(query ? "chats.notfound" : "chats.none")}</p>` : null}
      ${more ? html`<button type="button" class="quiet" onClick=${more}>${t("show.more")}</button>` : null}
    </nav>
  </aside>`;
}

// SearchField is where a search is typed; Esc empties it, then leaves it.
export function SearchField({ value, onChange, label, ...rest }) {
  const escape = (e) => {
    if (e.key !== "Escape") return;
    e.preventDefault();
    if (value) onChange("");
    else e.target.blur();
  };
  return html`<input type="search" class="grow" value=${value} placeholder=${label} aria-label=${label}
    aria-keyshortcuts="/"
    onInput=${(e) => onChange(e.target.value)} onKeyDown=${escape} ...${rest} />`;
}

// Entry is a chat in a list; view is where it leads.
function Entry({ chat: c, current, view }) {
  return html`<a class="entry" href=${href(view, c.chat_id)} aria-current=${current ? "page" : undefined}>
    <div class="cut">${oneLine(c.title) || c.chat_id}</div>
    <div class="row small soft">${c.used ? html`<${Time} at=${c.used} text=${ago(c.used)} />` : null}
      ${c.messages ? html`<span class="cut">${t("chats.messages", { n: c.messages })}</span>` : null}
      ${c.state ? html`<span class=${"badge end " + (c.state === "waiting" ? "warn" : "accent")}>
        ${t("chats." + c.state)}</span>` : null}</div>
  </a>`;
}

function Title({ chat, entry, fresh, reload }) {
  const [editing, setEditing] = useState(null);
  const [problem, setProblem] = useState(null);
  const field = useRef();
  useEffect(() => editing !== null && field.current?.select(), [editing !== null]);
  const save = async (e) => {
    e.preventDefault();
    try {
      await patch(path("chats", chat), { title: editing.trim() });
      setEditing(null);
      reload();
    } catch (err) {
      setProblem(err);
    }
  };
  if (editing !== null) {
    return html`<form class="row wrap grow" onSubmit=${save}><input type="text" ref=${field} class="grow"
      value=${editing} maxlength="200"
        aria-label=${t("chats.title")} onInput=${(e) => setEditing(e.target.value)}
        onKeyDown=${(e) => e.key === "Escape" && (e.stopPropagation(), setEditing(null))} />
      <button class="button">${t("chats.rename")}</button><${ProblemNote} problem=${problem} /></form>`;
  }
  return html`<h1 class="cut grow" title=${chat}>${fresh ? t("chats.new") : oneLine(entry?.title) || chat}</h1>
    <code class="soft small cut id" title=${chat}>${chat}</code>
    ${fresh ? null : html`<${IconButton} icon="edit" label=${t("chats.rename")}
      onClick=${() => setEditing(entry?.title ?? "")} />
      <a class="icon-button" href=${href("memory", chat)} aria-label=${t("chats.memory")} title=${t("chats.memory")}>
        <${Icon} name="memory" /></a>`}`;
}
