// The key that a service asks for. A tab holds one, in its session storage alone: there it ends with the tab, and no
// other tab, address, cookie or history has it. One form asks for it, however many requests were refused.

import { addTexts, t } from "./i18n.js";
import { useListener, useState } from "./html.js";
import { keep, readKept } from "./storage.js";

addTexts({
  "key.shape": ["A key begins with mn_ and is one line without spaces. Paste it as it was given to you.",
    "Ключ начинается с mn_ и состоит из одной строки без пробелов. Вставьте его так, как вам его дали."],
  "key.wrong": ["The service does not take this key: a part of it may be missing, or it has ended. Check it, or ask " +
    "whoever runs the service for another one.",
    "Сервис не принимает этот ключ: возможно, он неполный или уже не действует. Проверьте его или попросите другой у " +
    "того, кто ведёт сервис."],
  "key.away": ["The service cannot check keys right now (status {status}). Try again in a moment.",
    "Сервис сейчас не может проверить ключ (статус {status}). Попробуйте чуть позже."],
  "key.none": ["No key was given, so this was not done.", "Ключ не введён, поэтому это не сделано."],
  "key.network": ["The service cannot be reached. Is mneme still running?", "Сервис недоступен. Работает ли mneme?"],
});

const keyPlace = "mneme.key"; // the key
const selfPlace = "mneme.self"; // what the service says of it: {tenant, scopes}
const tenantPlace = "mneme.tenant"; // whose data the tab has shown; it outlives a key that has ended
const selfPath = "v1/keys/self";
const patience = 20_000; // milliseconds, for the service to say whose a key is

let key = readKept("sessionStorage", keyPlace) ?? "";
let self = JSON.parse(readKept("sessionStorage", selfPlace)); // null as long as it is not known
let tenant = readKept("sessionStorage", tenantPlace) ?? "";
let question = null; // {ended, answer, resolve}: the form that is shown
let declined = false; // the form was left without a key, and comes back when a person does something

// changed tells the page about another key, or that the form opens or closes.
const changed = () => dispatchEvent(new Event("mneme-key"));

// useKey draws a component again when there is another key, or the form comes or goes.
export function useKey() {
  const [, draw] = useState(0);
  useListener("mneme-key", () => draw((n) => n + 1));
  return { question, inUse: key !== "", declined, tenant };
}

// useNextKey calls again, as often as there is another key, as long as the problem is that there was none.
export function useNextKey(problem, again) {
  useListener("mneme-key", () => !question && !declined && again(), problem?.status === 401);
}

// keyInUse says whether requests go with a key.
export const keyInUse = () => key !== "";

// asking says whether the form is shown, behind which requests wait.
export const asking = () => question !== null;

// may says whether the key has a scope, as far as that is known.
export const may = (scope) => !key || !self || !scope || self.scopes.includes(scope) || self.scopes.includes("admin");

// askForKey shows the form; it comes to true with a key, to false without.
export function askForKey() {
  if (!question) {
    question = { ended: key !== "" && !declined };
    question.answer = new Promise((resolve) => {
      question.resolve = resolve;
    });
    changed();
  }
  return question.answer;
}

function close(given) {
  declined = !given;
  question.resolve(given);
  question = null;
  changed();
}

// decline leaves the form without a key.
export const decline = () => question && close(false);

// enter takes the typed key if the service accepts it. Otherwise it throws the reason. If the key belongs to another
// tenant than the last one, the page reloads: its content and pending requests are not that tenant's.
export async function enter(typed) {
  const mine = question;
  const text = typed.trim().replace(/^Bearer\s+/i, "");
  if (!/^mn_[\x21-\x7e]+$/.test(text)) throw new Error(t("key.shape"));
  let answer;
  let said;
  try {
    answer = await whose(bearer(text));
    said = answer.ok ? await answer.json() : null;
  } catch {
    throw new Error(t("key.network"));
  }
  if (answer.status === 401) throw new Error(t("key.wrong"));
  if (!said) throw new Error(t("key.away", { status: answer.status }));
  if (question !== mine) return; // the form was left meanwhile
  const other = tenant && tenant !== said.tenant;
  if (other) clear();
  key = text;
  keep("sessionStorage", keyPlace, key);
  learn(said);
  if (other) beginAnew();
  else close(true);
}

// forgetKey forgets the key and all that was shown by it.
export function forgetKey() {
  clear();
  beginAnew();
}

// clear takes away what the tab has kept. Language and theme, which are no tenant's, are kept elsewhere.
function clear() {
  key = "";
  try {
    Object.keys(sessionStorage).filter((name) => name.startsWith("mneme.")).forEach((name) =>
      sessionStorage.removeItem(name));
  } catch { /* the browser keeps nothing */ }
}

// beginAnew loads the page again, so that nothing of it is left in memory.
function beginAnew() {
  history.replaceState(null, "", location.pathname);
  location.reload();
}

function learn({ tenant: of, scopes }) {
  self = { tenant: of, scopes };
  tenant = of;
  keep("sessionStorage", selfPlace, JSON.stringify(self));
  keep("sessionStorage", tenantPlace, tenant);
}

const bearer = (text) => (text ? { Authorization: "Bearer " + text } : {});

// whose asks the service about the key of headers.
const whose = (headers) => fetch(selfPath, { headers, referrerPolicy: "no-referrer", redirect: "error",
  cache: "no-store", signal: AbortSignal.timeout(patience) });

// noKey stands for the answer to a request that is not sent, since no key was given.
const noKey = () =>
  new Response(JSON.stringify({ error: { code: "unauthorized", message: t("key.none") } }), { status: 401 });

// withKey sends a request by send, which is given the headers of the key, and sends it again with another key if the
// service asks for one. background says that no person waits for it: it does not bring the form back that was left.
export async function withKey(send, background = false) {
  for (;;) {
    if (question && !await question.answer || background && declined) return noKey();
    const used = key;
    const answer = await send(bearer(used));
    if (answer.status !== 401) {
      if (!used && answer.ok && !tenant) {
        tenant = "default"; // whose data is shown without a key
        keep("sessionStorage", tenantPlace, tenant);
      }
      return answer;
    }
    if (key !== used) continue; // another one was given meanwhile
    if (background && declined || !await askForKey()) return noKey();
  }
}

// refusal is the answer 401 if the service refuses the key of these headers, and else undefined. A refusal that
// comes before a large body was sent may be lost with its connection, which looks as if the service were away.
export async function refusal(headers) {
  const answer = await whose(headers).catch(() => undefined);
  return answer?.status === 401 ? answer : undefined;
}

// What a key may do can have changed since the page was loaded last.
if (key) {
  withKey(whose, true).then(async (answer) => {
    if (!answer.ok) return;
    const said = await answer.json();
    if (tenant && tenant !== said.tenant) return forgetKey();
    learn(said);
    changed();
  }).catch(() => {}); // who looks at something is told
}
