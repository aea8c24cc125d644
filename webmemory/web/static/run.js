// A run as it is drawn, the RunView of the API: made of its events while it goes on, given by the history later.

// newRun is a run of which nothing is known but its message.
export const newRun = (id, message) => ({
  run_id: id, message, outcome: "", started: 0, content: "", delegations: [], tools: [], recalled: [], citations: [],
  waits: [], usage: {}, seq: 0,
});

// fold takes an event into a run and gives the new one; what did not change stays the same object.
export function fold(run, e) {
  const next = { ...run, run_id: e.run_id, seq: e.seq, started: run.started || e.ts, waits: [] };
  if (e.subagent) return { ...next, delegations: delegations(run.delegations, e), waits: e.waits ?? [] };
  switch (e.role) {
    case "run_started":
      return { ...next, message: e.message, images: e.images };
    case "recalled":
      return { ...next, recalled: [...run.recalled, ...(e.recalled ?? [])] };
    case "assistant_delta":
      return { ...next, content: run.content + e.text };
    case "tool":
      return { ...next, tools: progress(run.tools, e) };
    case "assistant":
      return { ...next, content: e.content, citations: e.citations ?? [], flags: e.flags, record: e.run,
        answered: e.ts };
    case "run_waiting":
      return { ...next, waits: e.waits, outcome: "waiting" };
    case "run_resumed":
      return { ...next, outcome: "" };
    case "error":
      return { ...next, error: { code: e.code, message: e.message },
        record: e.run ?? run.record };
    case "run_finished":
      return { ...next, outcome: e.outcome, usage: e.usage ?? {}, ended: e.ts };
    default:
      return next;
  }
}

function delegations(all, e) {
  const at = all.findLastIndex((d) => d.call_id === e.call_id && d.subagent === e.subagent);
  if (e.role === "subagent_delegation" && at < 0) {
    return [...all, { subagent: e.subagent, call_id: e.call_id, task: e.task, content: "", status: "", tools: [],
      recalled: [], started: e.ts }];
  }
  if (at < 0) return all;
  const changed = delegation(all[at], e);
  return changed === all[at] ? all : all.with(at, changed);
}

function delegation(d, e) {
  switch (e.role) {
    case "recalled":
      return { ...d, recalled: [...d.recalled, ...(e.recalled ?? [])] };
    case "subagent_delta":
      return { ...d, content: d.content + e.text };
    case "subagent_assistant_with_tools":
      return { ...d, content: "", tools: [...d.tools, ...(e.tool_calls ?? []).map((c) => ({
        id: c.id, name: c.function.name, arguments: c.function.arguments, status: "running" }))] };
    case "subagent_tool":
      return { ...d, tools: progress(d.tools, e) };
    case "subagent_tool_result":
      return { ...d, tools: d.tools.map((c) => (c.id === e.tool_call_id ? { ...c, result: e.content,
        status: c.status === "failed" ? "failed" : "done" } : c)) };
    case "subagent_completion":
      return { ...d, content: e.response, status: e.status, answer: e.answer, usage: e.usage,
        citations: e.citations, ended: e.ts };
    case "error":
      return { ...d, error: { code: e.code, message: e.message } };
    default:
      return d;
  }
}

// progress notes how a tool is doing: the first of its name that is still at work, or a new one.
function progress(tools, e) {
  const at = tools.findIndex((c) => c.name === e.tool && (!c.status || c.status === "running"));
  const changed = { ...(at < 0 ? { id: "", name: e.tool } : tools[at]), status: e.status, detail: e.detail };
  return at < 0 ? [...tools, changed] : tools.with(at, changed);
}

// goesOn says whether a run is at work.
export const goesOn = (run) => run.outcome === "";

// runOf is the id of the run that made a message, undefined for a message that no run made.
export function runOf(message) {
  const [, run] = /^(.+)\.[1-9]\d*$/.exec(message.id ?? "") ?? [];
  return /^x[0-9a-f]{16}$/.test(run) ? undefined : run?.replace(/-end$/, "");
}
