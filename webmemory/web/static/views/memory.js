// The view Memory: what is stored of a chat, as it is stored, and what can be done to it.

import { Fragment, html, useEffect, useRef, useState } from "../html.js";
import { addTexts, t } from "../i18n.js";
import { findMessage, useHistory, useScroll } from "../history.js";
import { keyInUse } from "../key.js";
import { AgentName } from "../lanes.js";
import { Erase } from "../erase.js";
import { chatPath, clock, del, href, number, oneLine, patch, path, post, request, size } from "../lib.js";
import {
  Confirm, CopyButton, Empty, Icon, IconButton, LineForm, Loading, ProblemNote, Time, useGet, useLoad, usePoll, useWork,
} from "../parts.js";
import { BesideChats, SearchField } from "./chats.js";

addTexts({
  "memory.choose": ["Choose a chat to see what is remembered of it.", "Выберите чат, чтобы увидеть, что о нём помнят."],
  "memory.own": ["Chat", "Чат"],
  "memory.notes": ["Notes", "Заметки"],
  "memory.aside": ["Taken back", "Отменено"],
  "memory.histories": ["Histories", "Истории"],
  "memory.search": ["Search what was said", "Поиск по сказанному"],
  "memory.key": ["Redis key", "Ключ Redis"],
  "memory.copykey": ["Copy the key", "Копировать ключ"],
  "memory.archived": ["{n} of them in the archive", "{n} в архиве"],
  "memory.archive": ["archive", "архив"],
  "memory.export": ["Export", "Экспорт"],
  "memory.nothing": ["Nothing is remembered of this chat.", "Об этом чате ничего не запомнено."],
  "memory.json": ["as JSON", "как JSON"],
  "memory.redact": ["Redact", "Вымарать"],
  "memory.redacttitle": ["Redact what was said?", "Вымарать сказанное?"],
  "memory.redacttext": ["The messages stay with their ids and times and say (redacted). This cannot be undone.",
    "Сообщения останутся со своими номерами и временем, вместо текста будет (redacted). Отменить это нельзя."],
  "memory.exchange": ["All that was said and done for this message, in every history",
    "Всё, что сказано и сделано для этого сообщения, во всех историях"],
  "memory.message": ["This message alone", "Только это сообщение"],
  "memory.willgo": [{ one: "{n} message loses its text:", other: "{n} messages lose their text:" },
    { one: "{n} сообщение потеряет текст:", few: "{n} сообщения потеряют текст:",
      other: "{n} сообщений потеряют текст:" }],
  "memory.partial": ["A damaged part of the archive could not be searched.", "Повреждённую часть архива не удалось прочитать."],
  "memory.done": [{ one: "{n} message was redacted.", other: "{n} messages were redacted." },
    { one: "Вымарано {n} сообщение.", few: "Вымарано {n} сообщения.", other: "Вымарано {n} сообщений." }],
  "memory.hits": [{ one: "{n} piece found", other: "{n} pieces found" },
    { one: "Найден {n} фрагмент", few: "Найдено {n} фрагмента", other: "Найдено {n} фрагментов" }],
  "memory.nohits": ["Nothing that was said matches.", "Ничего подобного сказано не было."],
  "memory.oldest": ["The oldest messages were not searched yet.", "Самые старые сообщения ещё не просмотрены."],
  "memory.show": ["Show in its history", "Показать в истории"],
  "note.add": ["Add a note", "Добавить заметку"],
  "note.new": ["What must always be known, in a sentence", "Что нужно знать всегда, одним предложением"],
  "note.none": ["No notes.", "Заметок нет."],
  "note.promote": ["Accept", "Принять"],
  "note.edit": ["Edit", "Изменить"],
  "note.save": ["Save", "Сохранить"],
  "note.active": ["active", "действует"],
  "note.proposed": ["proposed", "предложена"],
  "note.superseded": ["superseded", "заменена"],
  "note.by.user": ["by the user", "от пользователя"],
  "note.by.model": ["by the model", "от модели"],
  "note.by.tool": ["by a tool", "от инструмента"],
  "note.by.document": ["by a document", "из документа"],
  "note.by.operator": ["by the operator", "от оператора"],
  "note.of": ["Of the chat, shown to the master", "Чата, видны мастеру"],
  "note.ofagent": ["Shown to {name} alone", "Видны только {name}"],
  "aside.none": ["Nothing was taken back in the last 24 hours.", "За последние 24 часа ничего не отменялось."],
  "aside.restore": ["Put back", "Вернуть"],
  "aside.until": ["kept until {time}", "хранится до {time}"],
  "aside.restored": ["It is back.", "Возвращено."],
  "aside.since": ["Take back what was said since, and put this in its place",
    "Отменить сказанное с тех пор и вернуть это на его место"],
});

const pollEvery = 5000; // milliseconds
const notesTab = "~notes";
const asideTab = "~aside";

export const View = ({ path: [chat, tab = ""] }) => html`<${BesideChats} view="memory" chat=${chat}
  hint=${html`<${Empty} title=${t("view.memory")}><p>${t("memory.choose")}</p><//>`}
  show=${(title) => html`<${ChatMemory} key=${chat} chat=${chat} tab=${tab} title=${title} />`} />`;

function ChatMemory({ chat, tab, title }) {
  const { value: info, problem, reload } = useGet(chatPath(chat));
  usePoll(reload, pollEvery);
  const [erasing, setErasing] = useState(false);
  const [place, setPlace] = useState(null); // of the message that was searched for
  const histories = info?.histories ?? [];
  const notes = histories.reduce((n, h) => n + (h.notes ?? 0), 0);
  const tabs = useRef();
  useEffect(() => {
    tabs.current.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [tab, histories.length]);
  const current = histories.find((h) => (h.subagent ?? "") === tab);
  const show = (subagent, at) => {
    setPlace({ subagent, at });
    location.hash = href("memory", chat, ...(subagent ? [subagent] : []));
  };
  const { work, problem: failed } = useWork();
  // save downloads the export where a key is in use, which a link does not send.
  const save = (e) => {
    if (!keyInUse()) return;
    e.preventDefault();
    work(async () => {
      const whole = await (await request("GET", chatPath(chat, "", "export"))).blob();
      const link = Object.assign(document.createElement("a"),
        { href: URL.createObjectURL(whole), download: chat + ".ndjson" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    });
  };
  const erased = () => {
    setErasing(false);
    location.hash = href("memory");
  };
  return html`<${Fragment}>
    <div class="page-top"><${IconButton} icon="back" class="back" href=${href("memory")} label=${t("chats.back")} />
      <h1 class="cut grow" title=${chat}>${title}</h1>
      <${IconButton} icon="chat" href=${href("chats", chat)} label=${t("chat.open")} />
      <${IconButton} icon="download" href=${chatPath(chat, "", "export")} download=${chat + ".ndjson"} onClick=${save}
        label=${t("memory.export")} />
      <${IconButton} icon="trash" class="danger" label=${t("erase.erase")} onClick=${() => setErasing(true)} /></div>
    <nav class="tabs" ref=${tabs} aria-label=${t("memory.histories")}>
      ${histories.map((h) => html`<${Tab} key=${h.key}
        href=${href("memory", chat, ...(h.subagent ? [h.subagent] : []))} current=${tab === (h.subagent ?? "")}
        n=${h.messages + (h.archived ?? 0)}>${h.subagent ? html`
          <${AgentName} name=${h.subagent} />` : t("memory.own")}<//>`)}
      <${Tab} href=${href("memory", chat, notesTab)} current=${tab === notesTab} n=${notes}>${t("memory.notes")}<//>
      <${Tab} href=${href("memory", chat, asideTab)} current=${tab === asideTab}>${t("memory.aside")}<//>
    </nav>
    <${ProblemNote} problem=${failed} />
    <${ProblemNote} problem=${problem} retry=${reload} />
    ${tab === notesTab ? html`<div class="page-body stored">
        ${["", ...histories.map((h) => h.subagent).filter(Boolean)].map((subagent) => html`<${Notes} key=${subagent}
          chat=${chat} subagent=${subagent} changed=${reload} />`)}</div>` :
      tab === asideTab ? html`<${SetAside} chat=${chat} changed=${reload} />` :
      current ? html`<${History} key=${tab} chat=${chat} history=${current}
        place=${place?.subagent === tab ? place.at : undefined}
        show=${show} changed=${reload} />` :
      info ? html`<${Empty} title=${t("memory.nothing")} />` : problem ? null : html`<${Loading} />`}
    ${erasing ? html`<${Erase} chat=${chat} name=${title} onClose=${() => setErasing(false)} onDone=${erased} />` : null}
  <//>`;
}

const Tab = ({ href: to, current, n, children }) => html`<a href=${to} aria-current=${current ? "page" : undefined}>
  ${children}
  ${n === undefined ? null : html`<span class="badge">${number(n)}</span>`}</a>`;

// History is one history as it is stored; place is that of a message to be shown.
function History({ chat, history: of, place, show, changed }) {
  const subagent = of.subagent ?? "";
  const around = place === undefined ? undefined : Math.max(0, place - 10);
  const history = useHistory(chat, subagent, { start: around });
  const { page } = history;
  const scroll = useScroll(page, { ...history, changes: [] });
  const [query, setQuery] = useState("");
  const [redacting, setRedacting] = useState(null);
  const asked = useRef();
  useEffect(() => {
    if (place === undefined || asked.current === place) return;
    if (asked.current !== undefined || page) history.load(around).catch(() => {});
    asked.current = place;
    scroll.atEnd.current = false;
  }, [place]);
  useEffect(() => {
    if (place === undefined || !page) return;
    scroll.ref.current?.querySelector(`[data-at="${place}"]`)?.scrollIntoView({ block: "center" });
  }, [place, page?.from]);
  const total = of.messages + (of.archived ?? 0);
  useEffect(() => { // somebody wrote, or took back
    if (page && page.to >= page.total && page.total !== total) history.load().catch(() => {});
  }, [total]);
  const reload = () => {
    history.load(page && page.to < page.total ? page.from : undefined).catch(() => {});
    changed();
  };
  return html`<${Fragment}>
    <div class="facts-line"><span class="row"><span class="soft small">${t("memory.key")}</span>
      <code class="cut">${of.key}</code><${CopyButton} text=${of.key} label=${t("memory.copykey")} /></span>
      <span class="soft small">
        ${t("chats.messages", { n: total })}${of.archived ?
          ", " + t("memory.archived", { n: of.archived }) : ""} · ${size(of.bytes + (of.archived_bytes ?? 0))}</span>
      <span class="search-here"><${SearchField} value=${query} onChange=${setQuery} label=${t("memory.search")} />
        </span></div>
    ${query.trim() ? html`<${Hits} chat=${chat} subagent=${subagent} query=${query.trim()} show=${(s, at) => {
      setQuery("");
      show(s, at);
    }} />` : null}
    <div class="page-body stored" hidden=${Boolean(query.trim())} ref=${scroll.ref} onScroll=${scroll.onScroll}
      tabindex="0" role="region" aria-label=${of.key}>
      <${ProblemNote} problem=${history.problem} retry=${() => history.load().catch(() => {})} />
      ${!page && history.loading ? html`<${Loading} />` : null}
      ${page?.from > 0 ? html`<div class="center"><button type="button" class="quiet" onClick=${history.older}>
        ${t("chat.older")}</button></div>` : null}
      ${page?.messages.map((m, i) => html`<${Stored} key=${page.from + i} at=${page.from + i} message=${m}
        found=${page.from + i === place}
        archived=${page.from + i < (of.archived ?? 0)} redact=${setRedacting} />`)}
      ${page && page.to < page.total ? html`<button type="button" class="button newest"
        onClick=${() => history.load().then(scroll.toEnd)}>
        <${Icon} name="down" />${t("chat.newest")}</button>` : null}
    </div>
    ${redacting ? html`<${Redact} chat=${chat} subagent=${subagent} message=${redacting}
      onClose=${() => setRedacting(null)} onDone=${reload} />` : null}
  <//>`;
}

// Head is the first line of a stored message.
const Head = ({ role, name, at, id, children }) => html`<div class="row wrap head">
  <span class=${"badge " + (role === "user" ? "accent" : "")}>${t("role." + role)}</span>${name}
  <span class="soft small"><${Time} at=${at} /></span>
  <code class="soft cut small" title=${id}>${id}</code>${children}</div>`;

// Stored is a message as it lies in the store.
function Stored({ message: m, at, archived, found, redact }) {
  const [json, setJSON] = useState(false);
  return html`<article class=${"card stored-message" + (found ? " found" : "")} data-at=${at}>
    <${Head} role=${m.role} name=${m.name && html`<code>${m.name}</code>`} at=${m.timestamp} id=${m.id}>
      ${archived ? html`<span class="badge">${t("memory.archive")}</span>` : null}
      ${m.partial ? html`<span class="badge warn">${t("chat.partial")}</span>` : null}
      ${m.failure ? html`<span class="badge danger">${m.failure}</span>` : null}
      <span class="row end"><button type="button" class="quiet small" aria-expanded=${json}
        onClick=${() => setJSON(!json)}>${t("memory.json")}</button>
        ${m.id ? html`<${IconButton} icon="trash" class="danger" label=${t("memory.redact")}
          onClick=${() => redact(m)} />` : null}</span><//>
    ${json ? html`<pre class="code wrap">${JSON.stringify(m, null, 2)}</pre>` : html`<${Fragment}>
      ${m.content ? html`<div class="said">
        ${typeof m.content === "string" ? m.content : JSON.stringify(m.content)}</div>` : null}
      ${m.tool_calls?.map((c) => html`<div key=${c.id} class="row"><code class="cut">
        ${c.function?.name}(${oneLine(c.function?.arguments, 300)})</code></div>`)}<//>`}
  </article>`;
}

function Hits({ chat, subagent, query, show }) {
  const [asked, setAsked] = useState(query);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(query), 250);
    return () => clearTimeout(timer);
  }, [query]);
  const { value, problem, loading } =
    useGet(chatPath(chat, "", "recall"), { query: asked, subagent, budget: 4000 });
  const open = async (hit) => {
    const found = await findMessage(chat, hit.subagent ?? "", { id: hit.id, ts: hit.ts });
    if (found) show(found.subagent, found.at);
  };
  const hits = value?.hits ?? [];
  return html`<div class="page-body stored"><${ProblemNote} problem=${problem} />
    <p class="soft small" role="status">
      ${loading ? t("loading") : hits.length ? t("memory.hits", { n: hits.length }) : problem ? "" : t("memory.nohits")}
      ${value?.partial ? " " + t("memory.oldest") : ""}</p>
    ${hits.map((h, i) => html`<article key=${i} class="card stored-message">
      <${Head} role=${h.role} name=${h.subagent && html`<${AgentName} name=${h.subagent} />`} at=${h.ts} id=${h.id}>
      <span class="soft small">${t("documents.score")} ${h.score.toFixed(2)}</span>
      <button type="button" class="quiet small end" onClick=${() => open(h)}>${t("memory.show")}</button><//>
      <div class="said">${h.text}</div></article>`)}
  </div>`;
}

// Redact shows what a redaction would change, and does it on a second yes.
function Redact({ chat, subagent, message, onClose, onDone }) {
  const [scope, setScope] = useState("exchange");
  const [done, setDone] = useState(null);
  const where = chatPath(chat, subagent, "messages", message.id);
  const { value, problem } = useLoad((signal) => del(where, { scope, dry_run: true }, { signal }), [where, scope]);
  const redact = async () => {
    setDone(await del(where, { scope }));
    onDone();
  };
  return html`<${Confirm} title=${t("memory.redacttitle")} button=${t("memory.redact")} act=${redact} onClose=${onClose}
    ready=${Boolean(value)} done=${Boolean(done)}>
    ${done ? html`<p role="status">${t("memory.done", { n: done.redacted.length })}</p>` : html`<${Fragment}><p>
      ${t("memory.redacttext")}</p>
      <div class="stack tight" role="radiogroup">${["exchange", "message"].map((s) => html`<label key=${s} class="row">
        <input type="radio" name="scope" checked=${scope === s} onChange=${() => setScope(s)} />
          ${t("memory." + s)}</label>`)}</div>
      ${value ? html`<${Refs} chat=${chat} title=${t("memory.willgo", { n: value.redacted.length })}
        refs=${value.redacted} ts=${message.timestamp} />` : problem ? null : html`<${Loading} />`}<//>`}
    ${(done ?? value)?.partial ? html`<p class="hint">${t("memory.partial")}</p>` : null}
    <${ProblemNote} problem=${problem} /><//>`;
}

const mostRefs = 20; // of which the texts are looked up

const Refs = ({ chat, title, refs, ts }) => html`<div><p>${title}</p><ul class="plain-list refs" tabindex="0"
  aria-label=${title}>
  ${refs.map((r, i) => html`<${Ref} key=${r.subagent + r.id} chat=${chat} of=${r}
    ts=${i < mostRefs ? ts : undefined} />`)}</ul></div>`;

function Ref({ chat, of, ts }) {
  const find = async () => (ts ? findMessage(chat, of.subagent, { id: of.id, ts }) : undefined);
  const { value } = useLoad(find, [chat, of.id, ts]);
  return html`<li class="row"><${AgentName} name=${of.subagent || "master"} />
    <span class="cut grow">
      ${value ? oneLine(value.message.content || value.message.tool_calls?.[0]?.function?.name) : html`<code
      class="soft">${of.id}</code>`}</span></li>`;
}

function Notes({ chat, subagent, changed }) {
  const where = chatPath(chat, subagent, "notes");
  const { value, problem, reload } = useGet(where);
  const { work, problem: failed } = useWork();
  const change = (call) => work(async () => {
    await call();
    reload();
    changed();
  });
  const title = subagent ? t("note.ofagent", { name: subagent }) : t("note.of");
  return html`<section class="stack" aria-label=${title}><h2>${title}</h2>
    <${ProblemNote} problem=${failed ?? problem} />
    ${value && !value.notes.length ? html`<p class="soft">${t("note.none")}</p>` : null}
    ${value?.notes.map((n) => html`<${Note} key=${n.id} note=${n} where=${where} change=${change} />`)}
    <${LineForm} label=${t("note.new")} button=${t("note.add")} most="500"
      save=${(text) => change(() => post(where, { text }))} />
  </section>`;
}

function Note({ note: n, where, change }) {
  const [editing, setEditing] = useState(false);
  const at = where + "/" + encodeURIComponent(n.id);
  const save = async (text) => await change(() => patch(at, { text })) && setEditing(false);
  return html`<article class=${"card stored-message" + (n.state === "superseded" ? " past" : "")}>
    <div class="row wrap head"><span class=${"badge " + ({ active: "accent", proposed: "warn" }[n.state] ?? "")}>
      ${t("note." + n.state)}</span>
      <span class="soft small">${t("note.by." + n.by)} · <${Time} at=${n.ts} /></span>
      <span class="row end">${n.state === "proposed" ? html`<button type="button" class="button"
        onClick=${() => change(() => patch(at, { state: "active" }))}>
          <${Icon} name="check" />${t("note.promote")}</button>` : null}
        ${n.state !== "superseded" ? html`<${IconButton} icon="edit" label=${t("note.edit")}
          onClick=${() => setEditing(true)} />` : null}
        <${IconButton} icon="trash" class="danger" label=${t("delete")} onClick=${() => change(() => del(at))} /></span>
          </div>
    ${editing ? html`<${LineForm} text=${n.text} label=${t("note.edit")} button=${t("note.save")} most="500"
      save=${save} leave=${() => setEditing(false)} />` : html`<div class="said">${n.text}</div>`}
  </article>`;
}

function SetAside({ chat, changed }) {
  const { value, problem, reload } = useGet(chatPath(chat, "", "set-aside"));
  const [failed, setFailed] = useState(null);
  const [back, setBack] = useState(false);
  // restore puts back what is set aside; with first, what was said since is taken back before.
  const restore = async (aside, first) => {
    setFailed(null);
    setBack(false);
    try {
      if (first) await post(chatPath(chat, "", "rewind"), { to: aside.to });
      await post(path("chats", chat, "set-aside", aside.id, "restore"));
      setBack(true);
      changed();
    } catch (problem) {
      setFailed({ problem, aside: problem.code === "messages_since" && !first ? aside : undefined });
    }
    reload();
  };
  const all = value?.set_aside.toReversed() ?? [];
  return html`<div class="page-body stored">
    ${failed ? html`<${ProblemNote} problem=${failed.problem}>${failed.aside ? html`<div><button type="button"
      class="button"
      onClick=${() => restore(failed.aside, true)}>${t("aside.since")}</button></div>` : null}<//>` : null}
    <${ProblemNote} problem=${problem} retry=${reload} />
    <div role="status">${back ? t("aside.restored") : ""}</div>
    ${value && !all.length ? html`<p class="soft">${t("aside.none")}</p>` : null}
    ${all.map((a) => html`<article key=${a.id} class="card stored-message"><div class="row wrap"><${Icon} name="clock" />
      <${Time} at=${a.ts} />
      <span>${t("chats.messages", { n: a.messages })}</span>
      ${a.histories.map((h) => html`<span key=${h.subagent} class="soft small">${h.subagent ? html`
        <${AgentName} name=${h.subagent} />` : t("memory.own")} ${number(h.messages)}</span>`)}
      ${a.until ? html`<span class="soft small">${t("aside.until", { time: clock(a.until) })}</span>` : null}
      <button type="button" class="button end" onClick=${() => restore(a)}><${Icon} name="refresh" />
        ${t("aside.restore")}</button></div></article>`)}
  </div>`;
}
