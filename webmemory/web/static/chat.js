// One chat: its messages, what was done for each answer, and the field in which the next one is written.

import { Fragment, html, useEffect, useListener, useRef, useState } from "./html.js";
import { addTexts, t } from "./i18n.js";
import { useScroll } from "./history.js";
import { imageTypes, isImage, Pictures, sentTo, useImages, Waiting, wordsOf } from "./images.js";
import { keyInUse, may } from "./key.js";
import { chatPath, del, get, href, number, path, post, put, randomID } from "./lib.js";
import { Cited, Flags, Lanes, Spent } from "./lanes.js";
import { Confirm, CopyButton, Icon, IconButton, Loading, NoScope, ProblemNote, Time, useDrop, useLoad } from "./parts.js";
import { goesOn, runOf } from "./run.js";
import { keep, readKept } from "./storage.js";
import { useTalk } from "./talk.js";
import { Waits } from "./waits.js";

addTexts({
  "chat.open": ["Open the chat", "Открыть чат"],
  "chat.messages": ["Messages", "Сообщения"],
  "chat.placeholder": ["Write a message", "Напишите сообщение"],
  "chat.send": ["Send (Enter)", "Отправить (Enter)"],
  "chat.stop": ["Stop (Esc)", "Остановить (Esc)"],
  "chat.who": ["Who answers", "Кто отвечает"],
  "chat.image": ["Add images", "Добавить изображения"],
  "chat.attach": ["Give a file to this chat", "Дать файл этому чату"],
  "chat.drop": ["Drop images to send them, other files to give them to this chat",
    "Отпустите изображения, чтобы отправить их, другие файлы — чтобы дать их этому чату"],
  "chat.edit": ["Edit: takes back what follows", "Изменить: дальнейшее отменяется"],
  "chat.regenerate": ["Answer anew: takes back what follows", "Ответить заново: дальнейшее отменяется"],
  "chat.fork": ["Go on from here in a new chat", "Продолжить отсюда в новом чате"],
  "chat.run": ["Show the run", "Показать запуск"],
  "chat.save": ["Send", "Отправить"],
  "chat.newest": ["To the newest", "К новым"],
  "chat.older": ["Older messages", "Более ранние сообщения"],
  "chat.working": ["The answer is being made", "Ответ готовится"],
  "chat.thinking": ["thinking", "думает"],
  "chat.partial": ["stopped early", "прерван"],
  "chat.diverged": ["answered from another transcript", "ответ по другой переписке"],
  "chat.later": ["Set aside the later messages?", "Отложить более поздние сообщения?"],
  "chat.laterText": ["{n} messages after this exchange are set aside. You can restore them for 24 hours.",
    "Сообщений после этого обмена: {n}. Они будут отложены, их можно вернуть в течение 24 часов."],
  "chat.laterButton": ["Set aside", "Отложить"],
  "chat.failed": ["There is no answer.", "Ответа нет."],
  "chat.you": ["You", "Вы"],
  "chat.answered": ["Answer:", "Ответ:"],
  "chat.stale": ["Redis cannot be reached. This is what was known before.",
    "Redis недоступен. Показано то, что было известно раньше."],
  "chat.setaside": ["What was taken back can be put back for 24 hours:",
    "Отменённое можно вернуть в течение 24 часов:"],
  "chat.since": ["Somebody has written here since. Look at what was said, and try again.",
    "Здесь успели написать. Посмотрите, что сказано, и повторите."],
  "chat.busy": ["The chat is busy with another message. Wait for its answer, or stop it.",
    "Чат занят другим сообщением. Дождитесь ответа или остановите его."],
  "chat.draining": ["The service is shutting down or restarting. Your text is still here; send it again in a moment.",
    "Сервис останавливается или перезапускается. Текст сохранён; отправьте его чуть позже."],
  "chat.redis": ["Redis is away, so nothing can be remembered. Your text is still here; send it when Redis is back.",
    "Redis недоступен, запомнить ничего нельзя. Текст сохранён; отправьте его, когда Redis вернётся."],
  "file.sending": ["sending", "отправляется"],
  "file.remove": ["Take {name} away from this chat", "Убрать {name} из чата"],
  "file.list": ["Files of this chat", "Файлы этого чата"],
  "welcome.title": ["What should be remembered?", "Что запомнить?"],
  "welcome.text": ["Type below, or try one of these. Each works with the offline model too.",
    "Напишите внизу или попробуйте пример. Каждый работает и с офлайн-моделью."],
  "welcome.first": ["Tell the analytic subagent that my name is Aliya, then ask it what my name is",
    "Скажи субагенту analytic, что меня зовут Алия, а потом спроси его, как меня зовут"],
  "welcome.second": ["Remember: my locker number is 12", "Запомни, что код от двери 4455"],
  "welcome.third": ["Ask the analytic subagent to calculate 3*7", "Попроси субагента analytic посчитать 3*7"],
  "welcome.file": ["Or give it a file, by the clip or by dropping it here, and ask what it says.",
    "Или дайте файл, скрепкой или перетащив его сюда, и спросите, что в нём."],
});

// advice is what to do about a problem, where that can be said.
const advice = { messages_since: "chat.since", chat_busy: "chat.busy",
  shutting_down: "chat.draining", draining: "chat.draining",
  memory_unavailable: "chat.redis" };

// Chat shows a chat; changed is called when a run begins or ends.
export function Chat({ chat, changed }) {
  const talk = useTalk(chat, changed);
  const { history, run } = talk;
  const { page } = history;
  const scroll = useScroll(page, { ...history, changes: [run, talk.problem] });
  const [tookBack, setTookBack] = useState(false);
  const [draft, setDraft] = useKept("sessionStorage", "mneme.draft." + chat);
  const who = useWho(chat);
  const files = useFiles(chat);
  const images = useImages(chat);

  // say posts a text, or with at and last puts it in the place of a message; what is refused is not lost.
  const edits = useRef(new Map());
  const say = async (text, at, last, pictures = [], pasted = undefined) => {
    scroll.atEnd.current = true;
    edits.current.clear();
    setTookBack(at !== undefined);
    try {
      if (page?.to < page?.total) await history.load();
      await talk.say(text, who.agent, at, last, pictures.map((p) => p.url), pasted);
    } catch (err) {
      setTookBack(false);
      if (err.status === 502) return; // it is in the history
      if (at === undefined) {
        setDraft((d) => d || text);
        images.restore(pictures);
      } else edits.current.set(at, text);
    }
  };
  const fork = async (at) => {
    const as = randomID().slice(0, 12);
    await post(chatPath(chat, "", "fork"), { as, at });
    location.hash = href("chats", as);
  };
  // give takes files: images go with the next message, others are given to the chat.
  const give = (list) => {
    const pictures = may("chat") ? [...list].filter(isImage) : [];
    images.add(pictures);
    if (may("documents")) files.add([...list].filter((f) => !pictures.includes(f)));
  };
  const { over, drop } = useDrop(give, may("documents") || may("chat"));
  const empty = page && page.total === 0 && !run;
  const shown = page ? page.messages.map((message, i) => ({ message, at: page.from + i })).filter(({ message, at }) =>
    !(run?.hideFrom <= at) && !(run?.run_id && runOf(message) === run.run_id)) : [];
  const blind = Boolean(history.problem?.scope); // the key may talk here, and not read what was said before
  const atTail = page ? page.to >= page.total : blind;
  return html`<section class=${"chat" + (over ? " over" : "")} ...${drop}>
    <div class="page-body talk" ref=${scroll.ref} onScroll=${scroll.onScroll} tabindex="0" role="region"
      aria-label=${t("chat.messages")}>
      ${page?.stale ? html`<p class="hint">${t("chat.stale")}</p>` : null}
      ${page?.from > 0 ? html`<div class="center"><button type="button" class="quiet" onClick=${history.older}>
        ${t("chat.older")}</button></div>` : null}
      ${empty ? html`<${Welcome} use=${say} />` : null}
      ${!page && history.loading ? html`<${Loading} />` : null}
      ${shown.map(({ message, at }) => html`<${Message} key=${at} at=${at} chat=${chat} message=${message}
        known=${talk.known}
        busy=${talk.working} say=${say} fork=${fork} edits=${edits.current} history=${page} />`)}
      ${run && atTail ? html`<${Live} chat=${chat} run=${run} onAnswer=${talk.answer} />` : null}
      <${ProblemNote} problem=${history.problem} retry=${() => history.load().catch(() => {})} />
      ${talk.problem && (may("chat") || !talk.problem.scope) ? html`<${ProblemNote} problem=${talk.problem}>
        ${advice[talk.problem.code] ? html`<div>${t(advice[talk.problem.code])}</div>` : null}<//>` : null}
      ${tookBack && !run && !talk.problem ? html`<p class="soft small center">${t("chat.setaside")} <a
        href=${href("memory", chat)}>${t("view.memory")}</a></p>` : null}
      ${page && !atTail ? html`<button type="button" class="button newest"
        onClick=${() => history.load().then(scroll.toEnd)}><${Icon} name="down" />${t("chat.newest")}</button>` : null}
    </div>
    <${Announcer} run=${run} last=${page?.messages.at(-1)} known=${talk.known} />
    <${Files} files=${files} />
    ${may("chat") ? html`<${Composer} who=${who} draft=${draft} setDraft=${setDraft} working=${talk.working}
      ready=${(Boolean(page) || blind) && !files.sending} say=${say} stop=${talk.stop} give=${give}
      images=${images} />` :
      html`<div class="composer-place"><${NoScope} scope="chat" /></div>`}
    ${over ? html`<div class="drop-note"><${Icon} name="upload" />${t("chat.drop")}</div>` : null}
  </section>`;
}

function Welcome({ use }) {
  const examples = ["welcome.first", "welcome.second", "welcome.third"];
  return html`<div class="welcome"><h2>${t("welcome.title")}</h2><p class="soft">${t("welcome.text")}</p>
    <ul class="plain-list stack tight">${examples.map((key) => html`<li key=${key}>
      <button type="button" class="example" onClick=${() => use(t(key))}>${t(key)}<${Icon} name="send" /></button>
        </li>`)}</ul>
    <p class="soft small">${t("welcome.file")}</p></div>`;
}

function Message({ chat, message, at, known, busy, say, fork, edits, history }) {
  const [editing, setEditing] = useState(null); // the chat's last message when that began
  const [problem, setProblem] = useState(null);
  const [pending, setPending] = useState(null); // an action that sets later exchanges aside, until it is confirmed
  const mine = message.role === "user";
  const pencil = useRef();
  const stopEditing = () => {
    setEditing(null);
    setTimeout(() => pencil.current?.focus()); // once it is there again
  };
  const last = history.messages.at(-1).id ?? "";
  // again posts a message of the user once more, with the images that went with it as long as they are here.
  const again = (m, place, text, before) => say(text ?? sayable(m), place, before, sentTo(runOf(m)).map((url) => ({ url })));
  const next = history.messages.findIndex((m, i) => m.role === "user" && history.from + i > at);
  const later = next < 0 ? 0 : history.messages.length - next;
  const confirmed = (act) => (later ? setPending(() => act) : act());
  const question = pending && html`<${Confirm} title=${t("chat.later")} button=${t("chat.laterButton")}
    act=${() => (setPending(null), pending())} onClose=${() => setPending(null)}>
    <p>${t("chat.laterText", { n: number(later) })}</p><//>`;
  if (mine) {
    return html`<article class="message user" data-at=${at} aria-label=${t("chat.you")}>
      ${editing !== null ? html`<${Editor} text=${edits.get(at) ?? sayable(message)} onDone=${(text) => {
        if (text) edits.set(at, text);
        stopEditing();
        if (text) confirmed(() => again(message, at, text, editing));
      }} />` : html`<${Fragment}><${Said} text=${message.content} images=${message.images}
        urls=${sentTo(runOf(message))} />
      <div class="tools"><${Time} at=${message.timestamp} />
        <${CopyButton} text=${wordsOf(message.content, message.images)} />
        <${IconButton} icon="edit" button=${pencil} label=${t("chat.edit")} disabled=${busy}
          onClick=${() => setEditing(last)} />
        ${message.metadata?.transcript_diverged ? html`<span class="badge">${t("chat.diverged")}</span>` : null}
      </div><//>`}${question}
    </article>`;
  }
  const made = runOf(message);
  const run = known.get(made);
  const asked = () => {
    const before = history.messages.slice(0, at - history.from).findLastIndex((m) => m.role === "user");
    if (before >= 0) again(history.messages[before], history.from + before, undefined, last);
  };
  return html`<article class="message" data-at=${at} aria-label=${t("role.assistant")}>
    ${run ? html`<${Lanes} chat=${chat} run=${run} />` : null}
    ${failed(message) || (message.partial && run?.error) ? html`<${Failure} message=${message} run=${run}
      retry=${busy ? undefined : () => confirmed(asked)} />` :
      html`<${Cited} text=${message.content} citations=${run?.citations} />`}
    <${Flags} flags=${run?.flags} />
    <${ProblemNote} problem=${problem} />
    <div class="tools">${message.partial || message.failure === stopped ? html`<span class="badge warn">${t("chat.partial")}</span>` : null}
      <${Time} at=${message.timestamp} />
      ${run ? html`<${Spent} run=${run} />` : null}<${CopyButton} text=${message.content} />
      <${IconButton} icon="refresh" label=${t("chat.regenerate")} disabled=${busy} onClick=${() => confirmed(asked)} />
      ${message.id ? html`<${IconButton} icon="fork" label=${t("chat.fork")}
        onClick=${() => fork(message.id).catch(setProblem)} />` : null}
      ${made ? html`<${IconButton} icon="runs" href=${href("runs", chat, made)} label=${t("chat.run")} />` : null}</div>
    ${question}
  </article>`;
}

// sayable is what a message of the user says when it is said again. Where its images are not here, its text tells that
// they were there.
const sayable = (m) => (sentTo(runOf(m)).length ? wordsOf(m.content, m.images) : m.content);

// Said is what a person wrote, and the images that went with it.
function Said({ text, images, urls }) {
  const words = wordsOf(text, images);
  return html`<${Fragment}>${words ? html`<div class="bubble break">${words}</div>` : null}
    <${Pictures} images=${images} urls=${urls} /><//>`;
}

// The failure of a run that was stopped before the first word of its answer.
const stopped = "stopped";

const failed = (message) => message.failure && message.failure !== stopped;

const failureOf = (run) => run?.error?.message ?? t("chat.failed");

// Failure is a message that stands for an answer, or an answer that was cut short.
function Failure({ message, run, retry }) {
  const code = run?.error?.code ?? message.failure;
  return html`<${Fragment}>${message.partial ? html`<${Cited} text=${message.content}
    citations=${run?.citations} />` : null}
    <${ProblemNote} problem=${{ message: failureOf(run), code }} retry=${retry} /><//>`;
}

// Live is the run that goes on or waits: what was asked, what is done for it, and the answer as far as it has come.
function Live({ chat, run, onAnswer }) {
  const working = run.outcome === "";
  return html`<${Fragment}>
    ${run.message !== undefined ? html`<article class="message user" aria-label=${t("chat.you")}>
      <${Said} text=${run.message} images=${run.images} urls=${run.sent ?? sentTo(run.run_id)} /></article>` : null}
    <article class="message" aria-label=${t("role.assistant")} aria-busy=${working}>
      <${Lanes} chat=${chat} run=${run} />
      ${run.content ? html`<div class=${working && !run.answered ? "writing" : ""}><${Cited} text=${run.content}
        citations=${run.citations} /></div>` :
        working ? html`<p class="soft"><span class="pulse"></span> ${t("chat.thinking")}</p>` : null}
      ${run.error ? html`<${ProblemNote} problem=${run.error} />` : null}
      ${run.waits.length ? html`<${Waits} key=${run.waits.map((w) => w.id).join()} waits=${run.waits}
        onAnswer=${onAnswer} />` : null}
    </article><//>`;
}

// Announcer tells those who do not see the page that an answer is made, and the answer once it is whole.
function Announcer({ run, last, known }) {
  const was = useRef("");
  const [text, setText] = useState("");
  const state = run && goesOn(run) ? "chat.working" : run?.waits.length ? "waits.title" : "";
  useEffect(() => {
    if (state) setText(t(state));
    else if (was.current) setText(!last ? "" : failed(last) ? failureOf(known.get(runOf(last))) :
      `${t("chat.answered")} ${last.content}`);
    was.current = state;
  }, [state, last?.id]);
  return html`<div class="visually-hidden" role="status" aria-live="polite">${text}</div>`;
}

function Editor({ text, onDone }) {
  const [value, setValue] = useState(text);
  const field = useRef();
  useEffect(() => field.current.focus(), []);
  const key = (e) => {
    if (e.key === "Escape") (e.stopPropagation(), onDone());
    if (sends(e)) (e.preventDefault(), onDone(value.trim()));
  };
  return html`<div class="editor"><textarea class="field" ref=${field}
    rows=${Math.min(12, value.split("\n").length + 1)} value=${value}
      aria-label=${t("chat.edit")} onInput=${(e) => setValue(e.target.value)} onKeyDown=${key}></textarea>
    <div class="row end"><button type="button" class="button" onClick=${() => onDone()}>${t("cancel")}</button>
      <button type="button" class="button primary" disabled=${!value.trim()} onClick=${() => onDone(value.trim())}>
        ${t("chat.save")}</button></div></div>`;
}

// sends says whether a key sends: Enter, unless a line begins by it or letters are composed.
const sends = (e) => e.key === "Enter" && !e.shiftKey && !e.isComposing;

// maxSpans is the largest number of spans that the service accepts.
const maxSpans = 1000;

// pastedIn returns the spans of pasted texts in a message, in code points. It returns undefined if they are unknown or more
// than maxSpans.
export function pastedIn(message, pastes) {
  if (!pastes) return undefined;
  const spans = [];
  for (const text of new Set(pastes.map((paste) => paste.replace(/\r\n?/g, "\n").trim()))) {
    if (!text) continue;
    let end = 0, points = 0; // behind the last place found
    for (let at; (at = message.indexOf(text, end)) >= 0; end = at + text.length) {
      points += [...message.slice(end, at)].length;
      if (spans.push([points, points += [...text].length]) > maxSpans) return undefined;
    }
    if (!end) return undefined; // it was changed
  }
  return spans;
}

function Composer({ who, draft, setDraft, working, ready, say, stop, give, images }) {
  const field = useRef();
  const picker = useRef();
  const pastes = useRef([]); // the texts that were pasted into the draft; null if not all are known
  const typed = useRef(""); // the draft as it was typed here, and not put there by a button or a reload
  useEffect(() => {
    if (matchMedia("(hover: hover)").matches) field.current.focus({ preventScroll: true });
  }, []);
  useEffect(() => {
    field.current.style.height = "auto";
    field.current.style.height = Math.min(field.current.scrollHeight + 2, 240) + "px";
  }, [draft]);
  useListener("keydown", (e) => {
    if (e.key === "Escape" && !e.defaultPrevented && !document.querySelector("dialog[open]")) stop();
  }, working);
  const sendable = ready && !images.reading && Boolean(draft.trim() || images.all.length);
  const submit = (e) => {
    e.preventDefault();
    if (!sendable || working) return;
    setDraft("");
    say(draft.trim(), undefined, undefined, images.take(), pastedIn(draft.trim(), typed.current === draft ? pastes.current : null));
    pastes.current = [];
    typed.current = "";
  };
  const change = (e) => {
    if (e.inputType === "insertFromDrop" || typed.current !== draft) pastes.current = null;
    typed.current = e.target.value;
    setDraft(e.target.value);
  };
  const paste = (e) => {
    const { files, types } = e.clipboardData;
    pastes.current?.push(e.clipboardData.getData("text/plain"));
    if (!files.length || types.includes("text/plain")) return; // a text may come with a picture of it
    e.preventDefault();
    give(files);
  };
  const choose = (accept) => {
    picker.current.accept = accept;
    picker.current.click();
  };
  const removed = (key) => {
    images.remove(key);
    field.current.focus();
  };
  return html`<${Fragment}><${Waiting} images=${images} onRemove=${removed} /><form class="composer" onSubmit=${submit}>
    <input type="file" multiple hidden ref=${picker}
      onChange=${(e) => (give(e.target.files), (e.target.value = ""))} />
    <textarea ref=${field} class="grow" rows="1" value=${draft} placeholder=${t("chat.placeholder")}
      aria-label=${t("chat.placeholder")}
      onInput=${change} onKeyDown=${(e) => sends(e) && submit(e)}
      onPaste=${paste}></textarea>
    <${IconButton} icon="image" label=${t("chat.image")} onClick=${() => choose(imageTypes)} />
    ${may("documents") ? html`<${IconButton} icon="clip" label=${t("chat.attach")} onClick=${() => choose("")} />` : null}
    ${who.all.length > 1 ? html`<select value=${who.agent} aria-label=${t("chat.who")} title=${t("chat.who")}
      onChange=${(e) => who.choose(e.target.value)}>${who.all.map((name) => html`<option key=${name} value=${name}>
        ${name}</option>`)}</select>` : null}
    ${working ? html`<${IconButton} icon="stop" class="primary" label=${t("chat.stop")} onClick=${stop} />` :
      html`<${IconButton} icon="send" type="submit" class="primary" disabled=${!sendable} label=${t("chat.send")} />`}
  </form><//>`;
}

// useKept is a text that the browser keeps in one of its stores, so that it outlives a reload.
function useKept(store, key) {
  const read = () => readKept(store, key) ?? "";
  const [text, setText] = useState(read);
  const from = useRef(store);
  if (from.current !== store) { // a key has come into use: what was kept without one is not this store's
    from.current = store;
    setText(read());
  }
  useEffect(() => keep(store, key, text), [text]);
  return [text, setText];
}

const master = "master";

// agents are the names of all who can be talked to, the master first; they are asked for once.
let agents;
const readAgents = () => agents ??= get(path("models")).then(
  ({ data }) => data.map((model) => model.id.split("/")[1] ?? master), (problem) => {
    agents = undefined; // it is asked for again with another key
    throw problem;
  });

// useWho is {agent, all, choose}: who answers in a chat, of all who can. What was chosen goes with the tab where a
// key is in use: the names of chats are its tenant's.
function useWho(chat) {
  const [chosen, choose] = useKept(keyInUse() ? "sessionStorage" : "localStorage", "mneme.agent." + chat);
  const all = useLoad(readAgents, []).value ?? [];
  const gone = all.length && !all.includes(chosen);
  return { agent: gone ? master : chosen || master, all, choose: (name) => choose(name === master ? "" : name) };
}

// useFiles are the documents of a chat, and files on their way there.
function useFiles(chat) {
  const { value, problem, reload } = useLoad(async (signal) =>
    (may("documents") ? get(chatPath(chat, "", "documents"), {}, { signal }) : null), [chat]);
  const [sent, setSent] = useState([]);
  const note = (name, change) => setSent((all) => all.map((f) => (f.name === name ? { ...f, ...change } : f)));
  const sendFile = async (file) => {
    setSent((all) => [...all.filter((f) => f.name !== file.name), { name: file.name, sending: true }]);
    // A document is sent as a file, which its name tells, and no page may send what a form could.
    const kind = ["", "application/json", "text/plain"].includes(file.type) ? "application/octet-stream" : file.type;
    try {
      const got = await put(path("chats", chat, "documents", file.name), file, { headers: { "Content-Type": kind } });
      if (got?.error) throw got.error;
      setSent((all) => all.filter((f) => f.name !== file.name));
    } catch (problem) {
      note(file.name, { sending: false, problem });
    }
    reload();
  };
  return { sent, sending: sent.some((f) => f.sending), // a message that follows is to be answered from them
    kept: value?.documents ?? [],
    problem: problem?.code === "documents_off" || problem?.scope ? null : problem,
    add: (list) => [...list].forEach(sendFile),
    remove: (id) => del(path("chats", chat, "documents", id)).then(reload, reload),
    forget: (name) => setSent((all) => all.filter((f) => f.name !== name)) };
}

function Files({ files }) {
  const kept = files.kept.filter((d) => !files.sent.some((f) => f.name === d.id));
  if (!kept.length && !files.sent.length) return null;
  return html`<ul class="plain-list composer-place files" aria-label=${t("file.list")} aria-live="polite">
    ${kept.map((d) => html`<li key=${d.id} class="file"><${Icon} name="file" /><span class="cut" title=${d.id}>
      ${d.title || d.id}</span>
      <span class="soft small nowrap">${t("documents.passages", { n: d.passages, count: number(d.passages) })}</span>
      <${IconButton} icon="close" label=${t("file.remove", { name: d.id })} onClick=${() => files.remove(d.id)} />
        </li>`)}
    ${files.sent.map((f) => html`<li key=${f.name} class="file"><${Icon} name=${f.problem ? "warn" : "file"} /><span
      class="cut">${f.name}</span>
      ${f.problem ? html`<span class="small warn-text">${f.problem.message}</span><${IconButton} icon="close"
        label=${t("close")} onClick=${() => files.forget(f.name)} />` :
        html`<span class="soft small"><span class="pulse"></span> ${t("file.sending")}</span>`}</li>`)}
  </ul>`;
}
