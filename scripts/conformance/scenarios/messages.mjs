// The Anthropic SDK.
import assert from 'node:assert/strict'
import { MessagesTalk, anthropic, bare, call, cut, redacted, rounds, say, script, textOf, think, unsigned, useTheTool } from '../talk.mjs'

const asks = { adaptive: 'adaptive', manual: 'manual', kimi: 'manual', deepseek: 'manual', 'kimi-chat': 'manual', generic: 'manual' }
const everywhere = Object.keys(asks)
const signing = ['adaptive', 'manual']
const each = (backends, scenario) =>
  backends.map((backend) => ({ backend, ...scenario(backend), name: `anthropic sdk, ${backend}: ${scenario(backend).name}` }))

async function wholeAndStreamed(t) {
  const client = anthropic(t)
  const body = { model: 'master', max_tokens: 200, messages: [{ role: 'user', content: 'Hello, mneme.' }] }
  const whole = await client.messages.create(body)
  assert.match(textOf(whole), /You said: Hello, mneme\./)
  assert.equal(whole.stop_reason, 'end_turn')
  assert.ok(whole.usage.input_tokens > 0 && whole.usage.output_tokens > 0)
  let streamed = ''
  const stream = client.messages.stream(body).on('text', (s) => (streamed += s))
  const last = await stream.finalMessage()
  assert.equal(streamed, textOf(whole))
  assert.equal(last.usage.output_tokens, whole.usage.output_tokens)
  for await (const event of await client.messages.create({ ...body, stream: true })) assert.ok(event.type)
}

async function toolLoop(t, backend) {
  const talk = new MessagesTalk(anthropic(t), { asks: asks[backend] })
  for (const n of [1, 2, 3]) {
    const answer = await talk.turn(`${useTheTool} ${n}`)
    assert.match(textOf(answer), /The tool gave: Sunny in sample\./)
  }
  assert.equal(talk.answers.length, 6)
}

async function interleaved(t, backend, stream) {
  const talk = new MessagesTalk(anthropic(t), { asks: asks[backend], stream })
  for (const n of [1, 2, 3]) assert.match(textOf(await talk.turn(rounds(`turn ${n}`))), new RegExp(`Done: turn ${n}`))
  assert.equal(talk.answers.length, 9)
  if (backend !== 'generic') assert.equal(talk.thought(), 9)
}

async function careless(t, backend, keep) {
  const talk = new MessagesTalk(anthropic(t, t), { asks: asks[backend], keep })
  for (const n of [1, 2, 3]) await talk.turn(rounds(`turn ${n}`))
  if (backend !== 'generic') assert.equal(talk.thought(), 9)
}

async function redactedThinking(t, backend) {
  const talk = new MessagesTalk(anthropic(t), { asks: asks[backend] })
  const secret = (n) => script(`secret ${n}`, [think('Open.'), redacted, call('weather', { city: 'Rome' })], [redacted, say('Told.')])
  for (const n of [1, 2]) assert.equal(textOf(await talk.turn(secret(n))), 'Told.')
  assert.equal(talk.answers.flatMap((a) => a.content).filter((b) => b.type === 'redacted_thinking').length, 4)
}

async function omittedThinking(t) {
  const talk = new MessagesTalk(anthropic(t), { thinking: { type: 'adaptive', display: 'omitted' } })
  for (const n of [1, 2]) await talk.turn(rounds(`omitted ${n}`))
  assert.ok(talk.answers.every((a) => a.content[0].type === 'thinking' && a.content[0].thinking === '' && a.content[0].signature))
}

async function parallelTools(t, backend) {
  const talk = new MessagesTalk(anthropic(t), { asks: asks[backend] })
  talk.results = function () {
    return MessagesTalk.prototype.results.call(this).reverse() // as a client does whose tools end in any order
  }
  const both = script('both', [think('Both.'), call('weather', { city: 'Rome' }), call('weather', { city: 'Oslo' })], [think('Well.'), say('Both done.')])
  for (let n = 0; n < 2; n++) assert.equal(textOf(await talk.turn(both)), 'Both done.')
  const ids = talk.answers.flatMap((a) => a.content).filter((b) => b.type === 'tool_use').map((b) => b.id)
  assert.equal(new Set(ids).size, 4, 'no id comes twice')
}

async function countTokens(t, backend) {
  const body = { model: 'master', messages: [{ role: 'user', content: 'How many tokens are these?' }] }
  const { data, response } = await anthropic(t).messages.countTokens(body).withResponse()
  assert.ok(data.input_tokens > 0)
  assert.equal(response.headers.get('X-AG-Estimated'), backend === 'generic' ? 'true' : null)
}

async function models(t) {
  const names = []
  for await (const m of anthropic(t).models.list()) names.push(m.id)
  assert.ok(names.includes('master'), `${names}`)
}

async function teammate(t) {
  const main = new MessagesTalk(anthropic(t, t), {})
  const mate = new MessagesTalk(anthropic(t, { ...t, path: '/teammate/analytic' }), { asks: 'manual' })
  await main.turn(useTheTool, () => mate.turn(useTheTool))
  await mate.turn(useTheTool, () => main.turn('In between.'))
}

export const scenarios = [
  ...each(everywhere, () => ({ name: 'whole and streamed', run: wholeAndStreamed })),
  ...each(everywhere, (b) => ({ name: 'three turns with a tool', run: (t) => toolLoop(t, b) })),
  ...each(everywhere, (b) => ({ name: 'thinking between tools, messages.stream', run: (t) => interleaved(t, b, true) })),
  ...each(signing, (b) => ({ name: 'thinking between tools, messages.create', run: (t) => interleaved(t, b, false) })),
  ...each(everywhere, (b) => ({ name: 'a client that keeps no thinking', run: (t) => careless(t, b, bare) })),
  ...each(signing, (b) => ({ name: 'a client that loses signatures', run: (t) => careless(t, b, unsigned) })),
  ...each(signing, (b) => ({ name: 'a client that cuts thinking short', run: (t) => careless(t, b, cut) })),
  ...each(signing, (b) => ({ name: 'redacted thinking', run: (t) => redactedThinking(t, b) })),
  ...each(['adaptive'], () => ({ name: 'omitted thinking', run: omittedThinking })),
  ...each(everywhere, (b) => ({ name: 'parallel tools', run: (t) => parallelTools(t, b) })),
  ...each(['adaptive', 'generic'], (b) => ({ name: 'count_tokens', run: (t) => countTokens(t, b) })),
  ...each(['adaptive'], () => ({ name: 'models', run: models })),
  ...each(['adaptive'], () => ({ name: 'a teammate beside the main agent', run: teammate })),
]
