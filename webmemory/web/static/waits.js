// What a run waits for, to be answered in its place: a yes, an answer to a question, a tool's result.

import { html, useState } from "./html.js";
import { may } from "./key.js";
import { addTexts, t } from "./i18n.js";
import { pretty } from "./lib.js";
import { AgentName } from "./lanes.js";
import { NoScope, ProblemNote, Time, useWork } from "./parts.js";

addTexts({
  "waits.title": ["The run waits for you", "Запуск ждёт вас"],
  "waits.until": ["until", "до"],
  "waits.approve": ["Yes, do it", "Да, выполнить"],
  "waits.deny": ["No", "Нет"],
  "waits.edit": ["Change the arguments", "Изменить аргументы"],
  "waits.reason": ["Why not (the model is told)", "Почему нет (модель это узнает)"],
  "waits.result": ["The tool's result, as JSON", "Результат инструмента, JSON"],
  "waits.answer": ["The answer, as JSON", "Ответ, JSON"],
  "waits.arguments": ["Arguments, as JSON", "Аргументы, JSON"],
  "waits.send": ["Answer", "Ответить"],
  "waits.fill": ["Fill in", "Заполнить"],
  "waits.remember": ["A yes holds for {tool} in this chat from then on.",
    "«Да» действует для {tool} в этом чате и дальше."],
  "waits.json": ["This is not JSON: {why}", "Это не JSON: {why}"],
  "waits.empty": ["Please choose", "Выберите"],
  "kind.approval": ["wants to call", "хочет вызвать"],
  "kind.question": ["asks", "спрашивает"],
  "kind.client_result": ["waits for the result of", "ждёт результата"],
});

// Waits asks for an answer to each wait of a run; all go at once to onAnswer, a list of decisions.
export function Waits({ waits, onAnswer }) {
  const [answers, setAnswers] = useState({});
  const { work, busy, problem } = useWork();
  const set = (id, change) => setAnswers((a) => ({ ...a, [id]: { decision: "", ...a[id], ...change } }));
  const ready = waits.every((w) => answers[w.id]?.decision);
  const send = (e) => {
    e.preventDefault();
    work(() => onAnswer(waits.map((w) => decision(w, answers[w.id]))));
  };
  return html`<form class="card waits" onSubmit=${send} aria-label=${t("waits.title")}>
    <h3>${t("waits.title")}</h3>
    ${waits.map((w) => html`<${Wait} key=${w.id} wait=${w} answer=${answers[w.id] ?? { decision: "" }}
      set=${(c) => set(w.id, c)} />`)}
    <${ProblemNote} problem=${problem} />
    <button class="button primary" disabled=${!ready || busy}>${t("waits.send")}</button>
  </form>`;
}

// decision is a wait's answer as the API takes it.
function decision(w, a) {
  if (a.decision === "deny") return { id: w.id, decision: "deny", ...(a.reason ? { reason: a.reason } : {}) };
  if (a.decision === "edit") return { id: w.id, decision: "edit", arguments: parse(a.arguments) };
  if (w.kind === "approval") return { id: w.id, decision: "approve" };
  return { id: w.id, decision: "approve", result: a.fields ?? parse(a.result) };
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch (err) {
    throw { message: t("waits.json", { why: err.message }) };
  }
}

function Wait({ wait: w, answer, set }) {
  const approval = w.kind === "approval";
  const mayApprove = w.kind === "client_result" || may("approve");
  const choices = approval ? ["approve", "edit", "deny"] : ["approve", "deny"];
  const name = { approve: approval ? "waits.approve" : "waits.fill", edit: "waits.edit", deny: "waits.deny" };
  const choose = (c) => {
    const start = c === "edit" && !answer.arguments ? { arguments: pretty(w.arguments) } : {};
    const asks = c === "approve" && w.kind === "question" && simple(w.schema);
    const blank = asks && !answer.fields ? { fields: defaults(w.schema) } : {};
    set({ decision: c, ...start, ...blank });
  };
  return html`<fieldset class="wait">
    <legend class="break"><${AgentName} name=${w.subagent || "master"} /> ${t("kind." + w.kind)} <code>${w.tool}</code>
      </legend>
    ${w.reason ? html`<p class="break">${w.reason}</p>` : null}
    ${Object.keys(w.arguments ?? {}).length && answer.decision !== "edit" ? html`<pre class="code wrap">
      ${pretty(w.arguments)}</pre>` : null}
    <div class="row wrap" role="radiogroup">
      ${choices.map((c) => html`<label key=${c} class="row choice"><input type="radio" name=${w.id}
        checked=${answer.decision === c} disabled=${c !== "deny" && !mayApprove}
        onChange=${() => choose(c)} />${t(name[c])}</label>`)}
      <span class="soft small end">${t("waits.until")} <${Time} at=${w.expires_at} /></span>
    </div>
    ${mayApprove ? null : html`<${NoScope} scope="approve" />`}
    ${answer.decision === "deny" ? html`<label class="above">${t("waits.reason")}<input type="text"
      value=${answer.reason ?? ""}
      onInput=${(e) => set({ reason: e.target.value })} /></label>` : null}
    ${answer.decision === "edit" ? html`<${JSONField} label=${t("waits.arguments")} value=${answer.arguments}
      onChange=${(v) => set({ arguments: v })} />` : null}
    ${answer.decision === "approve" && !approval ? answer.fields ?
      html`<${Fields} schema=${w.schema} values=${answer.fields} onChange=${(fields) => set({ fields })} />` :
      html`<${JSONField} label=${t(w.kind === "question" ? "waits.answer" : "waits.result")}
        value=${answer.result ?? ""} onChange=${(v) => set({ result: v })} />` : null}
    ${approval && w.approves ? html`<p class="soft small">${t("waits.remember", { tool: w.tool })}</p>` : null}
  </fieldset>`;
}

const JSONField = ({ label, value, onChange }) => html`<label class="above">${label}
  <textarea class="mono" rows="5" spellcheck=${false} value=${value} onInput=${(e) => onChange(e.target.value)}>
    </textarea></label>`;

const simpleTypes = ["string", "number", "integer", "boolean"];

// simple says whether a schema is an object of plain values, which can be asked for field by field.
const simple = (schema) => schema?.type === "object" && schema.properties &&
  Object.values(schema.properties).every((p) => p.enum || simpleTypes.includes(p.type));

const defaults = (schema) => Object.fromEntries(Object.entries(schema.properties)
  .filter(([, p]) => p.default !== undefined || p.type === "boolean").map(([name, p]) => [name, p.default ?? false]));

function Fields({ schema, values, onChange }) {
  const required = new Set(schema.required ?? []);
  const set = (name, value) => {
    const next = { ...values, [name]: value };
    if (value === "" || Number.isNaN(value)) delete next[name];
    onChange(next);
  };
  return html`<div class="stack tight">${Object.entries(schema.properties).map(([name, p]) => html`<${Field} key=${name}
    name=${name}
    property=${p} required=${required.has(name)} value=${values[name]} onChange=${(v) => set(name, v)} />`)}</div>`;
}

function Field({ name, property: p, required, value, onChange }) {
  const label = html`<span>${p.title || name}${required ? " *" : ""}${p.description ? html` <span class="soft small">
    ${p.description}</span>` : null}</span>`;
  if (p.enum) {
    const at = p.enum.indexOf(value);
    return html`<label class="above">${label}<select required=${required} value=${String(at)}
      onChange=${(e) => onChange(p.enum[Number(e.target.value)] ?? "")}><option value="-1">${t("waits.empty")}</option>
      ${p.enum.map((v, i) => html`<option key=${i} value=${String(i)}>
        ${p.enumNames?.[i] ?? String(v)}</option>`)}</select></label>`;
  }
  if (p.type === "boolean") {
    return html`<label class="row"><input type="checkbox" checked=${value === true}
      onChange=${(e) => onChange(e.target.checked)} />${label}</label>`;
  }
  const limits = p.type === "string" ? { type: "text", minlength: p.minLength, maxlength: p.maxLength } :
    { type: "number", min: p.minimum, max: p.maximum, step: p.type === "integer" ? 1 : "any" };
  return html`<label class="above">${label}<input ...${limits} required=${required} value=${value ?? ""}
    onInput=${(e) => onChange(p.type === "string" ? e.target.value : e.target.valueAsNumber)} /></label>`;
}
