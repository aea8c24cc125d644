// The question before a chat is erased.

import { html, useState } from "./html.js";
import { addTexts, t } from "./i18n.js";
import { chatPath, del } from "./lib.js";
import { Dialog, ProblemNote } from "./parts.js";

addTexts({
  "erase.erase": ["Erase", "Стереть"],
  "erase.title": ["Erase this chat?", "Стереть этот чат?"],
  "erase.text": ["All histories, archives, notes and documents of {chat} go, for good. Nothing can be put back.",
    "Все истории, архивы, заметки и документы чата {chat} исчезнут навсегда. Вернуть их нельзя."],
});

// Erase asks whether a chat shall go, of which name is its title or id; onDone is called once it has gone.
export function Erase({ chat, name, onClose, onDone }) {
  const [problem, setProblem] = useState(null);
  const erase = () => del(chatPath(chat)).then(onDone, setProblem);
  return html`<${Dialog} title=${t("erase.title")} onClose=${onClose}><p class="break">
    ${t("erase.text", { chat: name })}</p>
    <${ProblemNote} problem=${problem} />
    <div class="row"><button type="button" class="button end" onClick=${onClose}>${t("cancel")}</button>
      <button type="button" class="button danger" onClick=${erase}>${t("erase.erase")}</button></div><//>`;
}
