// Responses: the OpenAI SDK by itself, and codex without its screen. The frameworks above the SDK are in frameworks.mjs.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import OpenAI from 'openai'
import { run } from '../processes.mjs'
import { ResponsesTalk, call, forecast, named, openai, rounds, say, script, think, useTheTool } from '../talk.mjs'
import { vendorKey } from '../stack.mjs'

const everywhere = ['adaptive', 'manual', 'kimi', 'deepseek', 'kimi-chat', 'deepseek-chat', 'generic', 'gpt']
// There and back; three are three vendors, one in each dialect.
const ways = [
  ['adaptive', 'kimi'], ['manual', 'deepseek'], ['manual', 'kimi-chat'], ['deepseek-chat', 'adaptive'], ['gpt', 'adaptive'], ['deepseek-chat', 'gpt'],
  ['gpt', 'adaptive', 'deepseek-chat'], ['adaptive', 'deepseek-chat', 'gpt'],
]

// Opus 4.8 binds no thinking to what precedes it, such as the tools, which codex leaves out to compact.
export const vendors = { opus: ['-vendor', 'anthropic', '-name', 'opus'], template: ['-vendor', 'chat', '-name', 'template', '-template', 'alternating'] }

// Of its own, as what fails counts against a backend.
export const backends = (url) => ({
  'opus-4-8': { kind: 'anthropic', vendor: 'anthropic', base_url: url.opus, thinking: { budget_tokens: 4000 }, model_map: { '*': 'claude-opus-4-8' } },
  template: { kind: 'openai', vendor: 'generic', base_url: `${url.template}/v1`, model_map: { '*': 'gemma-3-27b' } },
  'failing-codex': { kind: 'anthropic', vendor: 'anthropic', base_url: url.manual, model_map: { '*': 'claude-sonnet-4-5' } },
})

/** A white pixel. */
const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4////fwAJ+wP9KobjigAAAABJRU5ErkJggg=='
const image = { type: 'input_image', image_url: `data:image/png;base64,${png}`, detail: 'auto' }

/** How many of its own thoughts each call of a vendor got back, of those that it took. */
const replayed = ({ calls }) => calls.filter((c) => c.line.startsWith('200 ')).map((c) => c.replayed)

/** Each call of a vendor has as many thoughts as least says, of as many as it had itself; some take what others thought, too. */
function ownThoughts({ calls }, least = (n) => n) {
  const own = {}
  for (const c of calls) (own[c.vendor] ??= []).push(c.replayed)
  for (const [vendor, counts] of Object.entries(own)) assert.ok(counts.every((n, at) => n >= least(at)), `${vendor} got ${counts} of its own thoughts`)
}

async function wholeAndStreamed(t) {
  const client = openai(t)
  const body = { model: 'gpt-5', input: 'Hello, mneme.' }
  const whole = await client.responses.create(body)
  assert.match(whole.output_text, /You said: Hello, mneme\./)
  assert.equal(whole.status, 'completed')
  assert.ok(whole.usage.total_tokens > 0)
  let streamed = ''
  let last
  for await (const e of await client.responses.create({ ...body, stream: true })) {
    if (e.type === 'response.output_text.delta') streamed += e.delta
    last = e
  }
  assert.equal(streamed, whole.output_text)
  assert.equal(last.type, 'response.completed')
  assert.deepEqual(last.response.usage, whole.usage)
  assert.equal((await client.responses.stream(body).finalResponse()).output_text, whole.output_text)
}

/** Three turns of two calls each; the vendor gets all that it thought before, so that the last call has eight of its nine thoughts. */
async function interleaved(t, { backend, conversation, ...options }) {
  const look = t.stack.watch()
  const talk = new ResponsesTalk(openai(t, { conversation }), options)
  for (const n of [1, 2, 3]) assert.equal((await talk.turn(rounds(`turn ${n}`))).output_text, `Done: turn ${n}`)
  if (backend === 'generic') return
  assert.equal(talk.thought(), 9)
  // What belongs to no call is known again within a conversation that has a name.
  const got = replayed(look())
  if (conversation) assert.deepEqual(got, [0, 1, 2, 3, 4, 5, 6, 7, 8])
  else assert.ok(got.every((count, n) => count >= n - Math.floor(n / 3)), `${got}`)
}

async function parallelTools(t) {
  const talk = new ResponsesTalk(openai(t))
  const both = script('both', [think('Both.'), call('weather', { city: 'Rome' }), call('weather', { city: 'Oslo' })], [think('Well.'), say('Both done.')])
  for (let n = 0; n < 2; n++) assert.equal((await talk.turn(both)).output_text, 'Both done.')
  const ids = talk.answers.flatMap((a) => a.output).filter((i) => i.type === 'function_call').map((i) => i.call_id)
  assert.equal(new Set(ids).size, 4, 'no id comes twice')
}

/** There and back between turns, then while a tool runs. On return each has what it thought itself. */
async function switched(t, way, conversation) {
  const look = t.stack.watch()
  const talk = new ResponsesTalk(openai(t, { conversation }))
  for (const backend of [...way, way[0]]) {
    await t.use(backend)
    assert.match((await talk.turn(useTheTool)).output_text, /The tool gave: Sunny in sample\./)
  }
  let at = 0
  for (const n of [1, 2, 3]) assert.equal((await talk.turn(rounds(`turn ${n}`), () => t.use(way[++at % way.length]))).output_text, `Done: turn ${n}`)
  // Without a name, what belongs to no call is not known again: one of three in a turn of two calls, one of two in one.
  ownThoughts(look(), conversation ? (n) => n : (n) => Math.floor(n / 2))
}

/** A stream that the client leaves, at each of its first events, and the same conversation afterwards. */
async function aborted(t, conversation) {
  const talk = new ResponsesTalk(openai(t, { conversation }))
  const look = t.stack.watch()
  await talk.turn(useTheTool)
  for (const after of [1, 4, 9, 14]) {
    const begun = await talk.client.responses.create({ ...talk.params, stream: true, input: [...talk.input, { role: 'user', content: rounds(`left ${after}`) }] })
    let seen = 0
    for await (const _ of begun) if (++seen === after) break // which closes the connection
    assert.equal((await talk.turn(rounds(`after ${after}`))).output_text, `Done: after ${after}`)
  }
  // In the middle of a tool loop: the call is there, what the model makes of its result is left.
  talk.input.push({ role: 'user', content: rounds('inside') })
  const { output } = await talk.ask()
  const called = output.find((i) => i.type === 'function_call')
  talk.input.push({ type: 'function_call_output', call_id: called.call_id, output: forecast('Rome') })
  for await (const _ of await talk.client.responses.create({ ...talk.params, stream: true, input: talk.input })) break
  assert.equal((await talk.goOn()).output_text, 'Done: inside')
  assert.ok(look().calls.at(-1).replayed >= 11, 'two of each turn with a tool loop and one of the first, at least')
}

async function pictures(t) {
  const look = t.stack.watch()
  const talk = new ResponsesTalk(openai(t))
  assert.match((await talk.turn([{ type: 'input_text', text: 'Look.' }, image])).output_text, /You said: Look\./)
  assert.equal(look().calls.at(-1).documents, 1)
  // And what a tool gives.
  talk.input.push({ role: 'user', content: useTheTool })
  const called = (await talk.ask()).output.find((i) => i.type === 'function_call')
  talk.input.push({ type: 'function_call_output', call_id: called.call_id, output: [{ type: 'input_text', text: 'A picture.' }, image] })
  assert.equal((await talk.ask()).status, 'completed')
  assert.equal(look().calls.at(-1).documents, 2)
}

async function fails(ask, kind) {
  const error = await ask.then(() => assert.fail('it did not fail'), (e) => e)
  assert.ok(error instanceof kind, `${kind.name} expected, not ${error.constructor.name}: ${error.message}`)
  assert.ok(error.headers.get('X-AG-Request-Id'), 'the gateway names the request')
  return error
}

const ask = (t, more, options) => openai(t, options).responses.create({ model: 'gpt-5', input: 'Hello.', ...more })

async function badRequests(t) {
  const e = await fails(ask(t, { input: [{ role: 'robot', content: 'x' }] }), OpenAI.BadRequestError)
  assert.equal(e.type, 'invalid_request_error')
  assert.match(e.message, /input\[0\]/)
}

async function wrongKeys(t) {
  await fails(ask(t), OpenAI.AuthenticationError)
  assert.equal((await ask(t, {}, { key: vendorKey })).status, 'completed')
}

async function rateLimits(t) {
  for (const stream of [false, true]) {
    const e = await fails(ask(t, { stream }), OpenAI.RateLimitError)
    assert.equal(e.headers.get('retry-after'), '60')
    assert.equal(e.code, 'rate_limit_exceeded')
  }
}

/** codex in a folder of its own. The conversation is named by the header that it sends of itself. */
export class Codex {
  constructor(t, { memory } = {}) {
    Object.assign(this, { t, work: join(t.dir, 'work') })
    const home = join(t.dir, 'home')
    for (const dir of [join(home, '.codex'), this.work]) mkdirSync(dir, { recursive: true })
    writeFileSync(join(this.work, 'sample'), 'The file says marmalade.\n')
    writeFileSync(join(this.work, 'sample.png'), Buffer.from(png, 'base64'))
    writeFileSync(join(home, '.codex', 'config.toml'), `
model = "gpt-5"
model_provider = "mneme"
model_reasoning_effort = "medium"

[model_providers.mneme]
name = "mneme"
base_url = "${t.url}/v1"
env_key = "MNEME_KEY"
wire_api = "responses"
${memory ? `http_headers = { "X-AG-Memory" = "${memory}" }` : ''}
`)
    // Nothing but the gateway is to be reached: nobody listens on the discard port.
    this.env = {
      HOME: home, PATH: process.env.PATH, TERM: 'dumb', LANG: 'C.UTF-8', MNEME_KEY: t.key, HTTPS_PROXY: 'http://127.0.0.1:9', NO_PROXY: '127.0.0.1',
    }
  }

  /** Says something, from the second time on as a resumed session, and gives what codex told of it. */
  async say(words, { args = [], fails = false } = {}) {
    const common = ['--json', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', ...args]
    const command = this.begun ? ['exec', 'resume', '--last', ...common, '--', words] : ['exec', ...common, '--', words]
    this.begun = true
    const { code, stdout, stderr } = await run(this.t.codex, command, { cwd: this.work, env: this.env })
    const events = stdout.split('\n').filter((l) => l.startsWith('{')).map((l) => JSON.parse(l))
    const failed = events.filter((e) => e.type === 'turn.failed') // an error that it overcomes is only told
    const items = events.filter((e) => e.type === 'item.completed').map((e) => e.item)
    const text = items.filter((i) => i.type === 'agent_message').map((i) => i.text).at(-1)
    const told = { code, events, items, failed, text, usage: events.find((e) => e.type === 'turn.completed')?.usage }
    if (fails) return told
    assert.deepEqual(failed, [])
    assert.equal(code, 0, stderr || stdout)
    return told
  }

  /** Two rounds of a tool and an answer, with thinking before each. */
  rounds(words, first = { cmd: 'cat sample' }, second = { cmd: 'cat sample' }) {
    return script(words, [think(`First. ${words}`), say('I read.'), call('exec_command', first)], [think(`Again. ${words}`), call('exec_command', second)],
      [think(`Both are there. ${words}`), say(`Done: ${words}`)])
  }
}

const commands = ({ items }) => items.filter((i) => i.type === 'command_execution' && /marmalade/.test(i.aggregated_output)).length

/** A session as an editor has it: the sandbox, the approvals and the model change between turns, and it is compacted. */
async function codexSession(t) {
  const codex = new Codex(t)
  const child = spawn(t.codex, ['app-server'], { cwd: codex.work, env: codex.env, stdio: ['pipe', 'pipe', 'ignore'] })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  let asked = 0
  const send = (message) => child.stdin.write(`${JSON.stringify(message)}\n`)
  /** Gives the first message that is wanted, and approves every command on the way. */
  const until = async (wanted) => {
    for (let line = await lines.next(); ; line = await lines.next()) {
      assert.ok(!line.done, 'codex ended')
      const message = JSON.parse(line.value)
      assert.ok(!message.error, line.value)
      if (message.method?.endsWith('requestApproval')) send({ id: message.id, result: { decision: 'accept' } }, asked++)
      if (wanted(message)) return message.result ?? message.params
    }
  }
  const ask = (method, params) => (send({ id: method, method, params }), until((m) => m.id === method && m.result))
  const done = async () => assert.equal((await until((m) => m.method === 'turn/completed')).turn.status, 'completed')
  try {
    await ask('initialize', { clientInfo: { name: 'conformance', version: '1' } })
    const { thread: { id: threadId } } = await ask('thread/start', { cwd: codex.work, approvalPolicy: 'never', sandbox: 'danger-full-access' })
    const turn = async (text, changes) => {
      await ask('turn/start', { threadId, input: [{ type: 'text', text, text_elements: [] }], ...changes })
      await done()
    }
    await turn(codex.rounds('first'))
    await turn('The sandbox.', { sandboxPolicy: { type: 'readOnly', networkAccess: false } })
    await turn(codex.rounds('asks', { cmd: 'touch made' }), { approvalPolicy: 'untrusted', sandboxPolicy: { type: 'dangerFullAccess' } })
    await turn('The model.', { model: 'gpt-5.1-codex' })
    await ask('thread/compact/start', { threadId })
    await done()
    await turn(codex.rounds('compacted'), { approvalPolicy: 'never' })
    await turn('The model again.', { model: 'gpt-5' })
    assert.ok(asked > 0, 'it asks before a command')
  } finally {
    child.kill('SIGKILL')
  }
}

async function codexLoops(t, backend) {
  const codex = new Codex(t)
  const look = t.stack.watch()
  assert.match((await codex.say('Hello, mneme.')).text, /You said: /)
  for (const n of [1, 2]) {
    const told = await codex.say(codex.rounds(`turn ${n}`))
    assert.equal(told.text, `Done: turn ${n}`)
    assert.equal(commands(told), 2)
    assert.ok(told.usage.input_tokens > 0 && told.usage.output_tokens > 0)
    if (backend !== 'generic') assert.equal(told.items.filter((i) => i.type === 'reasoning').length, 3)
  }
  const both = script('both', [think('Both.'), call('exec_command', { cmd: 'cat sample' }), call('exec_command', { cmd: 'cat ./sample' })], [think('Well.'), say('Both done.')])
  const told = await codex.say(both)
  assert.deepEqual([told.text, commands(told)], ['Both done.', 2])
  if (backend === 'generic') return
  const got = replayed(look())
  assert.deepEqual(got, got.map((_, n) => got[0] + n), 'each call has all that was thought before')
}

/** There and back again: between the steps, and in the last one by the commands that the model runs. */
async function codexSwitched(t, way) {
  const codex = new Codex(t)
  const look = t.stack.watch()
  for (const [n, backend] of [...way, way[0]].entries()) {
    await t.use(backend)
    assert.equal((await codex.say(codex.rounds(`step ${n}`))).text, `Done: step ${n}`)
  }
  const use = (backend) => ({ cmd: `MNEME_URL=${t.url} ${join(t.stack.bin, 'mneme')} proxy use ${backend}` })
  assert.equal((await codex.say(codex.rounds('switches', use(way[1]), use(way[2] ?? way[0])))).text, 'Done: switches')
  ownThoughts(look())
}

/** It is killed by the command that it runs, and resumed. */
async function codexKilled(t) {
  const codex = new Codex(t)
  await codex.say(codex.rounds('before'))
  assert.notEqual((await codex.say(codex.rounds('killed', { cmd: 'cat sample' }, { cmd: 'kill -9 $PPID' }), { fails: true })).code, 0)
  // The fake vendor takes what stands beside a result for a remark and goes on with what it was about.
  await codex.say('Go on.')
  assert.equal((await codex.say(codex.rounds('after'))).text, 'Done: after')
}

/** A picture that the user shows, and one that the model looks at. */
async function codexPictures(t) {
  const codex = new Codex(t)
  const look = t.stack.watch()
  const view = script('Look.', [think('A look.'), call('view_image', { path: join(codex.work, 'sample.png') })], [think('Seen.'), say('It is white.')])
  await codex.say(view, { args: ['--image', join(codex.work, 'sample.png')] })
  assert.deepEqual(look().calls.map((c) => c.documents), [1, 2])
}

/** The vendor is overloaded for a while: codex asks again of itself. */
async function codexOverloaded(t) {
  const codex = new Codex(t)
  await t.stack.fail('manual', { status: 529, first: 'messages', message: 'Overloaded', times: 4 })
  assert.match((await codex.say('Hello, mneme.')).text, /You said: /)
}

/** A stream that breaks off in the middle is asked for again. */
async function codexTorn(t) {
  const codex = new Codex(t)
  const words = script(`${t.key} torn`, [think('Slowly thought.'), say('All of it has come, in many small pieces.'), { cut: { after: 7, times: 1 } }])
  assert.equal((await codex.say(words)).text, 'All of it has come, in many small pieces.')
}

/** What the user sees of an error that stays. */
async function codexRefused(t) {
  const codex = new Codex(t)
  await t.stack.fail('manual', { status: 400, body: JSON.stringify({ type: 'error', error: { type: 'invalid_request_error', message: 'No such thing as marmalade.' } }) })
  const { failed } = await codex.say('Hello, mneme.', { fails: true })
  assert.match(JSON.stringify(failed), /No such thing as marmalade/)
}

const title = (name, list) => list.map((s) => ({ ...s, name: `${name}${s.backend ? `, ${s.backend}` : ''}: ${s.name}` }))
const each = (backends, scenario) => backends.map((backend) => ({ backend, ...scenario(backend) }))

export const scenarios = [
  ...title('openai sdk, responses', [
    ...each(everywhere, () => ({ name: 'whole and streamed', run: wholeAndStreamed })),
    ...each(everywhere, (backend) => ({ name: 'thinking between tools, streamed', run: (t) => interleaved(t, { backend }) })),
    ...each(everywhere, (backend) => ({ name: 'thinking between tools, conversation named', run: (t) => interleaved(t, { backend, stream: false, conversation: t.conversation }) })),
    ...each(everywhere, (backend) => ({ name: 'a client that keeps no reasoning', run: (t) => interleaved(t, { backend, keeps: false, conversation: t.conversation }) })),
    ...each(everywhere, () => ({ name: 'parallel tools', run: parallelTools })),
    ...each(['manual', 'kimi', 'deepseek-chat', 'gpt'], () => ({ name: 'left in the middle', run: (t) => aborted(t) })),
    ...each(['manual', 'kimi', 'deepseek-chat', 'gpt'], () => ({ name: 'left in the middle, conversation named', run: (t) => aborted(t, t.conversation) })),
    ...each(['adaptive', 'kimi', 'kimi-chat', 'generic', 'gpt'], () => ({ name: 'images', run: pictures })),
  ]),
  ...ways.flatMap((way) => ['', ', conversation named'].map((suffix) => ({
    backend: way[0], name: `openai sdk, responses, ${way.join(' ⇄ ')}: switched there and back${suffix}`, run: (t) => switched(t, way, suffix && t.conversation),
  }))),
  { name: 'responses, errors: 400 is a BadRequestError', failed: 1, run: badRequests },
  { name: 'responses, errors: 401 is an AuthenticationError, passthrough', backend: 'keyed', failed: 1, refused: 1, run: wrongKeys },
  { name: 'responses, errors: 429 is a RateLimitError with retry-after', backend: 'limited', failed: 2, run: rateLimits },
  ...title('codex, responses', [
    ...each(everywhere, (backend) => ({ name: 'turns with tools', run: (t) => codexLoops(t, backend) })),
    ...each(['manual', 'kimi-chat', 'gpt'], () => ({ name: 'killed in a command, resumed', run: codexKilled })),
    ...each(['adaptive', 'generic', 'gpt'], () => ({ name: 'images', run: codexPictures })),
    ...each(['manual', 'opus-4-8', 'kimi', 'deepseek', 'template', 'gpt'], () => ({ name: 'a session with other settings on the way', run: codexSession })),
  ]),
  ...ways.map((way) => ({ backend: way[0], name: `codex, responses, ${way.join(' ⇄ ')}: switched there and back`, run: (t) => codexSwitched(t, way) })),
  ...[['an overload that passes', codexOverloaded], ['a stream that breaks off', codexTorn], ['an error that stays', codexRefused]].map(([name, run]) => ({
    backend: 'failing-codex', failed: Infinity, refused: Infinity, name: `codex, responses, faults: ${name}`, run,
  })),
]
