// webmemory's chat completions and Responses: clients that send their whole transcript, or say where in it they stand, get
// a chat whose memory webmemory owns.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import OpenAI from 'openai'
import { zodTextFormat } from 'openai/helpers/zod'
import { Agent, OpenAIProvider, Runner, tool as agentsTool } from '@openai/agents'
import { createOpenAI } from '@ai-sdk/openai'
import { generateText } from 'ai'
import { z } from 'zod'
import { compatible, responding } from '../clients.mjs'
import { stop, until } from '../processes.mjs'
import { up } from '../stack.mjs'
import { call, forecast, say, script } from '../talk.mjs'

const slowAnswer = Array.from({ length: 400 }, (_, n) => `part ${n}`).join(' ')

/** A whole mneme before a vendor of the stack; more goes into its configuration. */
export class House {
  static async open({ stack, dir }, vendor = 'generic', more = {}) {
    const h = new House()
    Object.assign(h, await up({ stack, dir }, { proxy: { active: 'one', backends: {
      one: { kind: 'openai', vendor: 'generic', base_url: `${stack.vendorURLs[vendor]}/v1`, model_map: { '*': 'generic-model' } } } }, ...more }))
    return h
  }

  async get(path) {
    const answer = await fetch(`${this.url}${path}`)
    assert.equal(answer.status, 200, path)
    return answer.json()
  }

  /** What the chat remembers: the first line of each message, with its role. */
  async remembers(chat = '1') {
    const { messages } = await this.get(`/v1/chats/${chat}/history`)
    return messages.map((m) => `${m.role}: ${m.content.split(' SCRIPT')[0]}`)
  }

  /** How many messages were taken back and can be put back. */
  async setAside(chat = '1') {
    const { set_aside: all } = await this.get(`/v1/chats/${chat}/set-aside`)
    return all.reduce((n, s) => n + s.histories.find((h) => h.subagent === '').messages, 0)
  }

  end() {
    return stop(this.mneme)
  }
}

/** The openai package, with a transcript that its caller keeps. */
class SDKTalk {
  constructor({ url }, { path, stream = true, name }) {
    Object.assign(this, { stream, name, messages: [], cities: [], client: new OpenAI({ baseURL: `${url}${path}/v1`, apiKey: 'none', maxRetries: 0 }) })
  }

  async turn(content) {
    this.messages.push({ role: 'user', content })
    const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }
    const tools = [{ type: 'function', function: { name: 'weather', description: 'The weather in a city.', parameters } }]
    const { completions } = this.client.chat
    for (;;) {
      const body = { model: this.name, messages: [{ role: 'system', content: 'You are helpful.' }, ...this.messages], tools }
      const answer = this.stream
        ? await completions.stream({ ...body, stream_options: { include_usage: true } }).finalChatCompletion() : await completions.create(body)
      const { message } = answer.choices[0]
      this.messages.push(message)
      if (!message.tool_calls?.length) return { text: message.content, usage: { inputTokens: answer.usage.prompt_tokens } }
      for (const c of message.tool_calls) {
        const { city } = JSON.parse(c.function.arguments)
        this.cities.push(city)
        this.messages.push({ role: 'tool', tool_call_id: c.id, content: forecast(city) })
      }
    }
  }
}

const clients = { 'openai sdk': SDKTalk, ...compatible, ...responding }
const words = (n) => script(`Turn ${n}.`, [say(`Answer ${n}.`)])
const turns = (...numbers) => numbers.flatMap((n) => [`user: Turn ${n}.`, `assistant: Answer ${n}.`])

/** Says turns and checks their answers. */
async function through(talk, ...numbers) {
  for (const n of numbers) assert.equal((await talk.turn(words(n))).text, `Answer ${n}.`)
}

/** A message with its answer cut short, as each client keeps one. */
function trimmed(m) {
  if (m.getType?.() === 'ai') return Object.assign(m, { content: 'Ans…' })
  if (m.role !== 'assistant') return m
  return { ...m, content: typeof m.content === 'string' ? 'Ans…' : m.content.map((part) => ({ ...part, text: 'Ans…' })) }
}

const stories = {
  async 'whole and streamed'(h, talk) {
    const { usage } = await talk.turn(words(1))
    assert.ok(usage.inputTokens > 0, JSON.stringify(usage))
    talk.stream = false
    await through(talk, 2)
    talk.stream = true
    await through(talk, 3)
    assert.deepEqual(await h.remembers(), turns(1, 2, 3))
  },
  async 'tools of its own'(h, talk) {
    const both = script('Both.', [call('weather', { city: 'Rome' })], [call('weather', { city: 'Oslo' })], [say('Sunny.')])
    assert.equal((await talk.turn(both)).text, 'Sunny.')
    assert.deepEqual(talk.cities, ['Rome', 'Oslo'])
    await through(talk, 1)
    assert.deepEqual((await h.remembers()).filter((m) => !/: $/.test(m)), ['user: Both.', 'assistant: Sunny.', ...turns(1)])
  },
  async 'regenerate'(h, talk) {
    await through(talk, 1, 2)
    talk.messages = talk.messages.slice(0, -2)
    await through(talk, 2, 3)
    assert.deepEqual(await h.remembers(), turns(1, 2, 3))
    assert.ok(await h.setAside() >= 1)
  },
  async 'edit'(h, talk) {
    await through(talk, 1, 2, 3)
    const whole = talk.messages
    talk.messages = whole.slice(0, -2)
    await through(talk, 4, 5)
    assert.deepEqual(await h.remembers(), turns(1, 2, 4, 5))
    assert.equal(await h.setAside(), 2)
    talk.messages = whole.slice(0, 2)
    await through(talk, 6, 7)
    assert.deepEqual(await h.remembers(), turns(1, 2, 4, 5, 6, 7))
    assert.equal(await h.setAside(), 2)
  },
  async 'windowed transcript'(h, talk) {
    await through(talk, 1, 2, 3)
    talk.messages = talk.messages.slice(-2)
    await through(talk, 4)
    talk.messages = []
    await through(talk, 5)
    assert.deepEqual(await h.remembers(), turns(1, 2, 3, 4, 5))
  },
  async 'trimmed answers'(h, talk) {
    await through(talk, 1, 2)
    talk.messages = talk.messages.map(trimmed)
    await through(talk, 3)
    assert.deepEqual(await h.remembers(), turns(1, 2, 3))
  },
}

async function tell(context, Talk, story) {
  const h = await House.open(context, 'generic', { recall: { auto: 'off' } }) // no script of another turn comes up
  await story(h, new Talk({ url: h.url, key: 'none' }, { path: '/c/1', name: 'mneme', thinks: false }))
  await h.end()
}

const bare = (h, path = '/c/1') => new OpenAI({ baseURL: `${h.url}${path}/v1`, apiKey: 'none', maxRetries: 0 })

/** A client that hangs up stops its run; what it was shown is kept, and the chat goes on. */
async function aborted(context) {
  const h = await House.open(context, 'slow')
  const messages = [{ role: 'user', content: script('Long.', [say(slowAnswer)]) }]
  const stream = await bare(h).chat.completions.create({ model: 'mneme', stream: true, messages })
  for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break
  stream.controller.abort()
  await until(h.mneme, 'the end of the run', async () => !(await h.get('/v1/chats/1')).run && (await h.remembers()).length === 2)
  const { messages: [, cut] } = await h.get('/v1/chats/1/history')
  assert.equal(cut.partial, true)
  assert.ok(cut.content.length < slowAnswer.length)
  await bare(h).chat.completions.create({ model: 'mneme', messages: [{ role: 'user', content: words(1) }] })
  assert.equal((await h.remembers()).length, 4)
  await h.end()
}

/** A turn and the four calls by which a chat page asks for titles and the like leave two messages. */
async function tasks(context) {
  const h = await House.open(context)
  const { completions } = bare(h).chat
  await completions.create({ model: 'mneme', messages: [{ role: 'user', content: words(1) }] })
  for (const task of ['title', 'tags', 'follow-ups', 'queries']) {
    const content = script(`### Task:\nGenerate ${task}.\n<chat_history>…</chat_history>`, [say(`The ${task}.`)])
    const { data, response } = await completions.create({ model: 'mneme', messages: [{ role: 'user', content }] }).withResponse()
    assert.equal(data.choices[0].message.content, `The ${task}.`)
    assert.equal(response.headers.get('mneme-memory'), 'none')
  }
  assert.deepEqual(await h.remembers(), turns(1))
  await h.end()
}

/** Without a chat nothing is kept; models are listed, and one that is none is refused in OpenAI's class. */
async function withoutChat(context) {
  const h = await House.open(context)
  const client = bare(h, '')
  const { response } = await client.chat.completions.create({ model: 'mneme', messages: [{ role: 'user', content: words(1) }] }).withResponse()
  assert.equal(response.headers.get('mneme-memory'), 'none')
  assert.deepEqual((await h.get('/v1/chats')).chats, [])
  const { data } = await client.models.list()
  assert.equal(data[0].id, 'mneme')
  assert.ok(data.length > 1 && (await client.models.retrieve(data[1].id)).id === data[1].id)
  await assert.rejects(client.chat.completions.create({ model: 'gpt-5', messages: [{ role: 'user', content: 'Hi.' }] }), OpenAI.NotFoundError)
  await h.end()
}

const weather = { type: 'function', name: 'weather', strict: true, parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false } }
const twice = script('Both.', [call('weather', { city: 'Rome' })], [call('weather', { city: 'Oslo' })], [say('Sunny.')])
const chatOf = (response) => response.headers.get('mneme-chat-id')

/** What the chats hold, one line each, the oldest first. */
async function chats(h) {
  const ids = (await h.get('/v1/chats')).chats.map((c) => c.chat_id)
  const all = await Promise.all(ids.map(async (id) => (await h.remembers(id)).filter((m) => m.startsWith('user: ')).map((m) => m.slice(6)).join(' ')))
  return all.toSorted()
}

/** A turn of the openai package by Responses. next says what the next request has beside its new items. */
async function respond(client, stream, content, next) {
  const cities = []
  let input = [{ role: 'user', content }]
  for (;;) {
    const body = { model: 'mneme', tools: [weather], ...next(input) }
    const answer = stream ? await client.responses.stream(body).finalResponse() : await client.responses.create(body)
    next.answered(answer)
    const calls = answer.output.filter((o) => o.type === 'function_call')
    if (!calls.length) return { answer, cities }
    input = calls.map((c) => {
      const { city } = JSON.parse(c.arguments)
      cities.push(city)
      return { type: 'function_call_output', call_id: c.call_id, output: forecast(city) }
    })
  }
}

/** Ways in which callers of the openai package keep a conversation. */
const keeps = {
  'previous_response_id': () => {
    let last
    return Object.assign((input) => ({ input, previous_response_id: last }), { answered: (a) => { last = a.id } })
  },
  'conversation': () => Object.assign((input) => ({ input, conversation: 'mine' }), { answered: () => {} }),
  'all items': () => {
    const items = []
    return Object.assign((input) => ({ input: items.concat(input), ...(items.push(...input) && {}) }), { answered: (a) => items.push(...a.output) })
  },
}

async function kept(context, stream, next) {
  const h = await House.open(context)
  const client = bare(h, '')
  for (const n of [1, 2]) {
    const { answer, cities } = await respond(client, stream, twice, next)
    assert.equal(answer.output_text, 'Sunny.')
    assert.deepEqual(cities, ['Rome', 'Oslo'])
    assert.ok(answer.usage.input_tokens > 0 && answer.usage.total_tokens > 0)
    assert.equal((await respond(client, stream, words(n), next)).answer.output_text, `Answer ${n}.`)
  }
  assert.deepEqual(await chats(h), ['Both. Turn 1. Both. Turn 2.'])
  await h.end()
}

/** A text and a stream of it; an older answer is gone on from in a chat of its own; a stored response is had again and deleted. */
async function places(context) {
  const h = await House.open(context)
  const { responses } = bare(h, '')
  const { data: first, response } = await responses.create({ model: 'mneme', input: words(1), instructions: 'Be brief.' }).withResponse()
  assert.equal(first.output_text, 'Answer 1.')
  let streamed = ''
  let last
  for await (const e of await responses.create({ model: 'mneme', input: words(2), previous_response_id: first.id, stream: true })) {
    if (e.type === 'response.output_text.delta') streamed += e.delta
    last = e
  }
  assert.equal(streamed, 'Answer 2.')
  assert.equal(last.type, 'response.completed')
  const { data: other, response: at } = await responses.create({ model: 'mneme', input: words(3), previous_response_id: first.id }).withResponse()
  assert.notEqual(chatOf(at), chatOf(response))
  assert.deepEqual(await chats(h), ['Turn 1. Turn 2.', 'Turn 1. Turn 3.'])
  assert.equal((await responses.retrieve(other.id)).output_text, 'Answer 3.')
  await responses.delete(other.id)
  await assert.rejects(responses.retrieve(other.id), OpenAI.NotFoundError)
  await assert.rejects(responses.create({ model: 'mneme', input: 'Hi.', previous_response_id: 'resp_none' }), (e) => e instanceof OpenAI.BadRequestError && e.code === 'previous_response_not_found')
  await responses.create({ model: 'mneme', input: words(4), store: false })
  assert.equal((await chats(h)).length, 2)
  await h.end()
}

/** An answer of a schema, read by the package. */
async function parsed(context) {
  const h = await House.open(context)
  const format = zodTextFormat(z.object({ city: z.string() }), 'place')
  const input = script('Where?', [say('{"city":"Rome"}')])
  const { responses } = bare(h, '')
  assert.deepEqual((await responses.parse({ model: 'mneme', input, text: { format } })).output_parsed, { city: 'Rome' })
  assert.deepEqual((await responses.stream({ model: 'mneme', input, text: { format } }).finalResponse()).output_parsed, { city: 'Rome' })
  await h.end()
}

async function abortedResponse(context) {
  const h = await House.open(context, 'slow')
  const stream = await bare(h).responses.create({ model: 'mneme', stream: true, input: script('Long.', [say(slowAnswer)]) })
  for await (const e of stream) if (e.type === 'response.output_text.delta') break
  stream.controller.abort()
  await until(h.mneme, 'the end of the run', async () => !(await h.get('/v1/chats/1')).run && (await h.remembers()).length === 2)
  assert.equal((await h.get('/v1/chats/1/history')).messages[1].partial, true)
  await h.end()
}

/** A framework that names no chat goes on with the one that its first message began. */
async function unnamed(context, Talk) {
  const h = await House.open(context)
  for (const stream of [true, false]) {
    const talk = new Talk({ url: h.url, key: 'none' }, { name: 'mneme', thinks: false, stream })
    await through(talk, 1)
    assert.equal((await talk.turn(twice)).text, 'Sunny.')
    assert.deepEqual(talk.cities, ['Rome', 'Oslo'])
    await through(talk, 2)
  }
  assert.deepEqual(await chats(h), Array(2).fill('Turn 1. Both. Turn 2.'))
  await h.end()
}

/** The Agents SDK by the id of its last response, and by a conversation's. */
async function agents(context) {
  const h = await House.open(context)
  const cities = []
  const execute = ({ city }) => (cities.push(city), forecast(city))
  const agent = new Agent({ name: 'one', model: 'mneme', tools: [agentsTool({ name: 'weather', description: 'The weather.', parameters: z.object({ city: z.string() }), execute })] })
  const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient: bare(h, '') }) })
  let previousResponseId
  for (const said of [words(1), twice, words(2)]) {
    const result = await runner.run(agent, said, { previousResponseId })
    previousResponseId = result.lastResponseId
  }
  for (const said of [words(3), twice, words(4)]) await runner.run(agent, said, { conversationId: 'mine' })
  assert.deepEqual(cities, ['Rome', 'Oslo', 'Rome', 'Oslo'])
  assert.deepEqual(await chats(h), ['Turn 1. Both. Turn 2.', 'Turn 3. Both. Turn 4.'])
  await h.end()
}

/** The AI SDK by the id of its last response, and by a conversation's. */
async function aiPlaces(context) {
  const h = await House.open(context)
  const model = createOpenAI({ baseURL: `${h.url}/v1`, apiKey: 'none' })('mneme')
  let previousResponseId
  for (const n of [1, 2]) {
    const { text, providerMetadata } = await generateText({ model, prompt: words(n), ...(previousResponseId && { providerOptions: { openai: { previousResponseId } } }) })
    assert.equal(text, `Answer ${n}.`)
    previousResponseId = providerMetadata.openai.responseId
  }
  for (const n of [3, 4]) await generateText({ model, prompt: words(n), providerOptions: { openai: { conversation: 'mine' } } })
  assert.deepEqual(await chats(h), ['Turn 1. Turn 2.', 'Turn 3. Turn 4.'])
  await h.end()
}

/** A file beside a message becomes a document of the chat, once, whatever the transcript sends again. */
async function files(context) {
  const h = await House.open(context)
  const { completions } = bare(h).chat
  const file = { filename: 'anchor.md', file_data: `data:text/markdown;base64,${Buffer.from('# Anchor\n\nIt weighs 77 pounds.').toString('base64')}` }
  const messages = [{ role: 'user', content: [{ type: 'file', file }, { type: 'text', text: words(1) }] }]
  for (const stream of [false, true]) {
    if (stream) messages.push({ role: 'user', content: words(2) })
    const body = { model: 'mneme', messages }
    const { message } = stream ? (await completions.stream(body).finalChatCompletion()).choices[0] : (await completions.create(body)).choices[0]
    assert.equal(message.content, `Answer ${stream ? 2 : 1}.`)
    messages.push(message)
  }
  const { documents } = await h.get('/v1/chats/1/documents')
  assert.deepEqual(documents.map((d) => d.title), ['Anchor'])
  assert.deepEqual(await h.remembers(), turns(1, 2))
  const { messages: [first] } = await h.get('/v1/chats/1/history')
  assert.ok(first.content.endsWith('\n\n[file: anchor.md]'), first.content)
  const broken = { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0xLjQ=' }
  await assert.rejects(completions.create({ model: 'mneme', messages: [{ role: 'user', content: [{ type: 'file', file: broken }] }] }), OpenAI.UnprocessableEntityError)
  assert.equal((await h.remembers()).length, 4)
  await h.end()
}

/** Embeddings at webmemory are the gateway's, in each of the forms in which the SDK asks for them. */
async function embeddings(context) {
  const { stack } = context
  const places = { kind: 'openai', vendor: 'generic', base_url: `${stack.vendorURLs.generic}/v1` }
  const h = await House.open(context, 'generic', { proxy: { active: 'one', embeddings_backend: 'one', backends: { one: places } } })
  for (const path of ['', '/c/1']) {
    const { embeddings } = bare(h, path)
    const { data: [one, two, three] } = await embeddings.create({ model: 'embed', input: ['red apples', 'red apples', 'blue sky'] })
    assert.deepEqual(one.embedding, two.embedding)
    assert.notDeepEqual(one.embedding, three.embedding)
    await assert.rejects(embeddings.create({ model: 'embed', input: 7 }), OpenAI.BadRequestError)
  }
  await h.end()
}

export const scenarios = [
  ...Object.entries(keeps).flatMap(([name, keep]) => [true, false].map((stream) => (
    { name: `webmemory, openai sdk, responses: ${name}${stream ? ', streamed' : ''}`, run: (t) => kept(t, stream, keep()) }))),
  { name: 'webmemory, openai sdk, responses: places', run: places },
  { name: 'webmemory, openai sdk, responses: an answer of a schema', run: parsed },
  { name: 'webmemory, openai sdk, responses: aborted', run: abortedResponse },
  ...Object.entries(responding).map(([client, Talk]) => ({ name: `webmemory, ${client}: no chat named`, run: (t) => unnamed(t, Talk) })),
  { name: 'webmemory, agents sdk, responses: previousResponseId and conversationId', run: agents },
  { name: 'webmemory, ai sdk, responses: previousResponseId and conversation', run: aiPlaces },
  ...Object.entries(clients).flatMap(([client, Talk]) => Object.entries(stories).map(([name, story]) => (
    { name: `webmemory, ${client}: ${name}`, run: (t) => tell(t, Talk, story) }))),
  { name: 'webmemory, openai sdk: aborted', run: aborted },
  { name: 'webmemory, openai sdk: tasks of a chat page', run: tasks },
  { name: 'webmemory, openai sdk: without a chat', run: withoutChat },
  { name: 'webmemory, openai sdk: files', run: files },
  { name: 'webmemory, openai sdk: embeddings', refused: 2, run: embeddings },
]
