// A chat as it goes on: its history, the run that is open, and what is posted.

import { useCallback, useEffect, useRef, useState } from "./html.js";
import { readPage, useHistory } from "./history.js";
import { keepSent, wordsOf } from "./images.js";
import { chatPath, follow, get, href, path, post, send, timeZone } from "./lib.js";
import { may } from "./key.js";
import { usePoll } from "./parts.js";
import { fold, goesOn, newRun, runOf } from "./run.js";
import { makeTitle } from "./title.js";

const pollEvery = 2500; // milliseconds, while the page is seen

// messages is how many a chat's own history has, with those in its archive.
const messages = (info) => {
  const own = info.histories.find((h) => !h.subagent);
  return own ? own.messages + (own.archived ?? 0) : 0;
};

// useTalk gives {history, run, known, problem, say, answer, stop, working}: the window of the chat's history, the run
// that is open or waits, RunViews by their ids, and what went wrong last.
// changed is called when a run begins and when it is over.
export function useTalk(chat, changed) {
  const known = useRef(new Map());
  const onRuns = (runs) => {
    for (const [id, run] of Object.entries(runs)) known.current.set(id, run);
  };
  const history = useHistory(chat, "", { runs: true, onRuns });
  const [run, setRun] = useState(null);
  const [problem, setProblem] = useState(null);
  const live = useRef(null); // the run that is followed, as far as its events have come
  const leave = useRef(null); // ends the following
  const stopped = useRef(null); // the following whose run is to stop as soon as its id is known
  const seen = useRef(""); // the chat's histories when they were looked at last; empty before that
  const total = useRef(); // messages in the history that is shown
  total.current = history.page?.total;

  const stop = useCallback(async () => {
    const id = live.current?.run_id;
    if (!id) {
      stopped.current = leave.current;
      return;
    }
    await post(path("chats", chat, "runs", id, "stop")).catch(setProblem);
    look();
  }, [chat]);

  // entitle asks for a title if the chat has one run only. Until then the beginning of its first message is its title.
  const entitle = async (page, id) => {
    if (!may("memory:write") || page?.from !== 0 || page.messages.some((m) => runOf(m) !== id)) return;
    const { content, images } = page.messages[0];
    await makeTitle(chat, wordsOf(content, images) || content);
    if (location.hash === href("chats", chat)) changed?.();
  };

  // attend follows a run, begun by start, to its end or its wait, and reads the history then. posts says that
  // start posts something new, after which the chat may want a title.
  const attend = useCallback(async (begin, start, posts = false) => {
    leave.current?.abort();
    const mine = new AbortController();
    leave.current = mine;
    live.current = begin;
    let frame = 0;
    const draw = () => {
      frame ||= setTimeout(() => {
        frame = 0;
        if (leave.current === mine) setRun(live.current);
      }, 33);
    };
    setRun(begin);
    setProblem(null);
    let failed = null;
    try {
      await start({ signal: mine.signal,
        onRun: (id) => {
          live.current = { ...live.current, run_id: id };
          if (stopped.current === mine) stop();
          draw();
          changed?.();
        },
        onEvent: (event) => {
          live.current = fold(live.current, event);
          draw();
        } });
    } catch (err) {
      if (mine.signal.aborted) return;
      failed = err;
    }
    clearTimeout(frame);
    const over = live.current;
    if (over.run_id && over.outcome) known.current.set(over.run_id, over);
    setProblem(failed);
    if (over.outcome === "waiting") setRun(over);
    else {
      // It is asked for before the history is read, so that what is written between the two is found by the next look.
      seen.current = may("memory:read") ? JSON.stringify((await get(chatPath(chat)).catch(() => null))?.histories) : "";
      if (leave.current !== mine) return;
      let unread = false; // the key may not read the history, so that the run is all that can be shown
      const read = history.load().catch((err) => {
        unread = Boolean(err.scope);
      });
      if (over.run_id) await read; // else there is nothing to show in its place
      if (posts && over.outcome === "completed") read.then((page) => entitle(page, over.run_id)).catch(() => {});
      if (leave.current !== mine) return;
      live.current = null;
      setRun(unread ? over : null);
    }
    leave.current = null;
    changed?.();
    if (failed) throw failed;
  }, [chat]);

  const join = (id, waits = []) =>
    attend({ ...newRun(id), waits, outcome: "" }, (o) => follow(chat, id, o)).catch((err) => {
      if (!waits.length) return;
      live.current = { ...newRun(id), waits, outcome: "waiting" }; // its events are gone, and it still waits
      setRun(live.current);
      setProblem(err);
    });

  // look finds out what others did to the chat.
  const look = useCallback(async () => {
    if (leave.current || !may("memory:read")) return; // what happens is seen as it does, or not at all
    const info = await get(chatPath(chat)).catch(() => null);
    if (!info || leave.current) return;
    const open = info.run || info.waiting?.run_id;
    if (open && (open !== live.current?.run_id || info.run)) {
      join(open, info.waiting?.waits);
      return;
    }
    const now = JSON.stringify(info.histories);
    if (!open && live.current) { // its wait is over
      await history.load().catch(() => {});
      if (leave.current) return;
      live.current = null;
      setRun(null);
      seen.current = now;
    }
    if (now === seen.current) return;
    const changed = seen.current !== "" || (total.current !== undefined && total.current !== messages(info));
    seen.current = now;
    if (changed) await history.load().catch(() => {});
  }, [chat]);
  usePoll(look, pollEvery);
  useEffect(() => {
    look();
    return () => leave.current?.abort();
  }, [chat]);

  // say posts a message to an agent. With at, the place of a message of the user in the history, it takes that one's
  // place, as long as last is the id of the chat's last message. images are data: URLs that go with it, and pasted
  // the parts that were pasted, if that is known.
  const say = useCallback((message, agent, at, last = "", images = [], pasted = undefined) => {
    const begin = { ...newRun(undefined, message), started: Date.now() / 1000, hideFrom: at, sent: images };
    return attend(begin, async (o) => {
      const body = { message, agent_version: agent, images, pasted, time_zone: timeZone() };
      if (at !== undefined) {
        const before = at > 0 ? (await readPage(chat, "", at - 1, 1)).messages[0] : undefined;
        Object.assign(body, { after: before?.id ?? "", if_last: last });
      }
      const onRun = (id) => {
        keepSent(id, images);
        o.onRun(id);
      };
      return send(chat, chatPath(chat, "", "messages"), body, { ...o, onRun });
    }, at === undefined);
  }, [chat]);

  // answer answers all that the run waits for.
  const answer = useCallback((answers) => {
    const { run_id: id, seq: after } = live.current;
    return attend({ ...live.current, waits: [], outcome: "" },
      (o) => send(chat, path("chats", chat, "runs", id, "resume"), { answers }, { ...o, after }),
      live.current.hideFrom === undefined);
  }, [chat]);

  return { history, run, known: known.current, problem, say, answer, stop, working: Boolean(run && goesOn(run)) };
}
