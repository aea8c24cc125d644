// The OpenAI SDK.
import assert from 'node:assert/strict'
import { ChatTalk, call, openai, rounds, say, script, think, useTheTool } from '../talk.mjs'

const everywhere = ['adaptive', 'manual', 'kimi', 'deepseek', 'kimi-chat', 'deepseek-chat', 'generic']
const each = (backends, scenario) =>
  backends.map((backend) => ({ backend, ...scenario(backend), name: `openai sdk, ${backend}: ${scenario(backend).name}` }))

async function wholeAndStreamed(t) {
  const client = openai(t)
  const body = { model: 'gpt-5', messages: [{ role: 'user', content: 'Hello, mneme.' }] }
  const whole = await client.chat.completions.create(body)
  assert.match(whole.choices[0].message.content, /You said: Hello, mneme\./)
  assert.equal(whole.choices[0].finish_reason, 'stop')
  assert.ok(whole.usage.total_tokens > 0)
  let streamed = ''
  let usage
  for await (const chunk of await client.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } })) {
    streamed += chunk.choices[0]?.delta.content ?? ''
    usage = chunk.usage ?? usage
  }
  assert.equal(streamed, whole.choices[0].message.content)
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens)
}

async function toolLoop(t) {
  const talk = new ChatTalk(openai(t))
  for (const n of [1, 2, 3]) {
    const { message } = await talk.turn(`${useTheTool} ${n}`)
    assert.match(message.content, /The tool gave: Sunny in sample\./)
  }
}

async function interleaved(t, { backend, conversation, stream }) {
  const talk = new ChatTalk(openai(t, { conversation }), { stream })
  for (const n of [1, 2, 3]) assert.equal((await talk.turn(rounds(`turn ${n}`))).message.content, `Done: turn ${n}`)
  assert.equal(talk.answers.length, 9)
  if (backend !== 'generic') assert.equal(talk.thought(), 9)
}

async function parallelTools(t) {
  const talk = new ChatTalk(openai(t))
  const both = script('both', [think('Both.'), call('weather', { city: 'Rome' }), call('weather', { city: 'Oslo' })], [think('Well.'), say('Both done.')])
  for (let n = 0; n < 2; n++) assert.equal((await talk.turn(both)).message.content, 'Both done.')
  const ids = talk.answers.flatMap((c) => c.message.tool_calls ?? []).map((c) => c.id)
  assert.equal(new Set(ids).size, 4, 'no id comes twice')
}

// The SDK's own loop.
async function runTools(t) {
  const asked = []
  const runner = openai(t).chat.completions.runTools({
    model: 'gpt-5', reasoning_effort: 'medium', messages: [{ role: 'user', content: useTheTool }],
    tools: [{ type: 'function', function: {
      name: 'weather', description: 'The weather in a city.', parse: JSON.parse, function: ({ city }) => (asked.push(city), `Rain in ${city}.`),
      parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    } }],
  })
  assert.match(await runner.finalContent(), /The tool gave: Rain in sample\./)
  assert.deepEqual(asked, ['sample'])
}

// What parse, generateObject and their like ask for.
async function structured(t) {
  const place = {
    type: 'object', properties: { city: { type: 'string' }, n: { type: 'integer' } }, required: ['city', 'n'], additionalProperties: false,
  }
  const client = openai(t, { conversation: t.conversation })
  const messages = [{ role: 'user', content: 'Where?' }]
  for (const format of [{ type: 'json_schema', json_schema: { name: 'place', strict: true, schema: place } }, { type: 'json_object' }]) {
    const body = { model: 'gpt-5', messages, response_format: format, reasoning_effort: 'medium' }
    const whole = (await client.chat.completions.parse(body)).choices[0]
    assert.equal(whole.finish_reason, 'stop')
    const streamed = await client.chat.completions.stream(body).finalContent()
    for (const text of [whole.message.content, streamed]) {
      const answer = JSON.parse(text)
      if (format.json_schema) assert.deepEqual(answer, { city: 'sample', n: 1 })
    }
    messages.push({ role: 'assistant', content: streamed }, { role: 'user', content: 'And then?' })
  }
  assert.match((await client.chat.completions.create({ model: 'gpt-5', messages })).choices[0].message.content, /You said: And then/)
}

async function embeddings(t) {
  const { data } = await openai(t).embeddings.create({ model: 'any', input: ['a small text', 'another one'] })
  assert.equal(data.length, 2)
  assert.ok(data.every(({ embedding: v }) => Math.abs(Math.hypot(...v) - 1) < 1e-3), 'vectors of length 1')
  const plain = await openai(t).embeddings.create({ model: 'any', input: 'a small text', encoding_format: 'float' })
  assert.ok(plain.data[0].embedding.every((x, i) => Math.abs(x - data[0].embedding[i]) < 1e-6))
}

async function models(t) {
  const names = []
  for await (const m of openai(t).models.list()) names.push(m.id)
  assert.ok(names.includes('gpt-5'), `${names}`)
}

export const scenarios = [
  ...each(everywhere, () => ({ name: 'whole and streamed', run: wholeAndStreamed })),
  ...each(everywhere, () => ({ name: 'three turns with a tool', run: toolLoop })),
  ...each(everywhere, (backend) => ({ name: 'thinking between tools, streamed', run: (t) => interleaved(t, { backend, stream: true }) })),
  ...each(everywhere, (backend) => ({
    name: 'thinking between tools, conversation named', run: (t) => interleaved(t, { backend, stream: false, conversation: t.conversation }),
  })),
  ...each(everywhere, () => ({ name: 'parallel tools', run: parallelTools })),
  ...each(everywhere, () => ({ name: 'runTools', run: runTools })),
  // A tool for the answer changes what adaptive's thinking is bound to.
  ...each(['adaptive', 'manual', 'kimi', 'deepseek'], (backend) => ({
    name: 'structured output', run: structured, refused: backend === 'adaptive' ? 1 : 0,
  })),
  ...each(['generic'], () => ({ name: 'embeddings', run: embeddings })),
  ...each(['adaptive'], () => ({ name: 'models', run: models })),
]
