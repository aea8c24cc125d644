// Answers of a given form, and documents.
import assert from 'node:assert/strict'
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod'
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod'
import { z } from 'zod'
import { frameworks } from '../clients.mjs'
import { anthropic, openai, textOf } from '../talk.mjs'

const place = z.object({ city: z.string(), kind: z.enum(['town', 'village']), n: z.number().int(), old: z.boolean() })
/** A schema with a bound, which a vendor's own format does not take. */
const bounded = z.object({ city: z.string(), n: z.number().int().min(1).max(9) })
const expected = new Map([[place, { city: 'sample', kind: 'town', n: 1, old: true }], [bounded, { city: 'sample', n: 1 }]])

async function openaiParse(t, schema) {
  const client = openai(t)
  const body = { model: 'gpt-5', messages: [{ role: 'user', content: 'Where?' }], response_format: zodResponseFormat(schema, 'place') }
  const parsed = (await client.chat.completions.parse(body)).choices[0].message.parsed
  const streamed = (await client.chat.completions.stream({ ...body, reasoning_effort: 'medium' }).finalChatCompletion()).choices[0].message.parsed
  for (const answer of [parsed, streamed]) assert.deepEqual(answer, expected.get(schema))
}

async function responsesParse(t, schema) {
  const { responses } = openai(t)
  const body = { model: 'gpt-5', input: 'Where?', text: { format: zodTextFormat(schema, 'place') } }
  const whole = await responses.parse(body)
  const streamed = await responses.stream({ ...body, reasoning: { effort: 'medium' } }).finalResponse()
  for (const { output_parsed: answer } of [whole, streamed]) assert.deepEqual(answer, expected.get(schema))
}

async function anthropicParse(t, schema) {
  const client = anthropic(t)
  const body = { model: 'claude-opus-4-8', max_tokens: 4000, messages: [{ role: 'user', content: 'Where?' }], output_config: { format: zodOutputFormat(schema) } }
  const whole = await client.messages.parse(body)
  const streamed = await client.messages.stream(body).finalMessage()
  for (const { parsed_output: answer } of [whole, streamed]) assert.deepEqual(answer, expected.get(schema))
}

/** What gives an answer of a schema, by client. */
const givers = {
  'openai sdk': openaiParse,
  'openai sdk, responses': responsesParse,
  'anthropic sdk': anthropicParse,
  ...Object.fromEntries(Object.entries(frameworks).map(([name, Talk]) => [name, async (t, schema, backend) => {
    for (const stream of [false, true]) {
      assert.deepEqual(await new Talk(t, { backend, stream, thinks: false }).object(schema, 'Where?'), expected.get(schema))
    }
  }])),
}

const pdf = Buffer.from('%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n').toString('base64')

/** What reads a document, by client. */
const readers = {
  'openai sdk': (t) => openai(t).chat.completions.create({
    model: 'gpt-5', messages: [{ role: 'user', content: [{ type: 'text', text: 'Read.' }, { type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${pdf}` } }] }],
  }).then((a) => a.choices[0].message.content),
  'openai sdk, responses': (t) => openai(t).responses.create({
    model: 'gpt-5', input: [{ role: 'user', content: [{ type: 'input_text', text: 'Read.' }, { type: 'input_file', filename: 'a.pdf', file_data: `data:application/pdf;base64,${pdf}` }] }],
  }).then((a) => a.output_text),
  'anthropic sdk': (t) => anthropic(t).messages.create({
    model: 'claude-opus-4-8', max_tokens: 3000,
    messages: [{ role: 'user', content: [{ type: 'text', text: 'Read.' }, { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: pdf } }] }],
  }).then(textOf),
  ...Object.fromEntries(['ai sdk, messages', 'ai sdk, chat', 'ai sdk, responses'].map((name) => [name, async (t, backend) =>
    (await new frameworks[name](t, { backend, thinks: false }).turn([{ type: 'text', text: 'Read.' }, { type: 'file', mediaType: 'application/pdf', filename: 'a.pdf', data: pdf }])).text])),
  'langchain, chat': async (t, backend) =>
    (await new frameworks['langchain, chat'](t, { backend, thinks: false }).turn([{ type: 'text', text: 'Read.' }, { type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${pdf}` } }])).text,
}

async function reads(t, client, backend) {
  const look = t.stack.watch()
  assert.match(await readers[client](t, backend), /You said: Read\./)
  assert.equal(look().calls.at(-1).documents, 1)
}

const messages = ['adaptive', 'manual', 'kimi', 'deepseek']
const chat = ['kimi-chat', 'deepseek-chat', 'generic']
// Messages, and Responses by way of them, become chat completions without their documents, and DeepSeek takes none in its messages dialect.
const carries = (client, backend) => backend !== 'deepseek' && (!/anthropic|messages|responses/.test(client) || !chat.includes(backend))
// DeepSeek's refusal teaches the gateway once that it takes no schemas. The AI SDK reads no thinking without a signature.
const refusals = (backend) => (backend === 'deepseek-chat' ? 1 : 0)
const unread = (client, backend) => client === 'ai sdk, messages' && backend === 'deepseek'
const schemas = { 'of a schema': place, 'of a schema with bounds': bounded }

export const scenarios = [
  ...[...messages, ...chat].flatMap((backend) => Object.entries(schemas).flatMap(([what, schema]) =>
    Object.entries(givers).filter(([client]) => !unread(client, backend)).map(([client, give]) => ({
      backend, refused: refusals(backend), name: `structured output, ${backend}: ${what}, ${client}`, run: (t) => give(t, schema, backend),
    })))),
  ...[...messages, ...chat].flatMap((backend) => Object.keys(readers).filter((client) => carries(client, backend)).map((client) => ({
    backend, name: `documents, ${backend}: ${client}`, run: (t) => reads(t, client, backend),
  }))),
]
