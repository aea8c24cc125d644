// Claude Code on several backends, each step a process of its own, and at faults.
import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { Session } from './claude.mjs'
import { call, say, script, think } from '../talk.mjs'

// One binds thinking to nothing but its text, one has little room.
export const vendors = {
  free: ['-vendor', 'anthropic', '-name', 'free'],
  small: ['-vendor', 'anthropic', '-name', 'small', '-window', '20000'],
}
export const backends = (url) => Object.fromEntries(Object.keys(vendors).map((name) =>
  [name, { kind: 'anthropic', vendor: 'anthropic', base_url: url[name], thinking: { budget_tokens: 4000 }, model_map: { master: 'claude-opus-4-8' } }]))

const reads = (session, words) =>
  script(words, [think(`Read it. ${words}`), call('Read', { file_path: join(session.work, 'sample') })], [think(`Seen. ${words}`), say(words)])

/**
 * Goes along the backends, and looks at what those of Anthropic's kind get of
 * their own thinking: tools are the client's in each step, free says that
 * nothing binds thinking to them. A backend refuses one request at most.
 */
async function along(t, way, { conversation, tools = ['Read'], free } = {}) {
  const session = new Session(t, { conversation })
  const own = {}
  const refused = {}
  for (const [i, backend] of way.entries()) {
    await t.use(backend)
    const look = t.stack.watch()
    const used = tools[i % tools.length]
    assert.equal((await session.say(reads(session, `step ${i}`), { tools: used })).result, `step ${i}`)
    if (backend === 'generic') continue
    const { calls, refused: no } = look()
    const kept = calls.filter((c) => c.line.startsWith('200 messages')).map((c) => c.replayed)
    refused[backend] = (refused[backend] ?? 0) + no.length
    own[backend] ??= { [used]: 0 }
    const before = free ? Object.values(own[backend]).reduce((a, b) => a + b) : (own[backend][used] ?? 0)
    assert.deepEqual(kept, [before, before + 1], `of its own thinking ${backend} got ${kept} in step ${i}`)
    own[backend][used] = (own[backend][used] ?? 0) + 2
  }
  for (const n of Object.values(refused)) assert.ok(n <= 1, `one backend refused ${n} requests`)
}

const named = (scenario) => ['', ', conversation named'].map((title) => ({
  ...scenario, name: scenario.name.replace(':', `${title}:`),
  run: (t) => scenario.run(t, title ? { conversation: t.conversation } : {}),
}))

/** What Claude Code noted of a conversation that it made shorter. */
function compactions(session) {
  const dir = join(session.env.HOME, '.claude', 'projects')
  return readdirSync(dir, { recursive: true }).filter((f) => f.endsWith('.jsonl'))
    .flatMap((f) => readFileSync(join(dir, f), 'utf8').split('\n')).filter((l) => l.includes('"compact_boundary"')).length
}

// Each turn is a third of what the vendor takes.
async function grows(t, options) {
  const session = new Session(t, options)
  for (let n = 0; n < 4; n++) {
    const { result } = await session.say(`Note this, number ${n}: ${'marmalade and thyme, '.repeat(1500)}`, { tools: 'Read' })
    assert.match(result, /^You said: /)
  }
  assert.ok(compactions(session) >= 1, 'it made the conversation shorter')
}

const chatError = (message, code) => JSON.stringify({ error: { message, type: 'invalid_request_error', param: 'messages', code } })
const exceeded = chatError("This model's maximum context length is 128000 tokens. However, your messages resulted in 130512 tokens. " +
  'Please reduce the length of the messages.', 'context_length_exceeded')

/** The vendor says in its own words that a conversation is too long; Claude Code makes it shorter and goes on. */
async function tooLong(t, options, vendor, body) {
  const session = new Session(t, options)
  for (const words of ['One.', 'Two.']) await session.say(words, { tools: 'Read' })
  await t.stack.fail(vendor, { status: 400, body })
  assert.match((await session.say('Three.', { tools: 'Read' })).result, /Three\./)
  assert.equal(compactions(session), 1)
}

/** So many requests get an overload as the first event of a stream. */
async function overloaded(t, vendor, fault, times) {
  const session = new Session(t)
  await t.stack.fail(vendor, { ...fault, times })
  assert.equal((await session.say(reads(session, 'Read.'), { tools: 'Read' })).result, 'Read.')
}
const full = { status: 529, first: 'messages', message: 'Overloaded' }
const busy = { status: 503, first: 'chat', message: 'The server is overloaded. Please retry your request.' }

export const scenarios = [
  ...named({ name: 'claude code, a1 → generic → a1: its own thinking', run: (t, o) => along(t, ['a1', 'generic', 'a1'], o) }),
  ...named({ name: 'claude code, a1 → generic → a1: other tools on the way', run: (t, o) => along(t, ['a1', 'generic', 'a1'], { ...o, tools: ['Read', 'Read,Bash', 'Read'] }) }),
  ...named({ name: 'claude code, a1 → generic → a1: other tools afterwards', refused: 1, run: (t, o) => along(t, ['a1', 'generic', 'a1'], { ...o, tools: ['Read', 'Read', 'Read,Bash'] }) }),
  ...named({ name: 'claude code, free → generic → free: other tools in each step', backend: 'free', run: (t, o) => along(t, ['free', 'generic', 'free', 'generic', 'free'], { ...o, tools: ['Read', 'Read,Bash', 'Read,Bash,Glob'], free: true }) }),
  // Each refuses the other's thinking once.
  ...named({ name: 'claude code, a1 → a3 → a1: two accounts', refused: 2, run: (t, o) => along(t, ['a1', 'a3', 'a1', 'a3', 'a1'], o) }),
  // It also asks for the summary of too much.
  { name: 'claude code, too long: grows beyond the vendor', backend: 'small', refused: 4, failed: 4, run: (t) => grows(t) },
  { name: 'claude code, too long: grows beyond the vendor, conversation named', backend: 'small', refused: 4, failed: 4, run: (t) => grows(t, t) },
  { name: 'claude code, too long: in the words of chat completions', backend: 'generic', refused: 1, failed: 1, run: (t) => tooLong(t, {}, 'generic', exceeded) },
  { name: 'claude code, overload first: passes', backend: 'free', run: (t) => overloaded(t, 'free', full, 2) },
  { name: 'claude code, overload first: stays for a while', backend: 'free', failed: 2, run: (t) => overloaded(t, 'free', full, 7) },
  { name: 'claude code, overload first: of chat completions', backend: 'generic', failed: 1, run: (t) => overloaded(t, 'generic', busy, 4) },
]
