// What scenarios say to the fake vendor, and conversations with it in each SDK.
import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'

/** Words that make the fake vendor call the first tool offered. */
export const useTheTool = 'Please use the tool.'

/** The user's words with what the model is to answer to them, see fakevendor -help. */
export const script = (words, ...answers) => `${words} SCRIPT ${JSON.stringify(answers)}`
export const think = (text) => ({ think: text })
export const say = (text) => ({ say: text })
export const call = (use, input) => ({ use, input })
export const redacted = { redacted: true }

/** Two rounds of tools and an answer, with thinking before each. */
export const rounds = (words) =>
  script(words,
    [think(`First Rome. ${words}`), say('I look.'), call('weather', { city: 'Rome' })],
    [think(`Then Oslo. ${words}`), call('weather', { city: 'Oslo' })],
    [think(`Both are there. ${words}`), say(`Done: ${words}`)])

const weather = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }
const tools = [{ name: 'weather', description: 'The weather in a city.', input_schema: weather }]
const functions = tools.map((t) => ({ type: 'function', function: { name: t.name, description: t.description, parameters: t.input_schema } }))
export const forecast = (city) => `Sunny in ${city}.`

/** How a client asks for thinking between tools: what each generation of models takes. */
export const thinkingOf = {
  adaptive: { model: 'master', thinking: { type: 'adaptive' } },
  manual: { model: 'master', thinking: { type: 'enabled', budget_tokens: 2000 } },
}
const interleaved = 'interleaved-thinking-2025-05-14'

/** Headers that name the conversation, none without an id. */
export const named = (id) => (id ? { 'X-AG-Conversation-Id': id } : {})

export function anthropic(t, { conversation, path = '', key = t.key } = {}) {
  return new Anthropic({ baseURL: t.url + path, apiKey: key, maxRetries: 0, defaultHeaders: named(conversation) })
}

export function openai(t, { conversation, path = '', key = t.key } = {}) {
  return new OpenAI({ baseURL: `${t.url}${path}/v1`, apiKey: key, maxRetries: 0, defaultHeaders: named(conversation) })
}

/** What careless clients keep of an answer: no thinking; its text cut short, its signature lost. */
export const bare = (content) => content.filter((b) => !/thinking/.test(b.type))
export const cut = (content) => content.map((b) => (b.thinking ? { ...b, thinking: b.thinking.slice(0, -1) } : b))
export const unsigned = (content) => content.map((b) => (b.type === 'thinking' ? { ...b, signature: '' } : b))

/**
 * A conversation of the messages dialect. keep is what the client keeps of an
 * answer's content, everything unless told otherwise.
 */
export class MessagesTalk {
  constructor(client, { asks = 'adaptive', stream = true, keep = (content) => content, ...params } = {}) {
    Object.assign(this, { client, stream, keep, messages: [], answers: [] })
    this.params = { max_tokens: 4000, system: 'You are helpful.', tools, ...thinkingOf[asks], ...params }
  }

  async ask() {
    const body = { ...this.params, messages: this.messages }
    const options = { headers: { 'anthropic-beta': interleaved } }
    const answer = this.stream ? await this.client.messages.stream(body, options).finalMessage() : await this.client.messages.create(body, options)
    this.answers.push(answer)
    this.messages.push({ role: 'assistant', content: this.keep(answer.content) })
    return answer
  }

  /** The results of what the last answer calls. */
  results() {
    return this.answers.at(-1).content.filter((b) => b.type === 'tool_use')
      .map((b) => ({ type: 'tool_result', tool_use_id: b.id, content: forecast(b.input.city) }))
  }

  /** Says something and calls tools until the model has answered. between runs before each result is sent. */
  async turn(words, between = async () => {}) {
    this.messages.push({ role: 'user', content: words })
    let answer = await this.ask()
    for (let round = 0; answer.stop_reason === 'tool_use'; round++) {
      await between(round)
      this.messages.push({ role: 'user', content: this.results() })
      answer = await this.ask()
    }
    assert.equal(answer.stop_reason, 'end_turn')
    return answer
  }

  /** How many of the answers thought. */
  thought() {
    return this.answers.filter((a) => a.content.some((b) => /thinking/.test(b.type))).length
  }
}

/** A conversation of chat completions, in which a client keeps no reasoning. */
export class ChatTalk {
  constructor(client, { stream = true, ...params } = {}) {
    Object.assign(this, { client, stream, messages: [{ role: 'system', content: 'You are helpful.' }], answers: [] })
    this.params = { model: 'gpt-5', reasoning_effort: 'medium', tools: functions, ...params }
  }

  async ask() {
    const body = { ...this.params, messages: this.messages }
    const { chat } = this.client
    const { choices: [choice] } = this.stream ? await chat.completions.stream(body).finalChatCompletion() : await chat.completions.create(body)
    const { role, content, tool_calls: calls = [] } = choice.message
    const kept = calls.map(({ id, type, function: { name, arguments: args } }) => ({ id, type, function: { name, arguments: args } }))
    this.answers.push(choice)
    this.messages.push({ role, content, ...(kept.length && { tool_calls: kept }) })
    return choice
  }

  /** Says something and calls tools until the model has answered. between runs before each result is sent. */
  async turn(words, between = async () => {}) {
    this.messages.push({ role: 'user', content: words })
    let choice = await this.ask()
    for (let round = 0; choice.finish_reason === 'tool_calls'; round++) {
      await between(round)
      for (const c of choice.message.tool_calls) {
        this.messages.push({ role: 'tool', tool_call_id: c.id, content: forecast(JSON.parse(c.function.arguments).city) })
      }
      choice = await this.ask()
    }
    assert.equal(choice.finish_reason, 'stop')
    return choice
  }

  /** How many of the answers came with reasoning. */
  thought() {
    return this.answers.filter((c) => c.message.reasoning_content).length
  }
}

/** A conversation of Responses. The client sends back what it got, reasoning only if it keeps it. */
export class ResponsesTalk {
  constructor(client, { stream = true, keeps = true, ...params } = {}) {
    Object.assign(this, { client, stream, keeps, input: [], answers: [] })
    this.params = {
      model: 'gpt-5', instructions: 'You are helpful.', reasoning: { effort: 'medium', summary: 'auto' }, store: false,
      include: ['reasoning.encrypted_content'], tools: functions.map((t) => ({ type: 'function', strict: false, ...t.function })), ...params,
    }
  }

  async ask(options) {
    const { responses } = this.client
    const body = { ...this.params, input: this.input }
    const answer = this.stream ? await responses.stream(body, options).finalResponse() : await responses.create(body, options)
    this.answers.push(answer)
    this.input.push(...answer.output.filter((item) => this.keeps || item.type !== 'reasoning'))
    return answer
  }

  /** Says something and calls tools until the model has answered. between runs before each result is sent. */
  async turn(content, between = async () => {}) {
    this.input.push({ role: 'user', content })
    return this.goOn(between)
  }

  /** Asks, and calls tools until the model has answered. */
  async goOn(between = async () => {}) {
    let answer = await this.ask()
    const calls = () => answer.output.filter((item) => item.type === 'function_call')
    for (let round = 0; calls().length > 0; round++) {
      await between(round)
      for (const c of calls()) this.input.push({ type: 'function_call_output', call_id: c.call_id, output: forecast(JSON.parse(c.arguments).city) })
      answer = await this.ask()
    }
    assert.equal(answer.status, 'completed')
    return answer
  }

  /** How many of the answers came with reasoning. */
  thought() {
    return this.answers.filter((a) => a.output.some((item) => item.type === 'reasoning')).length
  }
}

export const textOf = (message) => message.content.filter((b) => b.type === 'text').map((b) => b.text).join('')
