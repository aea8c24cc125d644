// The view Runs: the runs of a chat, and one as a list of its steps.

import { html } from "../html.js";
import { addTexts, known, t } from "../i18n.js";
import { wordsOf } from "../images.js";
import { chatPath, duration, href, number, oneLine, path, plainLine, pretty } from "../lib.js";
import { AgentName, dollars, recorded, Status } from "../lanes.js";
import { CopyButton, Empty, Fold, Icon, IconButton, Loading, ProblemNote, Time, useGet, usePoll } from "../parts.js";
import { BesideChats } from "./chats.js";

addTexts({
  "runs.choose": ["Choose a chat", "Выберите чат"],
  "runs.choose.how": ["A run is everything that answers one message: who worked on it, which models were called, how long it took.",
    "Запуск — всё, что отвечает на одно сообщение: кто работал, какие модели вызывались, сколько это длилось."],
  "runs.none": ["No run is kept of this chat", "Запусков этого чата не сохранилось"],
  "runs.kept": ["Each step is kept for 15 minutes after the end of a run; after that what the histories tell, and what it took.",
    "Каждый шаг хранится 15 минут после конца запуска; потом остаётся то, что есть в историях, и его цена."],
  "runs.unknown": ["Nothing is known of this run.", "Об этом запуске ничего не известно."],
  "runs.toChats": ["To the chats", "К чатам"],
  "runs.toRuns": ["To the runs", "К запускам"],
  "runs.steps": ["Steps", "Шаги"],
  "runs.tokens": ["{in} tokens in, {out} out", "токенов: {in} на входе, {out} на выходе"],
  "runs.cached": ["{n} cached", "{n} из кэша"],
  "runs.reasoning": ["{n} of thinking", "{n} на размышления"],
  "runs.estimated": ["partly estimated", "частично оценка"],
  "runs.attempts": [{ one: "{n} attempt", other: "{n} attempts" }, { one: "{n} попытка", few: "{n} попытки", other: "{n} попыток" }],
  "runs.delegations": [
    { one: "{n} delegation", other: "{n} delegations" },
    { one: "{n} поручение", few: "{n} поручения", other: "{n} поручений" },
  ],
  "runs.at": ["{at} after the start", "через {at} после начала"],
  "runs.goesOn": ["goes on", "идёт"],
  "runs.completed": ["completed", "завершён"],
  "runs.waiting": ["waits for somebody", "ждёт человека"],
  "runs.step.message": ["Message", "Сообщение"],
  "runs.step.model_call": ["Model call", "Вызов модели"],
  "runs.step.delegation": ["Delegation", "Поручение"],
  "runs.step.tool": ["Tool", "Инструмент"],
  "runs.step.recalled": ["Recalled", "Вспомнено"],
  "runs.step.wait": ["Wait", "Ожидание"],
  "runs.step.answer": ["Answer", "Ответ"],
  "runs.step.error": ["Error", "Ошибка"],
  "status.partial": ["in part", "частично"],
  "status.unanswered": ["not answered", "без ответа"],
  "status.approve": ["approved", "разрешено"],
  "status.deny": ["denied", "отказано"],
  "status.edit": ["approved with changes", "разрешено с правкой"],
  "runs.model": ["Model", "Модель"],
  "runs.backend": ["Backend", "Бэкенд"],
  "runs.input": ["Input", "Вход"],
  "runs.output": ["Output", "Выход"],
  "runs.mended": ["Made valid by", "Исправлено"],
  "runs.mend.thinking_restored": ["thinking put back", "размышления возвращены"],
  "runs.mend.thinking_stripped": ["thinking stripped", "размышления убраны"],
  "runs.mend.thinking_converted": ["thinking made text", "размышления стали текстом"],
  "runs.mend.thinking_placeholder": ["placeholder for thinking", "заглушка вместо размышлений"],
  "runs.mend.thinking_off": ["thinking off", "размышления выключены"],
  "runs.mend.reasoning_asked": ["thinking asked for", "размышления запрошены"],
  "runs.mend.history_rebuilt": ["history rebuilt", "история восстановлена"],
  "runs.mend.calls_closed": ["open calls closed", "незакрытые вызовы закрыты"],
  "runs.mend.results_moved": ["results moved", "результаты переставлены"],
  "runs.mend.results_orphaned": ["results without a call left out", "результаты без вызова убраны"],
  "runs.mend.results_doubled": ["doubled results left out", "повторные результаты убраны"],
  "runs.mend.tool_ids": ["ids of calls rewritten", "идентификаторы вызовов заменены"],
  "runs.mend.refused_thinking": ["thinking refused, tried again", "размышления отклонены, повтор"],
  "runs.mend.refused_parameter": ["parameter refused, tried again", "параметр отклонён, повтор"],
  "runs.mend.refused_length": ["length refused, tried again", "длина отклонена, повтор"],
  "runs.mend.refused_schema": ["schema refused, tried again", "схема отклонена, повтор"],
  "runs.mend.roles_changed": ["roles changed", "роли изменены"],
  "runs.mend.refused_role": ["role refused, tried again", "роль отклонена, повтор"],
});

// every is how often what goes on is looked at again, in milliseconds.
const every = 2000;

export const View = ({ path: [chat, run] }) => html`<${BesideChats} view="runs" chat=${chat} part=${run}
  hint=${html`<${Empty} title=${t("runs.choose")}><p>${t("runs.choose.how")}</p><//>`}
  show=${(title) => (run ? html`<${Steps} key=${run} chat=${chat} run=${run} />` :
    html`<${Runs} key=${chat} chat=${chat} title=${title} />`)} />`;

function Runs({ chat, title }) {
  const { value, problem, loading, reload } =
    useGet(chatPath(chat, "", "history"), { offset: -200, limit: 200, runs: true });
  const runs = Object.values(value?.runs ?? {}).sort((a, b) => b.started - a.started);
  usePoll(reload, every);
  const messages = new Map((value?.messages ?? []).filter((m) => m.role === "user").map((m) =>
    [m.id?.split(".")[0], wordsOf(m.content, m.images) || m.content]));
  return html`
    <header class="page-top">
      <${IconButton} icon="back" class="back" href=${href("runs")} label=${t("runs.toChats")} />
      <h1 class="grow cut" title=${chat}>${title}</h1>
      <a class="button" href=${href("chats", chat)}><${Icon} name="chat" />${t("chat.open")}</a>
    </header>
    <div class="page-body pad stack">
      <${ProblemNote} problem=${problem} retry=${reload} />
      ${loading && !value ? html`<${Loading} />` : null}
      ${value && !runs.length ? html`<${Empty} title=${t("runs.none")}><p>${t("runs.kept")}</p><//>` : null}
      ${runs.length ? html`<ul class="plain-list card rows">${runs.map((r) => html`<li key=${r.run_id}>
          <a class="entry" href=${href("runs", chat, r.run_id)}>
            <div class="row"><span class="grow cut">${oneLine(messages.get(r.run_id) ?? r.run_id)}</span><${Outcome} outcome=${r.outcome} /></div>
            <div class="row wrap small soft"><${Time} at=${r.started} />
              ${r.ended ? html`<span>${duration(r.ended - r.started)}</span>` : null}
              ${r.delegations.length ? html`<span>${t("runs.delegations", { n: r.delegations.length })}</span>` : null}
              <${Tokens} usage=${r.usage} /></div></a></li>`)}</ul>
        <p class="small soft">${t("runs.kept")}</p>` : null}
    </div>`;
}

const Outcome = ({ outcome }) => html`<${Status} status=${outcome || "busy"}
  text=${known(["stopped", "failed"].includes(outcome) ? "status." : "runs.", outcome || "goesOn")} />`;

function Tokens({ usage }) {
  if (!usage?.input_tokens && !usage?.output_tokens) return null;
  const parts = [
    usage.cached_tokens && t("runs.cached", { n: number(usage.cached_tokens) }),
    usage.reasoning_tokens && t("runs.reasoning", { n: number(usage.reasoning_tokens) }),
    usage.estimated && t("runs.estimated"),
  ].filter(Boolean);
  return html`<span>${t("runs.tokens", { in: number(usage.input_tokens), out: number(usage.output_tokens) })}${
    parts.length ? ` (${parts.join(", ")})` : ""}</span>`;
}

function Steps({ chat, run }) {
  const { value, problem, loading, reload } = useGet(path("chats", chat, "runs", run, "trace"));
  const over = value && !["", "waiting"].includes(value.outcome ?? "");
  usePoll(() => over || problem || reload(), every);
  const end = value && (value.ended || Math.max(value.started, ...value.steps.map((s) => s.ended || s.started)));
  return html`
    <header class="page-top">
      <${IconButton} icon="back" href=${href("runs", chat)} label=${t("runs.toRuns")} />
      <h1 class="grow cut mono">${run}</h1>
      <${CopyButton} text=${run} />
      <a class="button" href=${href("chats", chat)}><${Icon} name="chat" />${t("chat.open")}</a>
    </header>
    <div class="page-body pad stack">
      <${ProblemNote} problem=${problem} retry=${reload}>${problem?.status === 404 ? html`<div>${t("runs.unknown")} ${t("runs.kept")}</div>` : null}<//>
      ${loading && !value ? html`<${Loading} />` : null}
      ${value ? html`
        <div class="row wrap"><${Outcome} outcome=${value.outcome} /><${Time} at=${value.started} />
          <span>${duration(end - value.started)}</span><span class="soft"><${Tokens} usage=${value.usage} /></span>
          ${[value.usage.cost_micro_usd > 0 && dollars(value.usage.cost_micro_usd), ...recorded(value.record, {
            recalled: value.steps.some((s) => s.kind === "recalled"), calls: value.steps.some((s) => s.call) }),
            value.record?.model, value.record?.backend].filter(Boolean).map((v) => html`<span class="soft">${v}</span>`)}</div>
        <ol class="plain-list card steps" aria-label=${t("runs.steps")}>
          ${value.steps.map((s, i) => html`<${Step} key=${i} step=${s} from=${value.started} to=${end} />`)}
        </ol>` : null}
    </div>`;
}

const stepIcons = { message: "chat", model_call: "auto", delegation: "fork", tool: "edit", recalled: "memory", wait: "clock", answer: "check", error: "warn" };

// fine are the statuses that need no word.
const fine = ["completed", "done", "ok"];

// states are the statuses that have a word of their own; any other one is the code of a failure.
const states = ["stopped", "max_steps", "busy", "partial", "waiting", "unanswered", "approve", "deny", "edit"];

function Step({ step: s, from, to }) {
  const span = Math.max(to - from, 0.001);
  const place = { left: `${(100 * Math.max(0, s.started - from)) / span}%`, width: `${(100 * Math.max(0, (s.ended || s.started) - s.started)) / span}%` };
  const state = { running: "busy", canceled: "stopped" }[s.status] ?? s.status;
  const bad = !states.includes(state);
  const inside = s.call_id && s.kind !== "delegation";
  const head = html`<span class="step-head">
    <span class="kind"><${Icon} name=${stepIcons[s.kind] ?? "dots"} /><span>${known("runs.step.", s.kind)}</span></span>
    ${s.agent ? html`<${AgentName} name=${s.agent} />` : null}
    <span class="what break">${(s.kind === "answer" ? plainLine : oneLine)(s.call ? called(s) : s.title, 200)}</span>
    ${s.call ? html`<${CallBadges} call=${s.call} />` : null}
    ${s.status && s.kind !== "error" && !fine.includes(s.status) ? html`<span class=${"badge" + (bad ? " danger" : "")}
      title=${s.status}>${t("status." + (bad ? "failed" : state))}</span>` : null}
    <span class="end small soft nowrap" title=${t("runs.at", { at: duration(s.started - from) })}>
      ${s.ended > s.started ? duration(s.ended - s.started) : ""}</span>
    <span class="time-line" aria-hidden="true"><span class=${"bar " + s.kind} style=${place}></span></span>
  </span>`;
  const more = s.detail || s.call;
  return html`<li class=${"step" + (inside ? " inside" : "") + (s.kind === "error" ? " bad" : "")}>
    ${more ? html`<${Fold} summary=${head}>
      ${s.call ? html`<${Call} call=${s.call} />` : null}
      ${s.detail ? html`<pre class="wrap card pad">${readable(s.detail)}</pre>` : null}<//>`
      : html`<div class="fold-less">${head}</div>`}
  </li>`;
}

// readable is a detail with JSON laid out.
const readable = (detail) => (/^\s*[[{]/.test(detail) ? pretty(detail) : detail);

// called is which model was called and where, as far as the agent's name does not say it.
const called = ({ call, agent }) => [call.model !== agent && call.model, call.backend].filter(Boolean).join(" · ") || call.model;

const CallBadges = ({ call: c }) => html`
  ${c.attempts > 1 ? html`<span class="badge warn">${t("runs.attempts", { n: c.attempts })}</span>` : null}
  ${(c.mended ?? []).map((m) => html`<span key=${m} class="badge warn">${known("runs.mend.", m)}</span>`)}`;

function Call({ call: c }) {
  const u = c.usage ?? {};
  const facts = [
    ["runs.model", c.model],
    ["runs.backend", c.backend],
    ["runs.input", u.input_tokens && number(u.input_tokens) + (u.cached_tokens ? ` (${t("runs.cached", { n: number(u.cached_tokens) })})` : "")],
    ["runs.output", u.output_tokens && number(u.output_tokens) + (u.reasoning_tokens ? ` (${t("runs.reasoning", { n: number(u.reasoning_tokens) })})` : "")],
    ["runs.mended", c.mended?.map((m) => known("runs.mend.", m)).join(", ")],
  ];
  return html`<dl class="pairs">${facts.filter(([, v]) => v).map(([key, v]) =>
    html`<div key=${key}><dt>${t(key)}</dt><dd class="break">${v}</dd></div>`)}</dl>`;
}
