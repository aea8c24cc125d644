// Streams that break: webmemory's, read by a client that opens them again, and the gateway's, read by plain fetch.
import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { createServer, connect } from 'node:net'
import { join } from 'node:path'
import { fetchEventSource } from '@microsoft/fetch-event-source'
import { signal } from '../processes.mjs'
import { redisServer, up } from '../stack.mjs'
import { say, script, think } from '../talk.mjs'

export const vendors = { slow: ['-vendor', 'chat', '-delay', '20ms'] }
const slow = (url) => ({ slow: { kind: 'openai', vendor: 'generic', base_url: `${url.slow}/v1`, model_map: { '*': 'generic-model' } } })

const whole = Array.from({ length: 60 }, (_, n) => `This is part ${n} of a long answer.`).join(' ')

/** All of mneme over a Redis of its own. */
class House {
  static async open(t) {
    const h = new House()
    h.dir = join(t.dir, 'up')
    mkdirSync(h.dir)
    const { p, url } = await redisServer(h.dir)
    Object.assign(h, { processes: [p] }, await up({ stack: t.stack, dir: h.dir },
      { redis: { url }, proxy: { active: 'slow', backends: slow(t.stack.vendorURLs) } }))
    return h
  }

  async up() {
    this.mneme = await this.again()
  }

  async kill() {
    signal(this.mneme, 'SIGKILL')
    await this.mneme.ended
  }

  /** Begins a run that takes some seconds; gives the path of its events. */
  async begin() {
    const answer = await fetch(`${this.url}/v1/chats/1/messages`, {
      method: 'POST', headers: { 'content-type': 'application/json', prefer: 'respond-async' },
      body: JSON.stringify({ message: script('Tell me.', [think('Slowly.'), say(whole)]) }),
    })
    assert.equal(answer.status, 202)
    return (await answer.json()).events
  }

  close() {
    for (const p of [...this.processes, this.mneme]) signal(p, 'SIGKILL')
  }
}

/** Passes connections on to a port; the first ones are cut after so many bytes of the answer, in turns by a reset and as if all were said. */
function cutter(port, cuts) {
  let cut = 0
  const server = createServer((client) => {
    const to = connect(port, '127.0.0.1')
    let left = cuts[0] ? cuts.shift() : Infinity
    for (const s of [client, to]) s.on('error', () => {}).on('close', () => { client.destroy(); to.destroy() })
    client.pipe(to)
    to.on('data', (data) => {
      client.write(data.subarray(0, left))
      if ((left -= data.length) > 0) return
      left = Infinity
      to.removeAllListeners('data').destroy()
      if (cut++ % 2) client.resetAndDestroy()
      else client.end()
    })
  })
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve({ server, url: `http://127.0.0.1:${server.address().port}`, cuts: () => cut })))
}

// What the client expects of a browser.
const noListener = { addEventListener() {}, removeEventListener() {}, hidden: false }

/** Reads events as a page would, and opens the stream again for as long as it breaks; each is heard of. */
async function readAll(url, heard = async () => {}) {
  Object.assign(globalThis, { window: globalThis, document: noListener })
  const events = []
  let opened = 0
  await fetchEventSource(url, {
    openWhenHidden: true,
    onopen: async (r) => { opened++; if (!r.ok) throw new Error(`status ${r.status}`) },
    onmessage: (e) => { if (e.event) { events.push(e); heard(events) } },
    onerror: () => undefined, // again, after what the stream said
  })
  return { events, opened }
}

function complete({ events }) {
  assert.deepEqual(events.map((e) => Number(e.id)), events.map((_, i) => i + 1), 'each event once and in order')
  assert.equal(events.at(-1).event, 'run_finished')
}

const textOf = (events) => events.filter((e) => e.event === 'assistant').map((e) => JSON.parse(e.data).content).join('')

async function cutInBetween(t) {
  const house = await House.open(t)
  const between = await cutter(new URL(house.url).port, [700, 1500, 300, 4000, 900])
  try {
    const read = await readAll(between.url + await house.begin())
    complete(read)
    assert.equal(between.cuts(), 5)
    assert.ok(read.opened >= 5, `opened ${read.opened} times`)
    assert.equal(textOf(read.events), whole)
  } finally {
    between.server.close()
    house.close()
  }
}

async function killed(t) {
  const house = await House.open(t)
  try {
    let restarted
    const read = await readAll(house.url + await house.begin(), (events) => {
      if (events.length > 20) restarted ??= house.kill().then(() => house.up())
    })
    await restarted
    complete(read)
    assert.ok(read.opened >= 2 && read.events.length > 20)
  } finally {
    house.close()
  }
}

const ask = (t, path, words) => fetch(t.url + path, {
  method: 'POST', headers: { 'content-type': 'application/json', 'x-api-key': t.key, authorization: `Bearer ${t.key}` },
  body: JSON.stringify({ model: 'master', max_tokens: 3000, stream: true, messages: [{ role: 'user', content: words }] }),
})
const ended = { '/v1/messages': /event: message_stop/, '/v1/chat/completions': /"finish_reason":"stop"/ }

/** A reader that knows nothing of events hears that a stream is not whole: by an event, or as fetch's own error. */
async function plain(t, path, how) {
  let broke = 0
  for (let after = 1; after < 12; after += 2) {
    const words = script(`${t.key} ${after}`, [think('Slowly.'), say('All of it has come, in many small pieces.'), { cut: { after, ...how } }])
    const answer = await ask(t, path, words)
    const text = await answer.text().catch((e) => e)
    if (!answer.ok) assert.equal(answer.status, 502, text) // nothing of the answer had come
    if (text instanceof TypeError || !answer.ok) broke++
    else if (/"error":\s*\{/.test(text)) broke++
    else assert.match(text, ended[path], `cut after ${after} events, fetch took this for whole: ${text.slice(-700)}`)
  }
  assert.ok(broke >= 3, `only ${broke} broke off`)
}

async function gatewayKilled(t, path) {
  const answer = await ask(t, path, script('Slowly.', [say(whole)]))
  const reader = answer.body.getReader()
  const rest = async () => { for (let r = await reader.read(); !r.done; r = await reader.read()); }
  await reader.read()
  signal(t.stack.gateway, 'SIGKILL')
  await assert.rejects(rest(), TypeError)
  await t.stack.gateway.ended
  await t.stack.startGateway()
}

const ways = { 'the vendor breaks off': {}, 'the vendor breaks off inside an event': { inside: true }, 'the vendor just ends': { clean: true } }
const anyFailures = { failed: Infinity, refused: Infinity }
/** Each has a backend of its own, since the circuit breaker leaves one alone once many of its streams broke off. */
const cuts = ['manual', 'generic'].flatMap((on) => Object.keys(ended).flatMap((path) => Object.keys(ways).map((way) =>
  ({ backend: `cut, ${on}, ${path}, ${way}`.replaceAll(/[^a-z]+/g, '-'), on, path, way }))))

export const backends = (url) => Object.assign(slow(url), Object.fromEntries(cuts.map(({ backend, on }) => [backend, on === 'manual'
  ? { kind: 'anthropic', vendor: 'anthropic', base_url: url.manual, model_map: { '*': 'claude-sonnet-4-5' } }
  : { kind: 'openai', vendor: 'generic', base_url: `${url.generic}/v1`, model_map: { '*': 'generic-model' } }])))

export const scenarios = [
  { name: 'fetch-event-source, webmemory: its connection is cut five times', needsRedis: true, run: cutInBetween },
  { name: 'fetch-event-source, webmemory: killed and started again', needsRedis: true, run: killed },
  ...cuts.map(({ backend, on, path, way }) => ({
    ...anyFailures, backend, name: `plain fetch, ${path} on ${on}: ${way}`, run: (t) => plain(t, path, ways[way]),
  })),
  ...Object.keys(ended).map((path) => ({ name: `plain fetch, ${path} on slow: the gateway is killed`, backend: 'slow', needsRedis: true, run: (t) => gatewayKilled(t, path) })),
]
