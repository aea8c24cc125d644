// Programs that restart in the middle of a chat, or shorten their transcript: nothing is lost, and the agent knows the name.
import assert from 'node:assert/strict'
import OpenAI from 'openai'
import { Agent, OpenAIConversationsSession, OpenAIProvider, Runner } from '@openai/agents'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAI as createOpenAI6 } from '@ai-sdk/openai-6'
import { ChatOpenAI } from '@langchain/openai'
import { generateText } from 'ai'
import { generateText as generateText6 } from 'ai-6'
import { createAgent, summarizationMiddleware } from 'langchain'
import { stop } from '../processes.mjs'
import { up } from '../stack.mjs'

const chat = 'mine'

/** Each opens a program, which says one message after another and keeps its transcript. */
const programs = {}

const headers = ['X-Conversation-Id', 'Mneme-Chat-Id', 'X-Session-Id']
for (const header of headers) programs[`openai sdk, ${header}`] = (url) => completions(new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', defaultHeaders: { [header]: chat } }))
programs['openai sdk, path'] = (url) => completions(new OpenAI({ baseURL: `${url}/c/${chat}/v1`, apiKey: 'none' }))
programs['openai sdk, metadata.chat_id'] = (url) => completions(new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none' }), { metadata: { chat_id: chat } })
programs['openai sdk, responses, conversation'] = (url) => {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none' })
  const input = []
  return async (content) => {
    input.push({ role: 'user', content })
    const { output, output_text: text } = await client.responses.create({ model: 'mneme', conversation: chat, input })
    input.push(...output)
    return text
  }
}

function completions(client, more = {}) {
  const messages = []
  return async (content) => {
    messages.push({ role: 'user', content })
    const { choices: [{ message }] } = await client.chat.completions.create({ model: 'mneme', messages, ...more })
    messages.push(message)
    return message.content
  }
}

const sdks = { 7: [createOpenAI, generateText], 6: [createOpenAI6, generateText6] }
for (const [version, [create, generate]] of Object.entries(sdks)) {
  const opened = (modelOf) => (url) => {
    const model = modelOf(create({ baseURL: `${url}/v1`, apiKey: 'none', headers: { 'X-Conversation-Id': chat } }))
    const messages = []
    return async (content) => {
      messages.push({ role: 'user', content })
      const result = await generate({ model, messages, maxRetries: 0 })
      messages.push(...(result.responseMessages ?? result.response.messages))
      return result.text
    }
  }
  programs[`ai sdk ${version}, chat`] = opened((provider) => provider.chat('mneme'))
  programs[`ai sdk ${version}, responses`] = opened((provider) => provider('mneme'))
}

programs['langchain'] = (url) => graph(url, [])
programs['langchain, summarizationMiddleware'] = (url) => graph(url, [summarizationMiddleware({ model: langModel(url), trigger: { messages: 5 }, keep: { messages: 2 } })])

const langModel = (url) => new ChatOpenAI({ model: 'mneme', apiKey: 'none', configuration: { baseURL: `${url}/v1`, defaultHeaders: { 'X-Conversation-Id': chat } } })

function graph(url, middleware) {
  const agent = createAgent({ model: langModel(url), tools: [], middleware })
  let messages = []
  return async (content) => {
    ({ messages } = await agent.invoke({ messages: [...messages, { role: 'user', content }] }))
    return messages.at(-1).text
  }
}

async function restarts(t, open) {
  const { url, mneme } = await up(t, {}, ['--offline'])
  const said = ['My name is Aliya.', 'I live in Riga.', 'My dog is called Rex.', 'My locker has the number 12.']
  let say = open(url)
  for (const text of said) await say(text)
  say = open(url)
  for (const text of ['What is my name?', 'My tram is line 4.', 'My boat is called Ida.', 'My tent is green.', 'My bike is blue.']) {
    const answer = await say(text)
    if (/\?$/.test(text)) assert.match(answer, /Aliya/)
    said.push(text)
  }
  await stored(url, chat, said)
  await stop(mneme)
}

/** Checks that a chat has each message once, with an answer, and that nothing was set aside. */
async function stored(url, id, said) {
  const { messages } = await (await fetch(`${url}/v1/chats/${id}/history`)).json()
  assert.deepEqual(messages.filter((m) => m.role === 'user').map((m) => m.content), said)
  assert.equal(messages.length, 2 * said.length)
  const { set_aside: aside } = await (await fetch(`${url}/v1/chats/${id}/set-aside`)).json()
  assert.deepEqual(aside, [])
}

/** The Agents SDK keeps its items in a conversation, which its next process continues. */
async function session(t) {
  const { url, mneme } = await up(t, {}, ['--offline'])
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none' })
  const agent = new Agent({ name: 'one', model: 'mneme' })
  const runner = () => new Runner({ modelProvider: new OpenAIProvider({ openAIClient: client, useResponses: true }) })
  const said = ['My name is Aliya.', 'I live in Riga.', 'What is my name?', 'My dog is called Rex.']
  let kept = new OpenAIConversationsSession({ client })
  for (const [n, text] of said.entries()) {
    const id = await kept.getSessionId()
    if (n === 2) kept = new OpenAIConversationsSession({ client, conversationId: id })
    const { finalOutput } = await runner().run(agent, text, { session: kept })
    if (n === 2) assert.match(finalOutput, /Aliya/)
  }
  await stored(url, await kept.getSessionId(), said)
  assert.equal((await kept.getItems()).length, 2 * said.length)
  await kept.popItem()
  assert.equal((await kept.getItems()).length, 2 * said.length - 1)
  await kept.clearSession()
  await stop(mneme)
}

export const scenarios = [
  ...Object.entries(programs).map(([name, open]) => ({ name: `webmemory, restarts: ${name}`, run: (t) => restarts(t, open) })),
  { name: 'webmemory, restarts: agents sdk, OpenAIConversationsSession', run: session },
]
