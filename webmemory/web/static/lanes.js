// What went on in a run: a lane for each delegation, the tools and what was recalled.

import { Fragment, html, useState } from "./html.js";
import { addTexts, known, language, t } from "./i18n.js";
import { findMessage } from "./history.js";
import { duration, number, oneLine, plainLine, pretty } from "./lib.js";
import { Markdown } from "./markdown.js";
import { Fold, ProblemNote, Time, useLoad } from "./parts.js";

addTexts({
  "lanes.label": ["What was done for this answer", "Что делалось для ответа"],
  "lane.task": ["Task", "Задание"],
  "lane.answer": ["Answer", "Ответ"],
  "lane.missing": ["Not in the documents:", "В документах нет:"],
  "lane.flags": ["Noticed by the check:", "Замечено при проверке:"],
  "lane.tokens": ["{in} tokens in, {out} out", "{in} токенов на входе, {out} на выходе"],
  "record.calls": [{ one: "{n} model call", other: "{n} model calls" },
    { one: "{n} вызов модели", few: "{n} вызова модели", other: "{n} вызовов модели" }],
  "flag.unknown_marker": ["a source that does not exist was named", "назван источник, которого нет"],
  "flag.many_markers": ["too many sources for one sentence", "слишком много источников у одного предложения"],
  "flag.unverified": ["not in the sources", "нет в источниках"],
  "flag.bad_quote": ["not what the source says", "в источнике сказано не так"],
  "flag.misattributed": ["from another source than the one named", "из другого источника, чем указан"],
  "flag.removed_link": ["a link was taken out", "ссылка убрана"],
  "flag.uncited": ["no source is named", "источник не указан"],
  "status.busy": ["at work", "работает"],
  "status.completed": ["done", "готово"],
  "status.failed": ["failed", "ошибка"],
  "status.stopped": ["stopped", "остановлен"],
  "status.max_steps": ["out of steps", "шаги кончились"],
  "status.running": ["running", "выполняется"],
  "status.done": ["done", "готово"],
  "status.waiting": ["waits", "ждёт"],
  "tool.arguments": ["Arguments", "Аргументы"],
  "tool.result": ["Result", "Результат"],
  "recalled.title": [{ one: "Recalled {n} message", other: "Recalled {n} messages" },
    { one: "Вспомнил {n} сообщение", few: "Вспомнил {n} сообщения", other: "Вспомнил {n} сообщений" }],
  "recalled.gone": ["This message is not there any more.", "Этого сообщения больше нет."],
  "sources.title": [{ one: "{n} source", other: "{n} sources" },
    { one: "{n} источник", few: "{n} источника", other: "{n} источников" }],
  "source.page": ["page {n}", "стр. {n}"],
  "role.user": ["user", "пользователь"],
  "role.assistant": ["assistant", "ассистент"],
  "role.tool": ["tool", "инструмент"],
});

// hue is the class of an agent's colour, the same wherever it is named.
function hue(name) {
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
  return "hue-" + (sum % 6);
}

export const AgentName = ({ name }) => html`<span class=${"agent " + hue(name)}>${name}</span>`;

const badges = { busy: "accent", failed: "danger", stopped: "warn", max_steps: "warn", waiting: "warn" };

export const Status = ({ status, text = t("status." + status) }) =>
  status ? html`<span class=${"badge " + (badges[status] ?? "")}>${text}</span>` : null;

// Lanes shows what a RunView has beside its answer.
export function Lanes({ chat, run }) {
  const waiting = new Set(run.waits?.map((w) => w.call_id));
  const nothing = !run.delegations.length && !run.tools.length && !run.recalled.length;
  return nothing ? null : html`<div class="lanes" role="group" aria-label=${t("lanes.label")}>
    <${RecalledList} chat=${chat} subagent="" recalled=${run.recalled} />
    ${run.tools.map((tool, i) => html`<${Tool} key=${i} tool=${tool} />`)}
    ${run.delegations.map((d) => html`<${Lane} key=${d.call_id} chat=${chat} lane=${d} over=${run.outcome !== ""}
      waits=${waiting.has(d.call_id)} />`)}
  </div>`;
}

function Lane({ chat, lane, over, waits }) {
  const working = !lane.status && !waits && !over;
  const last = lane.tools.findLast((c) => c.status === "running");
  const doing = working && last ? `${last.name} ${toolArguments(last)}` : "";
  const said = plainLine(lane.error?.message || lane.content || doing, 200);
  const state = working ? html`<span class="badge accent"><span class="pulse"></span>${t("status.busy")}</span>` :
    html`<${Status} status=${waits ? "waiting" : lane.status} />`;
  const summary = html`<span class="lane-summary">
    <span class="row"><${AgentName} name=${lane.subagent} /><span class="cut grow soft">
      ${oneLine(lane.task, 200)}</span>
      ${lane.recalled.length ? html`<span class="badge">
        ${t("recalled.title", { n: lane.recalled.length })}</span>` : null}${state}</span>
    ${said ? html`<span class="lane-said cut">${said}</span>` : null}</span>`;
  return html`<${Fold} class=${"lane " + hue(lane.subagent)} summary=${summary}>
    <dl class="facts">
      <dt>${t("lane.task")}</dt><dd><pre class="plain">${lane.task}</pre></dd>
      ${lane.recalled.length || lane.tools.length ? html`<${Fragment}><dt></dt><dd class="stack tight">
        <${RecalledList} chat=${chat} subagent=${lane.subagent} recalled=${lane.recalled} open />
        ${lane.tools.map((tool, i) => html`<${Tool} key=${tool.id || i} tool=${tool} />`)}</dd><//>` : null}
      <dt>${t("lane.answer")}</dt><dd class="stack tight">
        ${lane.error ? null : html`<${Cited} text=${lane.content}
          citations=${lane.answer?.citations ?? lane.citations} />`}
        ${lane.answer?.missing?.length ? html`<div class="small">
          ${t("lane.missing")} ${lane.answer.missing.join("; ")}</div>` : null}
        <${Flags} flags=${lane.answer?.flags} />
        <${ProblemNote} problem=${lane.error} />
        <${Spent} run=${lane} /></dd>
    </dl>
  <//>`;
}

const toolArguments = (tool) =>
  (typeof tool.arguments === "string" ? tool.arguments : JSON.stringify(tool.arguments ?? tool.detail ?? ""));

// dollars shows millionths of a dollar, of less than one with the two digits that say most.
export const dollars = (micros) => new Intl.NumberFormat(language(), { style: "currency", currency: "USD",
  currencyDisplay: "narrowSymbol", ...(micros < 1e6 ? { maximumSignificantDigits: 2 } : {}) }).format(micros / 1e6);

// recorded says what a run's record has of a run whose steps are not known any more.
export const recorded = (record, { recalled, calls }) => [
  record?.recalled && !recalled && t("recalled.title", { n: record.recalled }),
  record?.calls && !calls && t("record.calls", { n: record.calls })].filter(Boolean);

// Spent is how long something took, how many tokens, what they cost if that is known, and who answered.
export function Spent({ run }) {
  const parts = [];
  if (run.started && run.ended) parts.push(duration(run.ended - run.started));
  if (run.usage?.input_tokens) {
    parts.push(t("lane.tokens", { in: number(run.usage.input_tokens), out: number(run.usage.output_tokens) }));
  }
  if (run.usage?.cost_micro_usd > 0) parts.push(dollars(run.usage.cost_micro_usd));
  if (run.record) parts.push(...recorded(run.record, { recalled: run.recalled.length, calls: true }));
  if (run.record?.model) parts.push(run.record.model);
  return parts.length ? html`<span class="soft small">${parts.join(" · ")}</span>` : null;
}

// Tool is a call of a tool: its arguments and its result.
export function Tool({ tool }) {
  const args = toolArguments(tool);
  const summary = html`<span class="row grow cut"><code>${tool.name}</code><span class="cut grow soft small">
    ${oneLine(args, 160)}</span>
    <${Status} status=${tool.status} /></span>`;
  return html`<${Fold} class="tool" summary=${summary}>
    <div class="soft small">${t("tool.arguments")}</div><pre class="code wrap">${pretty(args)}</pre>
    ${tool.result || tool.detail ? html`<div class="soft small">${t("tool.result")}</div>
      <pre class="code wrap">${pretty(tool.result || tool.detail)}</pre>` : null}
  <//>`;
}

function RecalledList({ chat, subagent, recalled, open }) {
  if (!recalled.length) return null;
  const once = [...new Map(recalled.map((m) => [m.id, m])).values()];
  return html`<${Fold} class="recalled" open=${open} summary=${t("recalled.title", { n: once.length })}>
    <ul class="plain-list stack tight">${once.map((m) => html`<${RecalledMessage} key=${m.id} chat=${chat}
      subagent=${subagent} at=${m} />`)}</ul>
  <//>`;
}

function RecalledMessage({ chat, subagent, at }) {
  const { value, problem, loading } = useLoad(() => findMessage(chat, subagent, at), [chat, subagent, at.id]);
  const said = value?.message;
  return html`<li class="quote"><div class="row small soft"><${Time} at=${at.ts} />
    ${said ? t("role." + said.role) : null}
    ${value?.subagent ? html`<${AgentName} name=${value.subagent} />` : null}</div>
    ${said ? html`<div class="break clamp" tabindex="0">${said.content}</div>` : null}
    ${!said && !loading ? (problem ? html`<${ProblemNote} problem=${problem} />` : html`<div class="soft">
      ${t("recalled.gone")}</div>`) : null}</li>`;
}

export const Flags = ({ flags }) =>
  flags?.length ? html`<div class="small warn-text">
    ${t("lane.flags")} ${flags.map((f) => `${known("flag.", f.kind)}: ${f.text}`).join("; ")}</div>` : null;

// Cited is a text whose markers [n] lead to the passages below it.
export function Cited({ text, citations }) {
  const [shown, setShown] = useState(0);
  const known = new Set(citations?.map((c) => c.n));
  const cite = (n) => known.has(n) ? html`<button type="button" class="cite" aria-expanded=${shown === n}
    onClick=${() => setShown(shown === n ? 0 : n)}>${n}</button>` : undefined;
  const quote = citations?.find((c) => c.n === shown);
  return html`<${Fragment}><${Markdown} text=${text} cite=${cite} inputs=${[...known, shown].join()} />
    ${quote ? html`<${Citation} citation=${quote} />` : null}
    ${citations?.length ? html`<${Fold} class="sources" summary=${t("sources.title", { n: citations.length })}>
      <div class="stack tight">${citations.map((c) => html`<${Citation} key=${c.n} citation=${c} />`)}</div>
        <//>` : null}<//>`;
}

function Citation({ citation: c }) {
  const page = c.page && t("source.page", { n: c.page });
  const where = [c.source !== c.title && c.source, c.section, page].filter(Boolean);
  return html`<figure class="quote"><figcaption class="small"><span class="cite">${c.n}</span> <b>
    ${c.title || c.doc_id}</b>
    <span class="soft"> ${where.join(" · ")}</span></figcaption>${c.quote ? html`<blockquote class="break">
      ${c.quote}</blockquote>` : null}</figure>`;
}
