// The view Chats: the list of chats, and beside it the one that is chosen.

import { html, useCallback, useEffect, useRef, useState } from "../html.js";
import { addTexts, t } from "../i18n.js";
import { Chat } from "../chat.js";
import { Erase } from "../erase.js";
import { may } from "../key.js";
import { ago, chatPath, get, href, patch, path, randomID } from "../lib.js";
import { Icon, IconButton, LineForm, ProblemNote, Time, useLoad, usePoll, useTabTitle, useWork } from "../parts.js";

addTexts({
  "chats.new": ["New chat", "Новый чат"],
  "chats.search": ["Search chats", "Поиск чатов"],
  "chats.none": ["No chat yet.", "Чатов пока нет."],
  "chats.notfound": ["No chat is called so.", "Таких чатов нет."],
  "chats.back": ["To the list", "К списку"],
  "chats.rename": ["Rename", "Переименовать"],
  "chats.title": ["Title", "Название"],
  "chats.pin": ["Pin {name} above the others", "Закрепить {name} вверху списка"],
  "chats.unpin": ["Unpin {name}", "Открепить {name}"],
  "chats.erase": ["Erase {name}", "Стереть {name}"],
  "chats.memory": ["What is remembered", "Что запомнено"],
  "chats.messages": [{ one: "{n} message", other: "{n} messages" },
    { one: "{n} сообщение", few: "{n} сообщения", other: "{n} сообщений" }],
});

const pageSize = 50;
const pollEvery = 5000; // milliseconds
const mostPins = 1000;
const mostLooks = 20; // requests in a row for a page: a search looks at some thousand chats with each

// readChats reads on behind a cursor until there is something to show, or nothing more, or it was tried often enough.
async function readChats(query, cursor, looks) {
  const list = { chats: [], next_cursor: cursor };
  const limit = cursor ? 4 * pageSize : pageSize;
  for (let i = 0; i < looks && (i === 0 || (list.next_cursor && list.chats.length < pageSize)); i++) {
    const page = await get(path("chats"), { order: "used", q: query, limit, cursor: list.next_cursor });
    list.chats.push(...page.chats);
    list.next_cursor = page.next_cursor;
  }
  return list;
}

// behind gives chats that are known already behind newer ones, without those that are among the newer ones, or would be
// if they were there still.
function behind(newer, known) {
  const ids = new Set(newer.map((c) => c.chat_id));
  const last = newer.at(-1)?.used ?? Infinity;
  return [...newer, ...known.filter((c) => !ids.has(c.chat_id) && c.used <= last)];
}

// useChats is the list, those pinned and then the chats used last first: {chats, more, problem, reload, change}.
// change(chat, entry) puts what is known of a chat in its place, and takes it away without an entry.
function useChats(query) {
  const [state, setState] = useState({ chats: null, pins: [], cursor: "" });
  const turn = useRef(0);
  const reading = useRef(false);
  // read reads the pins and the first page, which tells what others did, or with a cursor the page behind it.
  const read = useCallback(async (cursor, looks = mostLooks) => {
    const mine = ++turn.current;
    reading.current = true;
    try {
      const [list, pinned] = await Promise.all([readChats(query, cursor, looks),
        cursor ? null : get(path("chats"), { order: "pinned", q: query, limit: mostPins })]);
      const join = (s) => (s.query !== query || (!cursor && !list.next_cursor) ?
        { chats: list.chats, cursor: list.next_cursor } : cursor ?
          { chats: behind(s.chats, list.chats), cursor: list.next_cursor } :
          { chats: behind(list.chats, s.chats), cursor: s.cursor || list.next_cursor });
      if (mine === turn.current) setState((s) => ({ ...join(s), query, pins: pinned?.chats ?? s.pins }));
    } catch (problem) {
      if (mine === turn.current) setState((s) => ({ ...s, problem }));
    }
    if (mine === turn.current) reading.current = false;
  }, [query]);
  useEffect(() => {
    const timer = setTimeout(() => read(), query ? 150 : 0);
    return () => clearTimeout(timer);
  }, [read]);
  usePoll(() => reading.current || read("", 1), pollEvery);
  const more = state.cursor && state.query === query ? () => read(state.cursor) : null;
  const reload = useCallback(() => read(), [read]);
  const change = useCallback((chat, entry) => {
    const put = (all) => all?.flatMap((c) => (c.chat_id !== chat ? [c] : entry ? [entry] : []));
    setState((s) => ({ ...s, chats: put(s.chats), pins: put(s.pins) }));
    reload(); // what is on its way tells how it was before
  }, [reload]);
  const pins = new Set(state.pins.map((c) => c.chat_id));
  const chats = state.chats && [...state.pins, ...state.chats.filter((c) => !pins.has(c.chat_id))];
  return { ...state, chats, more, reload, change };
}

// useTitle returns a chat's stored title, or "" if it has none.
function useTitle(chat, list, fresh) {
  const [seen] = useState(() => new Map()); // the titles of those listed so far, also by another search
  for (const c of list.chats ?? []) seen.set(c.chat_id, c.title);
  const listed = seen.has(chat);
  const ask = Boolean(chat && list.chats && !listed && !fresh && may("memory:read"));
  const read = async (signal) => (ask ? { chat, ...await get(chatPath(chat), {}, { signal }) } : {});
  const { value } = useLoad(read, [chat, ask]);
  return (listed ? seen.get(chat) : value?.chat === chat ? value?.title : "") ?? "";
}

export function View({ path: [chosen] }) {
  const [query, setQuery] = useState("");
  const list = useChats(query);
  const { chats, reload } = list;
  const [fresh, setFresh] = useState(() => randomID().slice(0, 12));
  const chat = chosen ?? fresh;
  const title = useTitle(chat, list, chat === fresh);
  useTabTitle(title || (chosen && chat !== fresh ? chat : ""), t("view.chats"));
  const begin = () => {
    const id = randomID().slice(0, 12);
    setFresh(id);
    location.hash = href("chats", id);
  };
  const [erasing, setErasing] = useState(null); // the entry of the chat that is asked about
  const [failed, setFailed] = useState(null);
  const erased = () => {
    list.change(erasing.chat_id);
    setErasing(null);
    if (erasing.chat_id !== chat) return;
    setFresh(randomID().slice(0, 12));
    location.hash = href("chats");
  };
  const pin = (c) => patch(chatPath(c.chat_id), { pinned: !c.pinned }).then((entry) => {
    setFailed(null);
    list.change(c.chat_id, entry);
  }, setFailed);
  const changed = useCallback(() => {
    reload();
    // A chat gets its address with its first run. Who has gone elsewhere meanwhile stays there.
    if (/^(#\/?(chats\/?)?)?$/.test(location.hash)) location.replace(href("chats", chat));
  }, [chat, reload]);
  const single = chosen || (chats && !chats.length && !query);
  return html`<div class=${"split" + (single ? " chosen" : "")}>
    <${Side} list=${{ ...list, problem: failed ?? list.problem }} query=${query} onQuery=${setQuery} view="chats"
      chosen=${chosen} acts=${may("memory:write") && { pin, erase: setErasing }}>
      <${IconButton} icon="plus" class="primary" label=${t("chats.new")} onClick=${begin} /><//>
    <div class="page">
      <div class="page-top"><${IconButton} icon="back" class="back" href=${href("chats")} label=${t("chats.back")} />
        <${Title} key=${chat} chat=${chat} title=${title} fresh=${chat === fresh && !title} list=${list} /></div>
      <${Chat} key=${chat} chat=${chat} changed=${changed} />
    </div>
    ${erasing ? html`<${Erase} chat=${erasing.chat_id} name=${erasing.title || erasing.chat_id}
      onClose=${() => setErasing(null)} onDone=${erased} />` : null}
  </div>`;
}

// BesideChats shows the list of chats beside a view. show draws the view for the chosen chat's title. Without a chat
// hint is shown.
export function BesideChats({ view, chat, part, hint, show }) {
  const [query, setQuery] = useState("");
  const list = useChats(query);
  const title = useTitle(chat, list) || chat;
  useTabTitle(part, title, t("view." + view));
  return html`<div class=${"split" + (chat ? " chosen" : "")}>
    <${Side} list=${list} query=${query} onQuery=${setQuery} view=${view} chosen=${chat} />
    <div class="page">${chat ? show(title) : hint}</div>
  </div>`;
}

// Side is the list of chats, as useChats gives it, beside a view, which each of them leads to. children stand behind
// the search; acts, if given, are what can be done to a chat there.
function Side({ list: { chats, more, problem, reload }, query, onQuery, view, chosen, acts, children }) {
  return html`<aside class="side" aria-label=${t("view.chats")}>
    ${chosen ? null : html`<h1 class="visually-hidden">${t("view.chats")}</h1>`}
    <div class="side-top"><${SearchField} value=${query} onChange=${onQuery} label=${t("chats.search")} />${children}</div>
    <nav class="side-list" aria-label=${t("view.chats")}>
      <${ProblemNote} problem=${problem} retry=${reload} />
      ${chats?.map((c) => html`<${Entry} key=${c.chat_id} chat=${c} current=${c.chat_id === chosen} view=${view}
        acts=${acts} />`)}
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

// Entry shows a chat in a list as a link to a view.
function Entry({ chat: c, current, view, acts }) {
  const name = c.title || c.chat_id;
  return html`<div class="listed"><a class="entry" href=${href(view, c.chat_id)}
    aria-current=${current ? "page" : undefined}>
    <div class="cut">${name}</div>
    <div class="row small soft">${c.used ? html`<${Time} at=${c.used} text=${ago(c.used)} />` : null}
      ${c.messages ? html`<span class="cut">${t("chats.messages", { n: c.messages })}</span>` : null}
      ${c.state ? html`<span class=${"badge end " + (c.state === "waiting" ? "warn" : "accent")}>
        ${t("status." + c.state)}</span>` : null}</div></a>
    ${acts ? html`<${IconButton} icon="trash" class="danger" label=${t("chats.erase", { name })}
      onClick=${() => acts.erase(c)} />` : null}
    ${acts ? html`<${IconButton} icon="pin" class=${c.pinned ? "on" : ""}
      label=${t(c.pinned ? "chats.unpin" : "chats.pin", { name })} onClick=${() => acts.pin(c)} />` :
      c.pinned ? html`<span class="soft"><${Icon} name="pin" /></span>` : null}
  </div>`;
}

function Title({ chat, title, fresh, list }) {
  const [editing, setEditing] = useState(false);
  const [set, setSet] = useState(null); // the stored title after Rename, until the list has it
  const { work, problem } = useWork();
  useEffect(() => setSet(null), [title]);
  const save = (to) => work(async () => {
    const entry = await patch(chatPath(chat), { title: to });
    setEditing(false);
    setSet(entry.title);
    list.change(chat, entry);
  });
  if (editing) {
    return html`<${LineForm} text=${set || title} label=${t("chats.title")} button=${t("chats.rename")} most="200"
      mayBeEmpty save=${save} leave=${() => setEditing(false)}><${ProblemNote} problem=${problem} /><//>`;
  }
  return html`<h1 class="cut grow" title=${chat}>${fresh ? t("chats.new") : set || title || chat}</h1>
    <code class="soft small cut id" title=${chat}>${chat}</code>
    ${fresh ? null : html`<${IconButton} icon="edit" label=${t("chats.rename")}
      onClick=${() => setEditing(true)} />
      <${IconButton} icon="memory" href=${href("memory", chat)} label=${t("chats.memory")} />`}`;
}
