// Token counts: in the answers to clients that ask for them, and in the gateway's metrics for all.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { anthropic, openai } from '../talk.mjs'

const backends = ['adaptive', 'kimi', 'deepseek', 'kimi-chat', 'deepseek-chat', 'generic']
const words = [{ role: 'user', content: 'How much is this?' }]

/** The gateway's counters of one backend: finished requests and tokens by kind. */
async function counters(t, backend) {
  const sums = { calls: 0, input: 0, output: 0 }
  for (const line of (await (await fetch(`${t.url}/metrics`)).text()).split('\n')) {
    if (!line.includes(`backend="${backend}"`)) continue
    const value = Number(line.slice(line.lastIndexOf(' ')))
    if (line.startsWith('mneme_proxy_requests_total{')) sums.calls += value
    if (line.startsWith('mneme_proxy_tokens_total{')) sums[/kind="(\w+)"/.exec(line)[1]] += value
  }
  return sums
}

/** The calls are counted a moment after they end. */
async function countersAfter(t, backend, before, calls) {
  for (let i = 0; i < 200; i++) {
    const now = await counters(t, backend)
    if (now.calls >= before.calls + calls) return now
    await sleep(50)
  }
  return assert.fail(`${calls} calls were not counted in 10 s`)
}

async function chunks(t, more) {
  const list = []
  for await (const c of await openai(t).chat.completions.create({ model: 'gpt-5', messages: words, stream: true, ...more })) list.push(c)
  return list
}

/** The gateway counts what the vendor counts for streams, even if the client does not ask for counts. */
async function streams(t, backend) {
  const before = await counters(t, backend)
  const plain = await chunks(t, {})
  assert.ok(plain.every((c) => c.choices.length === 1 && !c.usage), 'the client asked for no counts')
  const counts = (await chunks(t, { stream_options: { include_usage: true } })).filter((c) => c.usage)
  assert.equal(counts.length, 1)
  const { usage } = counts[0]
  const streamed = await anthropic(t).messages.stream({ model: 'claude-opus-4-8', max_tokens: 3000, messages: words }).finalMessage()
  const after = await countersAfter(t, backend, before, 3)
  assert.equal(after.output - before.output, 2 * usage.completion_tokens + streamed.usage.output_tokens)
  assert.equal(after.input - before.input, 2 * usage.prompt_tokens + streamed.usage.input_tokens)
}

export const scenarios = backends.map((backend) => ({ name: `usage, ${backend}: the gateway counts as the vendor does`, backend, run: (t) => streams(t, backend) }))
