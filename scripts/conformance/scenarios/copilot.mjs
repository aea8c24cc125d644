// The GitHub Copilot CLI as a backend, without an account; see docs/copilot.md.
import assert from 'node:assert/strict'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { lines, signal, stop, until } from '../processes.mjs'
import { up } from '../stack.mjs'
import { ChatTalk, MessagesTalk, anthropic, openai, textOf, useTheTool } from '../talk.mjs'

export const program = fileURLToPath(new URL(`../node_modules/@github/copilot-${process.platform}-${process.arch}/copilot`, import.meta.url))
export const lacks = () => (existsSync(program) ? '' : 'the Copilot CLI has no program for this machine')

// What answers the CLI's own model calls.
export const vendors = { behind: ['-vendor', 'chat', '-name', 'behind'] }

/** mneme up with the CLI as its active backend and a panel whose members are the CLI too. */
class House {
  static async open(t) {
    const h = new House()
    h.dir = join(t.dir, 'up')
    const { url, gateway, mneme } = await up({ stack: t.stack, dir: h.dir }, {
      proxy: {
        active: 'cli', backends: {
          cli: { kind: 'copilot', command: [program], provider_backend: 'behind', model_map: { '*': 'any-model' } },
          behind: { kind: 'openai', vendor: 'generic', base_url: `${t.stack.vendorURLs.behind}/v1` },
        },
      },
      panel: { members: [{ name: 'one' }, { name: 'two' }, { name: 'three' }] },
    })
    Object.assign(h, { t, mneme, url: gateway, webmemory: url })
    await until(h.mneme, 'mneme up', async () => (await h.ready()) === 'ready')
    return h
  }

  /** What /readyz says of the gateway. */
  async ready() {
    return fetch(`${this.url}/readyz`).then(async (r) => (await r.json()).status, () => '')
  }

  /** The CLI's processes. */
  processes() {
    const parents = readdirSync('/proc').filter((n) => /^\d+$/.test(n)).map((pid) => {
      try {
        return [Number(pid), Number(readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/.*\) . /s, '').split(' ')[0])]
      } catch {
        return [0, 0] // it has ended
      }
    })
    const all = [this.mneme.child.pid]
    for (const pid of all) all.push(...parents.filter(([, parent]) => parent === pid).map(([child]) => child))
    return all.slice(1)
  }

  signal(name) {
    for (const pid of this.processes()) process.kill(pid, name)
  }

  /** How many sessions the CLI has, by what they do. */
  async sessions() {
    const text = await (await fetch(`${this.url}/metrics`)).text()
    return Object.fromEntries([...text.matchAll(/^mneme_proxy_copilot_sessions\{.*state="(\w+)".*\} (\d+)/gm)].map(([, state, n]) => [state, Number(n)]))
  }

  async close() {
    this.signal('SIGCONT')
    await stop(this.mneme, 20_000)
  }
}

const within = (run) => async (t) => {
  const house = await House.open(t)
  try {
    await run({ ...t, url: house.url }, house)
  } finally {
    await house.close()
  }
}

async function tools(t) {
  for (const named of [{}, t]) {
    const chat = new ChatTalk(openai(t, named))
    const messages = new MessagesTalk(anthropic(t, named && { conversation: named.conversation && `${named.conversation}-2` }), {})
    for (let n = 0; n < 2; n++) {
      assert.match((await chat.turn(useTheTool)).message.content, /The tool gave: Sunny in sample\./)
      assert.match(textOf(await messages.turn(useTheTool)), /The tool gave: Sunny in sample\./)
    }
  }
}

/** A vendor that is out of calls is asked by the CLI alone, and its words and its retry-after reach the client. */
async function rateLimited(t, house) {
  const asked = () => lines(t.stack.vendors.behind).filter((l) => / chat/.test(l)).length
  const from = asked()
  await t.stack.fail('behind', { status: 429, retry_after: 7, times: 6 })
  const began = Date.now()
  const e = await openai(t).chat.completions.create({ model: 'gpt-5', messages: [{ role: 'user', content: 'Hello.' }] })
    .then(() => assert.fail('it did not fail'), (error) => error)
  const calls = asked() - from
  console.log(`        ${calls} calls of the vendor in ${((Date.now() - began) / 1000).toFixed(1)} s; the user sees ${e.status}, retry-after ${e.headers.get('retry-after')}: ${e.message}`)
  assert.equal(e.status, 429)
  assert.equal(e.headers.get('retry-after'), '7')
  assert.match(e.message, /would exceed your account's rate limit/)
  assert.doesNotMatch(e.message, /COPILOT|environment|variable/i)
  assert.ok(calls <= 6, `${calls} calls of the vendor`)
  assert.match((await openai(t).chat.completions.create({ model: 'gpt-5', messages: [{ role: 'user', content: 'Again.' }] })).choices[0].message.content, /Again/)
}

async function over(t, house) {
  const client = openai(t, t)
  const ask = (headers) => client.chat.completions.create({ model: 'gpt-5', messages: [{ role: 'user', content: 'Hello.' }] }, { headers })
  await ask({})
  assert.equal((await house.sessions()).idle, 1)
  await ask({ 'X-AG-Conversation-Over': 'true', 'X-AG-Conversation-Id': `${t.conversation}-2` })
  assert.equal((await house.sessions()).idle, 1, 'what was over has left nothing')
}

/** Each answer, review, plan and vote of a panel is a session; none is left, whatever comes of it. */
async function panel(t, house) {
  const from = lines(t.stack.vendors.behind).length
  for (const version of ['discuss', 'ensemble']) {
    const answer = await fetch(`${house.webmemory}/v1/chats/1/messages`, {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ message: 'Which way?', agent_version: version }),
    })
    await answer.text()
  }
  assert.ok(lines(t.stack.vendors.behind).length >= from + 9, 'three answers, three reviews, three plans')
  const left = await house.sessions()
  assert.ok('idle' in left && Object.values(left).every((n) => n === 0), JSON.stringify(left))
}

/** A CLI that hangs makes the gateway degraded, costs one call its waiting and the others nothing, and is started again. */
async function hangs(t, house) {
  const ask = () => openai(t).chat.completions.create({ model: 'gpt-5', messages: [{ role: 'user', content: 'Hello.' }] })
  const timed = async () => {
    const began = Date.now()
    const answer = await ask().catch((e) => e)
    return { answer, seconds: (Date.now() - began) / 1000 }
  }
  await ask()
  house.signal('SIGSTOP')
  const first = await timed()
  const ready = await house.ready()
  const next = [await timed(), await timed(), await timed()]
  console.log(`        the first call: ${first.answer.status} after ${first.seconds.toFixed(1)} s; /readyz ${ready}; the next: ${next.map((n) => `${n.answer.status} after ${n.seconds.toFixed(2)} s`).join(', ')}`)
  assert.equal(first.answer.status, 503)
  assert.equal(ready, 'degraded')
  for (const n of next) {
    assert.equal(n.answer.status, 503)
    assert.ok(n.answer.headers.get('retry-after'))
  }
  await until(house.mneme, 'another CLI', async () => (await house.ready()) === 'ready' || sleep(1000).then(() => false))
  assert.ok((await ask()).choices)
}

export const scenarios = [
  { name: 'turns with a tool, both dialects', run: tools },
  { name: 'a vendor out of calls', refused: 6, run: rateLimited },
  { name: 'a conversation that is over', run: over },
  { name: 'the sessions of a panel', run: panel },
  { name: 'it hangs', run: hangs },
].map((s) => ({ ...s, name: `copilot cli: ${s.name}`, run: within(s.run), lacks }))
