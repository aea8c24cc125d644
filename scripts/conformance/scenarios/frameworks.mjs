// The AI SDK, LangChain and the Agents SDK.
import assert from 'node:assert/strict'
import { frameworks } from '../clients.mjs'
import { call, rounds, say, script, think, useTheTool } from '../talk.mjs'

const backends = ['adaptive', 'manual', 'kimi', 'generic', 'gpt']
// Each step of a loop is the next one's; three are three vendors, one in each dialect.
const ways = [['adaptive', 'kimi'], ['manual', 'generic'], ['kimi', 'manual'], ['gpt', 'manual', 'deepseek-chat']]
const each = Object.entries(frameworks)
/** Whether the client can see reasoning: the AI SDK and the Agents SDK read none of chat completions' reasoning_content. */
const reads = (name) => /messages|langchain|responses/.test(name)

async function wholeAndStreamed(t, name, Talk, backend) {
  const [whole, streamed] = [new Talk(t, { backend, stream: false, thinks: false }), new Talk(t, { backend, thinks: false })]
  const [a, b] = [await whole.turn('Hello, mneme.'), await streamed.turn('Hello, mneme.')]
  assert.match(a.text, /You said: Hello, mneme\./)
  assert.equal(b.text, a.text)
  assert.equal(b.finish, a.finish)
  // Clients offer their tools in other words while they stream. LangChain adds what message_start counts, and takes the
  // input from there alone, which backends of other dialects have not counted then.
  assert.ok(a.usage.inputTokens > 0 && a.usage.outputTokens > 0, `${JSON.stringify(a.usage)}`)
  assert.ok(b.usage.inputTokens > 0 || name === 'langchain, messages' && ['generic', 'gpt'].includes(backend), `${JSON.stringify(b.usage)}`)
  assert.ok([0, 1].includes(b.usage.outputTokens - a.usage.outputTokens), `${JSON.stringify([a.usage, b.usage])}`)
}

async function interleaved(t, name, Talk, options) {
  const talk = new Talk(t, options)
  for (const n of [1, 2, 3]) {
    const { text, reasoning } = await talk.turn(rounds(`turn ${n}`))
    assert.equal(text, `Done: turn ${n}`)
    if (options.backend !== 'generic' && reads(name)) assert.equal(reasoning, 3)
  }
  assert.deepEqual(talk.cities, ['Rome', 'Oslo', 'Rome', 'Oslo', 'Rome', 'Oslo'])
}

async function parallelTools(t, Talk, backend) {
  const talk = new Talk(t, { backend })
  const both = script('both', [think('Both.'), call('weather', { city: 'Rome' }), call('weather', { city: 'Oslo' })], [think('Well.'), say('Both done.')])
  for (let n = 0; n < 2; n++) assert.equal((await talk.turn(both)).text, 'Both done.')
  assert.deepEqual(talk.cities.toSorted(), ['Oslo', 'Oslo', 'Rome', 'Rome'])
}

/** There and back between turns, then while a tool runs. */
async function switched(t, Talk, way, options) {
  const talk = new Talk(t, { backend: way[0], ...options })
  for (const backend of [...way, way[0]]) {
    await t.use(backend)
    assert.match((await talk.turn(useTheTool)).text, /The tool gave: Sunny in sample\./)
  }
  for (const n of [1, 2]) assert.equal((await talk.turn(rounds(`turn ${n}`), (round) => t.use(way[(round + 1) % way.length]))).text, `Done: turn ${n}`)
}

export const scenarios = each.flatMap(([name, Talk]) => [
  ...backends.flatMap((backend) => [
    { name: 'whole and streamed', run: (t) => wholeAndStreamed(t, name, Talk, backend) },
    { name: 'thinking between tools, streamed', run: (t) => interleaved(t, name, Talk, { backend }) },
    { name: 'thinking between tools, conversation named', run: (t) => interleaved(t, name, Talk, { backend, stream: false, conversation: t.conversation }) },
    { name: 'parallel tools', run: (t) => parallelTools(t, Talk, backend) },
  ].map((s) => ({ ...s, backend, name: `${name}, ${backend}: ${s.name}` }))),
  ...ways.flatMap((way) => [
    { name: 'switched there and back', run: (t) => switched(t, Talk, way, {}) },
    { name: 'switched there and back, conversation named', run: (t) => switched(t, Talk, way, { conversation: t.conversation }) },
  ].map((s) => ({ ...s, backend: way[0], name: `${name}, ${way.join(' ⇄ ')}: ${s.name}` }))),
])
