// webmemory's door for useChat: the AI SDK's own chat and transport, without a page around them.
import assert from 'node:assert/strict'
import { AbstractChat, DefaultChatTransport } from 'ai'
import { until } from '../processes.mjs'
import { say, script } from '../talk.mjs'
import { House } from './endpoint.mjs'

/** What a page keeps of a chat. */
class State {
  constructor(messages) {
    Object.assign(this, { status: 'ready', error: undefined, messages })
  }

  pushMessage = (m) => void (this.messages = [...this.messages, m])
  popMessage = () => void (this.messages = this.messages.slice(0, -1))
  replaceMessage = (at, m) => void (this.messages = this.messages.with(at, structuredClone(m)))
  snapshot = (v) => structuredClone(v)
}

export class Chat extends AbstractChat {
  constructor(url, messages = [], more = {}) {
    super({ ...more, id: 'page', state: new State(messages), transport: new DefaultChatTransport({ api: `${url}/v1/chats/1/ui` }) })
  }

  get texts() {
    return this.messages.map((m) => m.parts.filter((p) => p.type === 'text').map((p) => p.text.split(' SCRIPT')[0]).join(' '))
  }
}

const words = (n) => script(`Turn ${n}.`, [say(`Answer ${n}.`)])
const turns = (...numbers) => numbers.flatMap((n) => [`Turn ${n}.`, `Answer ${n}.`])
const stored = (...numbers) => numbers.flatMap((n) => [`user: Turn ${n}.`, `assistant: Answer ${n}.`])

const stories = {
  async 'submit, regenerate and edit'(h) {
    const page = new Chat(h.url)
    for (const n of [1, 2, 3]) await page.sendMessage({ text: words(n) })
    assert.ifError(page.error)
    assert.deepEqual(page.texts, turns(1, 2, 3))
    const { run, usage } = page.lastMessage.metadata
    assert.equal(page.lastMessage.id, run)
    assert.ok(usage.inputTokens > 0 && usage.totalTokens === usage.inputTokens + usage.outputTokens)
    await page.regenerate()
    assert.deepEqual(page.texts, turns(1, 2, 3))
    await page.sendMessage({ text: words(4), messageId: page.messages[2].id })
    assert.deepEqual(page.texts, turns(1, 4))
    assert.deepEqual(await h.remembers(), stored(1, 4))
    const { messages } = await h.get('/v1/chats/1/history') // as a page has them that is loaded anew
    const anew = new Chat(h.url, messages.map((m) => ({ id: m.id, role: m.role, parts: [{ type: 'text', text: m.content }] })))
    await anew.regenerate()
    assert.ifError(anew.error)
    assert.deepEqual(await h.remembers(), stored(1, 4))
  },
  async 'resume'(h) {
    const text = Array.from({ length: 200 }, (_, n) => `part ${n}`).join(' ')
    const page = new Chat(h.url)
    const sent = page.sendMessage({ text: script('Long.', [say(text)]) })
    await until(h.mneme, 'the beginning of the answer', () => page.messages[1]?.parts.some((p) => p.text))
    await page.stop()
    await sent
    assert.notEqual(page.texts[1], text)
    const other = new Chat(h.url, page.messages.slice(0, 1))
    await other.resumeStream()
    assert.ifError(other.error)
    assert.equal(other.texts[1], text)
    await other.resumeStream() // nothing is there any more
    assert.equal(other.status, 'ready')
    assert.equal(other.messages.length, 2)
  },
  async 'errors'(h) {
    const page = new Chat(h.url)
    await page.sendMessage({ text: ' ' })
    assert.equal(page.error.message, 'message is missing or empty.')
    assert.equal(page.error.statusCode, 400)
    await page.sendMessage({ text: words(1) })
    assert.ifError(page.error)
    assert.deepEqual(await h.remembers(), stored(1))
  },
}

export const scenarios = Object.entries(stories).map(([name, story]) => ({
  name: `webmemory: useChat of ai 7, ${name}`,
  run: async (context) => {
    const h = await House.open(context, name === 'resume' ? 'slow' : 'generic')
    await story(h)
    await h.end()
  },
}))
