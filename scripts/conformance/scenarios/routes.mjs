// Routes: each client through three backends of three dialects, which die one after the other inside a loop of tools.
import assert from 'node:assert/strict'
import { appendFileSync, existsSync, readFileSync } from 'node:fs'
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

// Backends of their own, as what fails counts against a backend.
const title = (client, way, name = '') => `dies ${client} ${way[0]} ${name}`.replaceAll(/[^a-z]+/g, '-')
const all = Object.keys(clients).flatMap((client) => ways.map((way) => ({ client, way })))
export const backends = (url) => Object.fromEntries(all.flatMap(({ client, way }) => way.map((name) => [title(client, way, name), kinds[name].config(url)])))
export const routes = Object.fromEntries(all.map(({ client, way }) => [title(client, way), { use: way.map((name) => title(client, way, name)) }]))

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
      if (model && process.env.DUMP) { const parts=[]; asked.on('data',(d)=>parts.push(d)); asked.on('end',()=>appendFileSync(process.env.DUMP, Buffer.concat(parts)+'\n')) }
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
async function dies(t, client, way) {
  const [a, b, c] = way
  const front = await Front.open(t.url)
  const speaker = clients[client]({ ...t, url: front.url }, t.conversation)
  const die = (name) => t.stack.fail(kinds[name].vendor, { status: kinds[name].dead, times: 1000 })
  const look = t.stack.watch()
  const answeredBy = async (words, before, ...expected) => {
    Object.assign(front, { answers: [], seen: 0, before })
    const called = speaker.calls()
    assert.equal(await speaker.say(words), `Done: ${words}`)
    assert.equal(speaker.calls(), called + 2, 'calls of the tool')
    const names = expected.map((some) => new RegExp(`^200 (${some.map((name) => title(client, way, name)).join('|')})$`))
    assert.ok(front.answers.length === names.length && names.every((name, n) => name.test(front.answers[n])), `${words}: ${front.answers}`)
  }
  try {
    await answeredBy('one', { 2: () => die(a) }, [a], [b], [b])
    await answeredBy('two', { 3: () => die(b) }, [b], [b], [c])
    await t.stack.fail(kinds[a].vendor)
    await answeredBy('three', { 2: () => die(c) }, [a, c], [a], [a])
    await answeredBy('four', {}, [a], [a], [a])
  } finally {
    front.server.close()
    for (const name of way) await t.stack.fail(kinds[name].vendor)
  }
  for (const { vendor, dead } of Object.values(kinds)) {
    const calls = look().calls.filter((one) => one.vendor === vendor && !one.line.startsWith(`${dead} `))
    assert.deepEqual(calls.filter(({ line }) => !/^200 .* thinking/.test(line) || /: | (dropped|lost) /.test(line)), [])
    // What others thought is no use to some, and taken by others.
    const own = calls.map((one) => one.replayed)
    assert.ok(own.every((n, at) => (vendor === 'adaptive' ? n === at : n >= at)), `${vendor} got ${own} of its own thoughts`)
  }
}

export const scenarios = all.map(({ client, way }) => ({
  name: `route, ${client}: ${way.join(' → ')}, which die inside loops`, backend: title(client, way), refused: Infinity, run: (t) => dies(t, client, way),
}))
