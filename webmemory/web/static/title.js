// The title of a chat, made from its first message by the master's model alone.

import { chatPath, patch, path, post } from "./lib.js";

const mostTitle = 60; // characters
const mostAsked = 4000; // characters of the message that the model is shown
const patience = 60_000; // milliseconds

// makeTitle asks for a chat's title and sets it; a title that somebody has set is not changed by it.
export async function makeTitle(chat, asked) {
  const signal = AbortSignal.timeout(patience);
  const message = "### Task:\nWrite a title for a chat that begins with the message below, in the language of that " +
    `message, in at most ${mostTitle} characters. Answer with the title alone, without quotation marks.\n` +
    `<chat_history>\nUSER: ${asked.slice(0, mostAsked)}\n</chat_history>`;
  const { content } = await post(path("oneshot"), { message, bare: true }, { signal });
  const title = cleaned(content);
  if (title) await patch(chatPath(chat), { title, made: true }, { signal });
}

// cleaned is what a model says as a title: the first line of it, without marks around; empty if that is none.
function cleaned(text) {
  const lines = text.replace(/<think>[^]*?<\/think>/g, "").split("\n").map((line) =>
    line.replace(/^[\s#*_"'«»“”„`]+|[\s*_"'«»“”`]+$/g, "").replace(/(?<!\.)\.$/, ""));
  const title = lines.find(Boolean) ?? "";
  if (title.length <= mostTitle) return title;
  return title.length > 3 * mostTitle ? "" : title.slice(0, mostTitle - 1).replace(/\s+\S*$/, "") + "…";
}
