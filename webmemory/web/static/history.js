// Reading histories: a window of pages that moves along one, and single messages by id and time.

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { useNextKey } from "./key.js";
import { chatPath, get } from "./lib.js";

const pageSize = 60;
const mostShown = 240; // messages; those far from what is looked at leave the page

// readPage reads a part of a history with its archive; a negative offset counts from the end.
export async function readPage(chat, subagent, offset, limit, { runs, signal } = {}) {
  const query = { archive: true, runs: runs || undefined, offset, limit };
  const page = await get(chatPath(chat, subagent, "history"), query, { signal });
  const { key, total, stale, messages, offset: from } = page;
  return { key, total, stale, messages, from, to: from + messages.length, runs: page.runs ?? {} };
}

// useHistory is a window of a history: {page, problem, loading, load, older, newer}. load(offset) reads anew, from
// the end without one; it is done once from start. onRuns is given the runs that came with a page.
export function useHistory(chat, subagent, { runs = false, onRuns, start } = {}) {
  const [state, setState] = useState({ loading: true });
  const now = useRef();
  const busy = useRef(false);
  now.current = state.page;

  const read = useCallback(async (offset, limit, join) => {
    setState((s) => ({ ...s, loading: true }));
    try {
      const page = await readPage(chat, subagent, offset, limit, { runs });
      onRuns?.(page.runs);
      now.current = join(page);
      setState({ page: now.current, loading: false });
      return now.current;
    } catch (problem) {
      setState((s) => ({ ...s, problem, loading: false }));
      throw problem;
    }
  }, [chat, subagent]);

  const load = useCallback((offset = -pageSize) => read(offset, pageSize, (page) => page), [read]);
  // more adds a page before or behind the window, and takes as much off its other end as is too much.
  const more = useCallback(async (before) => {
    const page = now.current;
    if (busy.current || !page || (before ? page.from === 0 : page.to >= page.total)) return;
    busy.current = true;
    const from = before ? Math.max(0, page.from - pageSize) : page.to;
    const limit = before ? page.from - from : pageSize;
    try {
      await read(from, limit, (next) => join(page, next, before));
    } catch { /* it is shown as the problem */ } finally {
      busy.current = false;
    }
  }, [read]);

  useEffect(() => {
    load(start).catch(() => {});
  }, [load]);
  useNextKey(state.problem, () => load(start).catch(() => {}));
  const older = useCallback(() => more(true), [more]);
  const newer = useCallback(() => more(false), [more]);
  return { ...state, load, older, newer };
}

function join(page, next, before) {
  const whole = { ...next, from: before ? next.from : page.from, to: before ? page.to : next.to,
    messages: before ? [...next.messages, ...page.messages] : [...page.messages, ...next.messages] };
  const over = whole.messages.length - mostShown;
  if (over <= 0) return whole;
  return before ? { ...whole, to: whole.to - over, messages: whole.messages.slice(0, -over) } :
    { ...whole, from: whole.from + over, messages: whole.messages.slice(over) };
}

// useScroll keeps what is looked at in its place while messages come before it, follows the end while that is in
// sight, and asks for more near the ends. It gives the properties of the element that scrolls, and toEnd.
export function useScroll(page, { older, newer, changes }) {
  const ref = useRef();
  const atEnd = useRef(true);
  const anchor = useRef(null);
  const first = page?.from;
  useLayoutEffect(() => {
    const box = ref.current;
    if (!box) return;
    const at = anchor.current && box.querySelector(`[data-at="${anchor.current.at}"]`);
    if (atEnd.current && page?.to === page?.total) box.scrollTop = box.scrollHeight;
    else if (at) box.scrollTop += at.getBoundingClientRect().top - anchor.current.top;
    note();
  }, [first, page?.to, page?.total, ...changes]);

  useEffect(() => {
    const box = ref.current;
    const sized = new ResizeObserver(() => {
      if (atEnd.current) box.scrollTop = box.scrollHeight;
    });
    sized.observe(box);
    return () => sized.disconnect();
  }, []);

  const note = () => {
    const box = ref.current;
    const top = box.getBoundingClientRect().top;
    const seen = [...box.querySelectorAll("[data-at]")].find((e) => e.getBoundingClientRect().bottom > top);
    anchor.current = seen && { at: seen.dataset.at, top: seen.getBoundingClientRect().top };
  };
  const onScroll = () => {
    const box = ref.current;
    if (!box) return; // the event came after the element was removed
    atEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    note();
    if (box.scrollTop < 600) older();
    if (box.scrollHeight - box.scrollTop - box.clientHeight < 600) newer();
  };
  const toEnd = () => {
    atEnd.current = true;
    ref.current.scrollTop = ref.current.scrollHeight;
  };
  return { ref, onScroll, toEnd, atEnd };
}

// findMessage gives a message of a chat by its id and time, as {message, at, subagent}, at its place in the history;
// undefined if there is none. It is looked for in the subagent's history first, and then in the chat's own.
export async function findMessage(chat, subagent, { id, ts }) {
  for (const of of subagent ? [subagent, ""] : [""]) {
    const hit = await bisect(chat, of, id, ts);
    if (hit) return { ...hit, subagent: of };
  }
}

const around = 25; // messages on each side of where the time says it is

// bisect goes by the times of messages, which ascend.
async function bisect(chat, subagent, id, ts) {
  let [low, high] = [0, undefined];
  while (high === undefined || high - low > 2 * around) {
    const middle = high === undefined ? -1 : (low + high) >> 1;
    const page = await readPage(chat, subagent, middle, 1);
    if (!page.messages.length) break;
    if (high === undefined) high = page.total;
    else if (page.messages[0].timestamp < ts) low = middle;
    else high = middle;
  }
  const from = Math.max(0, low - around);
  const page = await readPage(chat, subagent, from, 4 * around);
  const at = page.messages.findIndex((m) => m.id === id);
  return at < 0 ? undefined : { message: page.messages[at], at: page.from + at };
}
