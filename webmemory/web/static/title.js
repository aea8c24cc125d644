// The title of a chat, made from its first message by the master's model alone. A title is plain text.

import { chatPath, patch, path, post } from "./lib.js";

const mostTitle = 60; // characters
const mostAsked = 4000; // characters of the message that the model is shown
const patience = 60_000; // milliseconds
const fullStop = /(?<!\.)\.$/;

// makeTitle asks a model for a chat's title and stores it. A title that a person has set stays.
export async function makeTitle(chat, asked) {
  const signal = AbortSignal.timeout(patience);
  const message = "### Task:\nWrite a title for a chat that begins with the message below, in the language of that " +
    `message, in at most ${mostTitle} characters. Answer with the title alone, without quotation marks.\n` +
    `<chat_history>\nUSER: ${asked.slice(0, mostAsked)}\n</chat_history>`;
  const { content } = await post(path("oneshot"), { message, bare: true }, { signal });
  const title = cleaned(content);
  if (title) await patch(chatPath(chat), { title, made: true }, { signal });
}

// cleaned returns the first line with words of a model's answer, without a heading's mark, a full stop, and quotation
// marks or asterisks around the whole line.
export function cleaned(text) {
  const lines = text.replace(/<think>[^]*?<\/think>/g, "").split("\n").map((line) => line.trim());
  const title = (lines.find((line) => /[\p{L}\p{N}]/u.test(line)) ?? "").replace(/^#+ /, "").replace(fullStop, "")
    .replace(/^(?:\*\*|["'«“„])([^*"«»“”„]+)(?:\*\*|["'»“”])$/, "$1").replace(fullStop, "");
  if (title.length <= mostTitle) return title;
  return title.length > 3 * mostTitle ? "" : title.slice(0, mostTitle - 1).replace(/\s+\S*$/, "") + "…";
}
