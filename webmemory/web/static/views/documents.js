// The view Documents: collections, what is in them, files on their way there, and search.

import { html, useEffect, useRef, useState } from "../html.js";
import { addTexts, t } from "../i18n.js";
import { del, get, href, number, path, post, put, size } from "../lib.js";
import { link } from "../markdown.js";
import {
  Confirm, CopyButton, Empty, Icon, IconButton, Loading, ProblemNote, useDrop, useGet, useTabTitle, useWork,
} from "../parts.js";
import { clearUploads, uploadFiles, useUploads } from "../uploads.js";

addTexts({
  "documents.collections": ["Collections", "Коллекции"],
  "documents.new": ["New collection", "Новая коллекция"],
  "documents.create": ["Create", "Создать"],
  "documents.name.rule": ["1 to 64 characters of a–z 0–9 _ -", "от 1 до 64 знаков: a–z 0–9 _ -"],
  "documents.count": [
    { one: "{count} document", other: "{count} documents" },
    { one: "{count} документ", few: "{count} документа", other: "{count} документов" },
  ],
  "documents.passages": [
    { one: "{count} passage", other: "{count} passages" },
    { one: "{count} фрагмент", few: "{count} фрагмента", other: "{count} фрагментов" },
  ],
  "documents.none": ["No collections yet", "Коллекций пока нет"],
  "documents.none.how": ["A collection holds documents that subagents answer from. Create one here, or load a folder:",
    "В коллекции лежат документы, по которым отвечают подагенты. Создайте её здесь или загрузите папку:"],
  "documents.choose": ["Choose a collection", "Выберите коллекцию"],
  "documents.choose.how": ["Its documents, search and uploads are shown here.", "Здесь появятся её документы, поиск и загрузка."],
  "documents.readBy": ["searched by {names}", "здесь ищут: {names}"],
  "documents.unread": ["No subagent searches this collection, so no answer comes from it. Searched are: {names}.",
    "Ни один подагент здесь не ищет, и ответов отсюда не будет. Ищут здесь: {names}."],
  "documents.nowhere": ["none", "нигде"],
  "documents.add": ["Add files", "Добавить файлы"],
  "documents.drop": ["Drop files here, or choose them.", "Перетащите файлы сюда или выберите их."],
  "documents.dropHere": ["Drop to add to {name}", "Отпустите, чтобы добавить в {name}"],
  "documents.empty": ["No documents in it yet", "Документов пока нет"],
  "documents.search": ["Search in {name}", "Искать в {name}"],
  "documents.find": ["Search", "Найти"],
  "documents.clear": ["Back to the documents", "К документам"],
  "documents.found.empty": ["No passage has a word of it.", "Ни в одном фрагменте нет слов запроса."],
  "documents.found.weak": ["The best passage has less of the query than is usual in this collection.",
    "Лучший фрагмент похож на запрос меньше, чем обычно в этой коллекции."],
  "documents.found.degraded": ["Something that search needs did not answer; this is what can be known without it.",
    "Часть поиска не ответила; показано то, что известно без неё."],
  "documents.score": ["score", "оценка"],
  "documents.page": ["page {page}", "с. {page}"],
  "documents.outdated": ["outdated", "устарел"],
  "documents.outdated.why": ["This version of mneme would read its file otherwise: load it again.",
    "Эта версия mneme прочла бы файл иначе: загрузите его снова."],
  "documents.delete.ask": ["Delete {name}?", "Удалить {name}?"],
  "documents.delete.why": ["No search finds it from then on. What was answered from it stays in the histories.",
    "Поиск больше её не найдёт. Прежние ответы остаются в историях."],
  "documents.drop.ask": ["Delete the collection {name}?", "Удалить коллекцию {name}?"],
  "documents.drop.why": [
    { one: "Its one document goes with it.", other: "All its {count} documents go with it." },
    { one: "{count} документ будет удалён вместе с ней.", few: "{count} документа будут удалены вместе с ней.",
      other: "{count} документов будут удалены вместе с ней." },
  ],
  "documents.drop.empty": ["It holds no documents.", "В ней нет документов."],
  "documents.back": ["To the collection", "К коллекции"],
  "documents.backAll": ["To the collections", "К коллекциям"],
  "documents.source": ["Source", "Источник"],
  "documents.id": ["Id", "Идентификатор"],
  "documents.origin": ["Origin", "Происхождение"],
  "documents.passage": ["Passage {n}", "Фрагмент {n}"],
  "documents.column.title": ["Document", "Документ"],
  "documents.column.passages": ["Passages", "Фрагменты"],
  "documents.column.size": ["Size", "Размер"],
  "uploads.title": ["Uploads", "Загрузки"],
  "uploads.clear": ["Clear the list", "Очистить список"],
  "uploads.cancel": ["Stop the upload of {name}", "Остановить загрузку {name}"],
  "uploads.waiting": ["waiting", "в очереди"],
  "uploads.sending": ["{percent} % sent", "отправлено {percent} %"],
  "uploads.reading": ["is read", "читается"],
  "uploads.many": [
    { one: "{count} document so far", other: "{count} documents so far" },
    { one: "пока {count} документ", few: "пока {count} документа", other: "пока {count} документов" },
  ],
  "uploads.stopped": ["stopped", "остановлено"],
  "uploads.refused": ["refused", "отклонено"],
  "uploads.stale": ["refused; the version before stays", "отклонено; прежняя версия остаётся"],
  "uploads.new": ["new", "новый"],
  "uploads.changed": ["changed", "изменён"],
  "uploads.unchanged": ["unchanged", "без изменений"],
  "uploads.removed": ["removed", "удалён"],
  "uploads.pages": ["pages not read: {pages}", "не прочитаны страницы: {pages}"],
  "uploads.skipped": ["left out: {what}", "пропущено: {what}"],
  "uploads.summary": ["{done} of {all} done, {refused} refused", "готово {done} из {all}, отклонено {refused}"],
});

const counted = (key, n) => t(key, { n, count: number(n) });

export function View({ path: [collection, id, start] }) {
  const list = useGet(path("collections"));
  useTabTitle(id, collection, t("view.documents"));
  return html`<div class=${"split" + (collection ? " chosen" : "")}>
    <${Collections} list=${list} chosen=${collection} />
    <section class="page">
      ${!collection ? html`<${Empty} title=${t("documents.choose")}><p>${t("documents.choose.how")}</p><//>`
        : id ? html`<${Document} key=${id} collection=${collection} id=${id} start=${start} changed=${list.reload} />`
        : html`<${Collection} key=${collection} name=${collection} changed=${list.reload} />`}
    </section>
  </div>`;
}

function Collections({ list, chosen }) {
  const { value, problem, loading, reload } = list;
  const [creating, setCreating] = useState(false);
  const all = value?.collections ?? [];
  return html`<nav class="side" aria-label=${t("documents.collections")}>
    <div class="side-top"><h1 class="grow">${t("documents.collections")}</h1>
      <${IconButton} icon="plus" label=${t("documents.new")} aria-expanded=${creating} onClick=${() => setCreating(!creating)} /></div>
    ${creating ? html`<${NewCollection} done=${() => (setCreating(false), reload())} />` : null}
    <div class="side-list">
      <${ProblemNote} problem=${problem} retry=${reload} />
      ${loading && !value ? html`<${Loading} />` : null}
      ${value && !all.length ? html`<div class="empty"><h2>${t("documents.none")}</h2><p>${t("documents.none.how")}</p>
        <code>mneme ingest ./docs --collection docs</code></div>` : null}
      ${all.map((c) => html`<a key=${c.name} class="entry" href=${href("documents", c.name)}
          aria-current=${c.name === chosen ? "page" : undefined}>
        <div class="cut">${c.name}</div>
        <div class="small soft">${counted("documents.count", c.documents)} · ${size(c.bytes)}</div></a>`)}
    </div>
  </nav>`;
}

function NewCollection({ done }) {
  const [name, setName] = useState("");
  const { work, problem } = useWork();
  const create = async (e) => {
    e.preventDefault();
    if (!await work(() => put(path("collections", name.trim())))) return;
    done();
    location.hash = href("documents", name.trim());
  };
  return html`<form class="pad stack" onSubmit=${create}>
    <label class="above"><span>${t("documents.new")}</span>
      <input type="text" required maxlength="64" pattern="[a-z0-9_\\-]+" title=${t("documents.name.rule")} autocomplete="off"
        ref=${(field) => field && !name && field.focus()} value=${name} onInput=${(e) => setName(e.target.value)} /></label>
    <span class="small soft">${t("documents.name.rule")}</span>
    <${ProblemNote} problem=${problem} />
    <button class="button primary">${t("documents.create")}</button>
  </form>`;
}

function Collection({ name, changed }) {
  const info = useGet(path("collections", name));
  const [more, setMore] = useState([]); // pages behind the first
  const first = useGet(path("collections", name, "documents"));
  const [found, setFound] = useState();
  const [asked, setAsked] = useState(false); // to delete it
  const picker = useRef();
  const again = () => {
    setMore([]);
    info.reload();
    first.reload();
    changed();
  };
  const add = (files) => uploadFiles(name, files, again);
  const { over, drop } = useDrop(add);
  const pages = [first.value, ...more].filter(Boolean);
  const next = pages.at(-1)?.next_cursor;
  const showMore = async () => setMore([...more, await get(path("collections", name, "documents"), { cursor: next })]);
  const documents = pages.flatMap((p) => p.documents);
  const readBy = info.value?.read_by ?? [];
  const searched = info.value?.searched ?? [];
  return html`
    <header class="page-top">
      <${IconButton} icon="back" class="back" href=${href("documents")} label=${t("documents.backAll")} />
      <h2 class="grow cut">${name}</h2>
      ${readBy.length ? html`<span class="badge accent wide-only">${t("documents.readBy", { names: readBy.join(", ") })}</span>` : null}
      <button type="button" class="button primary" onClick=${() => picker.current.click()}>
        <${Icon} name="upload" />${t("documents.add")}</button>
      <${IconButton} icon="trash" class="danger" label=${t("documents.drop.ask", { name })} onClick=${() => setAsked(true)} />
    </header>
    <div class=${"page-body pad stack drop" + (over ? " over" : "")} data-drop=${t("documents.dropHere", { name })} ...${drop}>
      <input type="file" multiple hidden ref=${picker} aria-label=${t("documents.add")}
        onChange=${(e) => (add([...e.target.files]), (e.target.value = ""))} />
      <${ProblemNote} problem=${info.problem ?? first.problem} retry=${again} />
      ${info.value && !readBy.length ? html`<p class="hint">${t("documents.unread", { names: searched.join(", ") || t("documents.nowhere") })}</p>` : null}
      <${Uploads} collection=${name} />
      <${Search} collection=${name} found=${found} show=${setFound} />
      ${found ? html`<${Found} collection=${name} found=${found} />`
        : first.value && !documents.length ? html`<${Empty} title=${t("documents.empty")}><p>${t("documents.drop")}</p><//>`
        : html`<${Documents} collection=${name} documents=${documents} />`}
      ${first.loading && !first.value ? html`<${Loading} />` : null}
      ${!found && next ? html`<button type="button" class="button" onClick=${showMore}>${t("show.more")}</button>` : null}
    </div>
    ${asked ? html`<${Deletion} title=${t("documents.drop.ask", { name })} onClose=${() => setAsked(false)}
        why=${info.value?.documents ? counted("documents.drop.why", info.value.documents) : t("documents.drop.empty")}
        where=${path("collections", name)} next=${href("documents")} changed=${changed} />` : null}`;
}

const Documents = ({ collection, documents }) => !documents.length ? null : html`<div class="scroll-x card"><table>
  <thead><tr><th scope="col">${t("documents.column.title")}</th><th scope="col" class="figure wide-only">${t("documents.column.passages")}</th>
    <th scope="col" class="figure">${t("documents.column.size")}</th></tr></thead>
  <tbody>${documents.map((d) => html`<tr key=${d.id}>
    <td class="break"><a href=${href("documents", collection, d.id)}>${d.title || d.id}</a>
      ${d.outdated ? html` <span class="badge warn" title=${t("documents.outdated.why")}>${t("documents.outdated")}</span>` : null}
      ${d.title && d.title !== d.id ? html`<div class="small soft">${d.id}</div>` : null}</td>
    <td class="figure wide-only">${number(d.passages)}</td><td class="figure nowrap">${size(d.bytes)}</td></tr>`)}</tbody>
</table></div>`;

function Search({ collection, found, show }) {
  const [query, setQuery] = useState("");
  const { work, problem } = useWork();
  const field = useRef();
  const search = (e) => {
    e.preventDefault();
    work(async () => show(query.trim() ? await post(path("collections", collection, "search"), { query }) : undefined));
  };
  const leave = () => {
    setQuery("");
    show();
    field.current.focus();
  };
  return html`<form class="row" role="search" onSubmit=${search}>
      <input type="search" class="grow" ref=${field} value=${query} onInput=${(e) => setQuery(e.target.value)}
        aria-label=${t("documents.search", { name: collection })} placeholder=${t("documents.search", { name: collection })} />
      <button class="button"><${Icon} name="search" />${t("documents.find")}</button>
    </form>
    ${found ? html`<div><button type="button" class="quiet" onClick=${leave}><${Icon} name="back" /> ${t("documents.clear")}</button></div>` : null}
    <${ProblemNote} problem=${problem} />`;
}

function Found({ collection, found }) {
  const best = Math.max(...found.passages.map((p) => p.score), Number.MIN_VALUE);
  return html`<div class="stack" role="region" aria-live="polite" aria-label=${t("documents.find")}>
    ${found.status === "empty" ? html`<p class="hint">${t("documents.found.empty")}</p>` : null}
    ${found.status === "weak" ? html`<p class="hint">${t("documents.found.weak")}</p>` : null}
    ${found.degraded ? html`<p class="hint">${t("documents.found.degraded")}</p>` : null}
    ${found.passages.map((p) => html`<article key=${p.id} class="card pad passage">
      <div class="row wrap"><a class="break grow" href=${href("documents", collection, p.doc_id, String(p.start))}>${p.title || p.doc_id}</a>
        <span class="score small soft"><meter min="0" max=${best} value=${p.score} aria-label=${t("documents.score")}></meter>
          ${t("documents.score")} ${number(Math.round(p.score * 100) / 100)}</span></div>
      <${Place} passage=${p} />
      <p class="text"><${Marked} text=${p.text} query=${found.query} /></p></article>`)}
  </div>`;
}

const Place = ({ passage }) => passage.section || passage.page ? html`<div class="small soft break">
  ${[passage.section, passage.page && t("documents.page", { page: passage.page })].filter(Boolean).join(" · ")}</div>` : null;

// Marked is a text in which the query's words are marked where they stand to the letter.
function Marked({ text, query }) {
  const words = new Set(query.toLowerCase().match(/[\p{L}\p{N}]{2,}/gu) ?? []);
  return text.split(/([\p{L}\p{N}]+)/u).map((piece, i) => (i % 2 && words.has(piece.toLowerCase()) ? html`<mark>${piece}</mark>` : piece));
}

// atOnce is how many passages of a document are shown before more are asked for.
const atOnce = 50;

function Document({ collection, id, start, changed }) {
  const where = path("collections", collection, "documents", id);
  const { value, problem, loading, reload } = useGet(where);
  const [asked, setAsked] = useState(false);
  const [shown, setShown] = useState(atOnce);
  const aim = value && start !== undefined ? value.passages.findIndex((p) => p.start === Number(start)) : -1;
  const bytes = value && new TextEncoder().encode(value.text);
  const text = (p) => new TextDecoder().decode(bytes.subarray(p.start, p.end));
  const sight = useRef();
  useEffect(() => sight.current?.scrollIntoView({ block: "center" }), [value, start]);
  return html`
    <header class="page-top">
      <${IconButton} icon="back" href=${href("documents", collection)} label=${t("documents.back")} />
      <h2 class="grow cut">${value?.title || id}</h2>
      <${IconButton} icon="trash" class="danger" label=${t("documents.delete.ask", { name: id })} onClick=${() => setAsked(true)} />
    </header>
    <div class="page-body pad stack">
      <${ProblemNote} problem=${problem} retry=${reload} />
      ${loading && !value ? html`<${Loading} />` : null}
      ${value ? html`
        <dl class="pairs">
          <div><dt>${t("documents.id")}</dt><dd class="mono break">${value.id} <${CopyButton} text=${value.id} /></dd></div>
          ${value.source ? html`<div><dt>${t("documents.source")}</dt><dd class="break">${link(value.source, value.source)}</dd></div>` : null}
          ${value.origin ? html`<div><dt>${t("documents.origin")}</dt><dd class="break">${value.origin}</dd></div>` : null}
          ${Object.entries(value.metadata ?? {}).map(([name, v]) => html`<div key=${name}><dt class="break">${name}</dt><dd class="break">${v}</dd></div>`)}
        </dl>
        <h3>${counted("documents.passages", value.passages.length)}</h3>
        <ol class="plain-list stack">
          ${value.passages.slice(0, Math.max(shown, aim + 1)).map((p, i) => html`<li key=${i} ref=${i === aim ? sight : undefined}
              class=${"card pad passage" + (i === aim ? " found" : "")}>
            <div class="small soft">${t("documents.passage", { n: i + 1 })}</div>
            <${Place} passage=${p} />
            <p class="text">${text(p)}</p></li>`)}
        </ol>
        ${value.passages.length > Math.max(shown, aim + 1) ? html`<button type="button" class="button"
          onClick=${() => setShown(Math.max(shown, aim + 1) + atOnce)}>${t("show.more")}</button>` : null}` : null}
    </div>
    ${asked ? html`<${Deletion} title=${t("documents.delete.ask", { name: value?.title || id })} why=${t("documents.delete.why")}
        onClose=${() => setAsked(false)} where=${where} next=${href("documents", collection)}
        changed=${changed} />` : null}`;
}

// Deletion asks before it deletes what is at where, and shows next after that.
function Deletion({ title, why, where, next, changed, onClose }) {
  const act = async () => {
    await del(where);
    onClose();
    changed();
    location.hash = next;
  };
  return html`<${Confirm} title=${title} button=${t("delete")} act=${act} onClose=${onClose}><p>${why}</p><//>`;
}

// Uploads are the files on their way into a collection, and what became of them.
function Uploads({ collection }) {
  const all = useUploads(collection);
  if (!all.length) return null;
  const done = all.filter((u) => u.ended).length;
  const refused = all.reduce((n, u) => n + (u.problem ? 1 : 0) + u.refused.length, 0);
  return html`<section class="card pad stack" aria-label=${t("uploads.title")}>
    <div class="row"><h3 class="grow">${t("uploads.title")}</h3>
      <span class="small soft" role="status">${t("uploads.summary", { done: number(done), all: number(all.length), refused: number(refused) })}</span>
      ${done === all.length ? html`<${IconButton} icon="close" label=${t("uploads.clear")} onClick=${() => clearUploads(collection)} />` : null}</div>
    <ul class="plain-list uploads">${all.map((u) => html`<${Upload} key=${u.key} upload=${u} />`)}</ul>
  </section>`;
}

function Upload({ upload: u }) {
  const fraction = u.size ? u.sent / u.size : 0;
  return html`<li>
    <div class="row"><span class="grow cut" title=${u.id}>${u.id}</span><span class="small soft nowrap">${size(u.size)}</span>
      <${State} upload=${u} fraction=${fraction} />
      ${u.ended ? null : html`<${IconButton} icon="close" label=${t("uploads.cancel", { name: u.id })} onClick=${u.stop} />`}</div>
    ${u.ended ? null : html`<progress aria-label=${u.id} max="1" value=${u.began && fraction < 1 ? fraction : undefined}></progress>`}
    ${u.problem ? html`<div class="small bad break" title=${u.problem.code}>${u.problem.message}</div>` : null}
    ${u.refused.map((r) => html`<div class="small bad break" title=${r.code}><strong>${r.id}</strong>: ${r.reason}</div>`)}
    ${u.pages.length ? html`<div class="small warn-text">${t("uploads.pages", { pages: u.pages.join(", ") })}</div>` : null}
    ${u.skipped.length ? html`<div class="small soft">${t("uploads.skipped", { what: u.skipped.map(([what, n]) => `${number(n)} ${what}`).join(", ") })}</div>` : null}
  </li>`;
}

function State({ upload: u, fraction }) {
  if (u.problem) return html`<span class="badge danger">${t("uploads.refused")}</span>`;
  if (u.stopped) return html`<span class="badge">${t("uploads.stopped")}</span>`;
  if (u.ended) {
    return Object.entries(u.counts).map(([status, n]) => html`<span key=${status}
      class=${"badge" + (["refused", "stale"].includes(status) ? " danger" : " accent")}>
      ${n > 1 ? number(n) + " " : ""}${t("uploads." + status)}</span>`);
  }
  const documents = Object.values(u.counts).reduce((a, b) => a + b, 0);
  const text = !u.began ? t("uploads.waiting") : fraction < 1 ? t("uploads.sending", { percent: Math.floor(fraction * 100) })
    : documents ? counted("uploads.many", documents) : t("uploads.reading");
  return html`<span class="small soft nowrap">${text}</span>`;
}
