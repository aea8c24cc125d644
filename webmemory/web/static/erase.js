// The question before a chat is erased.

import { html } from "./html.js";
import { addTexts, t } from "./i18n.js";
import { chatPath, del } from "./lib.js";
import { Confirm } from "./parts.js";

addTexts({
  "erase.erase": ["Erase", "Стереть"],
  "erase.title": ["Erase this chat?", "Стереть этот чат?"],
  "erase.text": ["All histories, archives, notes and documents of {chat} go, for good. Nothing can be put back.",
    "Все истории, архивы, заметки и документы чата {chat} исчезнут навсегда. Вернуть их нельзя."],
});

// Erase asks before it erases a chat, whose name is its title or id, and calls onDone after that.
export const Erase = ({ chat, name, onClose, onDone }) => html`<${Confirm} title=${t("erase.title")}
  button=${t("erase.erase")} act=${() => del(chatPath(chat)).then(onDone)} onClose=${onClose}>
  <p class="break">${t("erase.text", { chat: name })}</p><//>`;
