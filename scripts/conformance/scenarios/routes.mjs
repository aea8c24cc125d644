// Routes: each client through three backends of three dialects, which die one after the other inside a loop of tools.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { createServer, request } from 'node:http'
import { join } from 'node:path'
import { frameworks } from '../clients.mjs'
import { ChatTalk, MessagesTalk, ResponsesTalk, anthropic, call, openai, rounds, say, script, textOf, think } from '../talk.mjs'
import { Session } from './claude.mjs'
import { Codex } from './responses.mjs'

/** By backend, its vendor, how that one is when it is dead (0 is a connection that is cut) and its configuration. */
const kinds = {
  claude: { vendor: 'adaptive', dead: 529, config: (url) => ({ kind: 'anthropic', vendor: 'anthropic', base_url: url.adaptive, model_map: { '*': 'claude-opus-4-8' } }) },
  gpt: { vendor: 'openai', dead: 503, config: (url) => ({ kind: 'responses', vendor: 'openai', base_url: `${url.openai}/v1`, model_map: { '*': 'gpt-5.1' } }) },
  kimi: { vendor: 'kimi', dead: 0, config: (url) => ({ kind: 'openai', vendor: 'kimi', base_url: `${url.kimi}/v1`, model_map: { '*': 'kimi-k2.6' } }) },
}
const ways = [['claude', 'gpt', 'kimi'], ['gpt', 'kimi', 'claude'], ['kimi', 'claude', 'gpt']]

const sdk = (talk, said) => {
  let calls = 0
  return { say: async (words) => said(await talk.turn(rounds(words), async () => { calls++ })), calls: () => calls }
}
const framework = (name) => (t, conversation) => {
  const talk = new frameworks[name](t, { conversation })
  return { say: async (words) => (await talk.turn(rounds(words))).text, calls: () => talk.cities.length }
}
/** Each run of the command that the model gives to an agent leaves a line. */
const command = 'echo called >> called'
const commands = ({ work }) => (existsSync(join(work, 'called')) ? readFileSync(join(work, 'called'), 'utf8').split('\n').length - 1 : 0)

/** By client, what gives its way to say something to which the model answers with two calls of a tool, and how often the tool was called. */
const clients = {
  'anthropic sdk': (t, conversation) => sdk(new MessagesTalk(anthropic(t, { conversation })), textOf),
  'openai sdk': (t, conversation) => sdk(new ChatTalk(openai(t, { conversation })), (choice) => choice.message.content),
  'openai sdk, responses': (t, conversation) => sdk(new ResponsesTalk(openai(t, { conversation })), (answer) => answer.output_text),
  ...Object.fromEntries(['ai sdk, messages', 'ai sdk, chat', 'ai sdk, responses'].map((name) => [name, framework(name)])),
  'claude code': (t, conversation) => {
    const session = new Session(t, { conversation })
    const bash = (description) => call('Bash', { command, description })
    const turn = (words) => script(words, [think(`First. ${words}`), bash('Once')], [think(`Again. ${words}`), bash('Twice')], [think(`Both. ${words}`), say(`Done: ${words}`)])
    return { say: async (words) => (await session.say(turn(words), { tools: 'Bash' })).result, calls: () => commands(session) }
  },
  'codex': (t) => { // which names its conversations itself
    const codex = new Codex(t)
    return { say: async (words) => (await codex.say(codex.rounds(words, { cmd: command }, { cmd: command }))).text, calls: () => commands(codex) }
  },
}

const all = Object.keys(clients).flatMap((client) => [
  ...ways.map((way) => ({ client, way, named: true })),
  ...(client === 'codex' ? [] : [{ client, way: ways[0], named: false }]),
])
// Backends of their own, as what fails counts against a backend.
const title = ({ client, way, named }, name = '') => `dies ${named ? '' : 'unnamed'} ${client} ${way[0]} ${name}`.replaceAll(/[^a-z]+/g, '-')
export const backends = (url) => Object.fromEntries(all.flatMap((one) => one.way.map((name) => [title(one, name), kinds[name].config(url)])))
export const routes = Object.fromEntries(all.map((one) => [title(one), { use: one.way.map((name) => title(one, name)) }]))

/** Stands before the gateway and notes the status of each call of a model and the backend that answered; before[n] runs before the call n is passed on. */
class Front {
  static async open(url) {
    const f = Object.assign(new Front(), { answers: [], before: {}, seen: 0 })
    f.server = createServer(async (asked, answer) => {
      const model = asked.method === 'POST' && /\/(messages|completions|responses)$/.test(new URL(asked.url, url).pathname)
      if (model) await f.before[++f.seen]?.()
      const passed = request(url + asked.url, { method: asked.method, headers: asked.headers }, (from) => {
        if (model) f.answers.push(`${from.statusCode} ${from.headers['x-ag-backend']}`)
        from.pipe(answer.writeHead(from.statusCode, from.headers))
      })
      asked.pipe(passed.on('error', () => answer.destroy()))
    })
    await new Promise((resolve) => f.server.listen(0, '127.0.0.1', resolve))
    f.url = `http://127.0.0.1:${f.server.address().port}`
    return f
  }
}

/**
 * The first backend of a route dies before the second call of a loop, the second one in the next loop. Then the first
 * one is well again and the third one dies. A loop may begin where the last one was, or at the first choice.
 */
async function dies(t, one) {
  const { client, way, way: [a, b, c], named } = one
  const front = await Front.open(t.url)
  const speaker = clients[client]({ ...t, url: front.url }, named && t.conversation)
  const die = (name) => t.stack.fail(kinds[name].vendor, { status: kinds[name].dead, times: 1000 })
  const look = t.stack.watch()
  const loop = async (words, before, ...expected) => {
    Object.assign(front, { answers: [], seen: 0, before })
    const called = speaker.calls()
    assert.equal(await speaker.say(words), `Done: ${words}`)
    assert.equal(speaker.calls(), called + 2, 'calls of the tool')
    const answered = expected.map((some) => new RegExp(`^200 (${some.map((name) => title(one, name)).join('|')})$`))
    assert.ok(front.answers.length === answered.length && answered.every((by, n) => by.test(front.answers[n])), `${words}: ${front.answers}`)
  }
  try {
    await loop('one', { 2: () => die(a) }, [a], [b], [b])
    await loop('two', { 3: () => die(b) }, [b], [b], [c])
    await t.stack.fail(kinds[a].vendor)
    await loop('three', { 2: () => die(c) }, [a, c], [a], [a])
    await loop('four', {}, [a], [a], [a])
  } finally {
    front.server.close()
    for (const name of way) await t.stack.fail(kinds[name].vendor)
  }
  for (const [name, { vendor, dead }] of Object.entries(kinds)) {
    const calls = look().calls.filter((c) => c.vendor === vendor)
    const taken = calls.filter(({ line }) => !line.startsWith(`${dead} `))
    assert.deepEqual(taken.filter(({ line }) => !/^200 .* thinking/.test(line) || /: | dropped /.test(line) || named && / lost /.test(line)), [])
    // A loop stays where it went: two attempts when the backend dies, two when the next loop begins, two when the other one dies.
    if (name === a) assert.ok(calls.length - taken.length <= 6, `${name} was asked ${calls.length - taken.length} times while it was dead`)
    // What others thought is no use to Claude, and taken by others. Without a name, what belongs to no call may not be known again.
    const own = taken.map((c) => c.replayed)
    const fits = (n, at) => (!named ? n >= Math.floor(at / 2) : vendor === 'adaptive' ? n === at : n >= at)
    assert.ok(own.every(fits), `${name} got ${own} of its own thoughts`)
  }
}

export const scenarios = all.map((one) => ({
  name: `route, ${one.client}: ${one.way.join(' → ')}${one.named ? '' : ', conversation not named'}`,
  backend: title(one), refused: Infinity, run: (t) => dies(t, one),
}))
