// What is counted: to clients that ask, and in the gateway's books for all.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { anthropic, openai } from '../talk.mjs'

const backends = ['adaptive', 'kimi', 'deepseek', 'kimi-chat', 'deepseek-chat', 'generic']
const words = [{ role: 'user', content: 'How much is this?' }]

async function booked(t, backend) {
  const { rows } = await (await fetch(`${t.url}/admin/usage?since=1h&by=backend`)).json()
  const { calls = 0, input = 0, output = 0, estimated = 0 } = rows.find((r) => r.name === backend) ?? {}
  return { calls, input, output, estimated }
}

/** The calls are booked a moment after they end. */
async function bookedAfter(t, backend, before, calls) {
  for (let i = 0; i < 200; i++) {
    const now = await booked(t, backend)
    if (now.calls >= before.calls + calls) return now
    await sleep(50)
  }
  return assert.fail(`${calls} calls were not booked in 10 s`)
}

async function chunks(t, more) {
  const list = []
  for await (const c of await openai(t).chat.completions.create({ model: 'gpt-5', messages: words, stream: true, ...more })) list.push(c)
  return list
}

/** The books have the vendor's counts for streams, whether the client asks for them or not. */
async function books(t, backend) {
  const before = await booked(t, backend)
  const plain = await chunks(t, {})
  assert.ok(plain.every((c) => c.choices.length === 1 && !c.usage), 'nobody asked for counts')
  const counts = (await chunks(t, { stream_options: { include_usage: true } })).filter((c) => c.usage)
  assert.equal(counts.length, 1)
  const { usage } = counts[0]
  const streamed = await anthropic(t).messages.stream({ model: 'claude-opus-4-8', max_tokens: 3000, messages: words }).finalMessage()
  const after = await bookedAfter(t, backend, before, 3)
  assert.equal(after.estimated, before.estimated, 'nothing was estimated')
  assert.equal(after.output - before.output, 2 * usage.completion_tokens + streamed.usage.output_tokens)
  assert.equal(after.input - before.input, 2 * usage.prompt_tokens + streamed.usage.input_tokens)
}

export const scenarios = backends.map((backend) => ({ name: `usage, ${backend}: the books have the vendor's counts`, backend, run: (t) => books(t, backend) }))
