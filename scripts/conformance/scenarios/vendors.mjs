// Two accounts of one vendor, and backends whose configuration does not say whose they are.
import assert from 'node:assert/strict'
import { ChatTalk, MessagesTalk, anthropic, bare, openai, rounds, textOf } from '../talk.mjs'

export const environment = { CONFORMANCE_KEY_A1: 'key-of-a1', CONFORMANCE_KEY_A3: 'key-of-a3' }

// Their names differ, so neither takes thinking that the other has signed.
export const vendors = {
  a1: ['-vendor', 'anthropic', '-name', 'a1', '-key', environment.CONFORMANCE_KEY_A1, '-prefix-check'],
  a3: ['-vendor', 'anthropic', '-name', 'a3', '-key', environment.CONFORMANCE_KEY_A3, '-prefix-check'],
  glm: ['-vendor', 'glm'],
}

const models = { kimi: 'kimi-k2.6', deepseek: 'deepseek-v4', glm: 'glm-4.7' }
const account = (url, name) =>
  ({ kind: 'anthropic', vendor: 'anthropic', base_url: url[name], api_key_env: `CONFORMANCE_KEY_${name.toUpperCase()}`, model_map: { master: 'claude-opus-4-8', 'gpt-5': 'claude-opus-4-8' } })
export const backends = (url) => ({
  a1: account(url, 'a1'), a3: account(url, 'a3'),
  ...Object.fromEntries(Object.keys(models).flatMap((name) => [
    [`unnamed-${name}`, { kind: 'anthropic', base_url: `${url[name]}/anthropic` }],
    [`unnamed-${name}-chat`, { kind: 'openai', base_url: `${url[name]}/v1` }],
  ])),
})

const talks = {
  'anthropic sdk': (t, params) => new MessagesTalk(anthropic(t), { asks: 'adaptive', ...params }),
  'anthropic sdk, conversation named': (t, params) => new MessagesTalk(anthropic(t, t), { asks: 'adaptive', ...params }),
  'anthropic sdk, keeps no thinking': (t, params) => new MessagesTalk(anthropic(t), { asks: 'adaptive', ...params, keep: bare }),
  'openai sdk': (t, params) => new ChatTalk(openai(t), params),
  'openai sdk, conversation named': (t, params) => new ChatTalk(openai(t, t), params),
}
// Without thinking and without a conversation an answer is known again by its calls alone.
const knownOf = { 'anthropic sdk, keeps no thinking': 2, 'openai sdk': 2 }
const said = (answer) => (answer.message ? answer.message.content : textOf(answer))

/** There and back, three times: each account gets all of its own thinking, and each refuses at most once. */
async function accounts(t, client) {
  const look = t.stack.watch()
  const talk = talks[client](t)
  const own = { a1: 0, a3: 0 }
  for (const [n, backend] of ['a1', 'a3', 'a1', 'a1', 'a3', 'a1'].entries()) {
    await t.use(backend)
    const turn = t.stack.watch()
    assert.equal(said(await talk.turn(rounds(`turn ${n}`))), `Done: turn ${n}`)
    const taken = turn().calls.filter((c) => c.line.startsWith('200 '))
    // Of the last call's history: all that this account has thought and that can be known, and nothing of the other.
    assert.equal(taken.at(-1).replayed, own[backend] + 2, `turn ${n} on ${backend}`)
    own[backend] += knownOf[client] ?? 3
  }
  for (const vendor of ['a1', 'a3']) {
    const refused = look().calls.filter((c) => c.vendor === vendor && !c.line.startsWith('200 '))
    assert.ok(refused.length <= 1, `${vendor} refused ${refused.length}`)
  }
}

/** Three turns with thinking between the calls; all of it is there again. */
async function unnamed(t, open, model) {
  const talk = open(t, { asks: 'manual', model })
  const look = t.stack.watch()
  for (const n of [1, 2, 3]) assert.equal(said(await talk.turn(rounds(`turn ${n}`))), `Done: turn ${n}`)
  assert.equal(talk.answers.length, 9)
  assert.equal(talk.thought(), 9)
  const { replayed } = look().calls.at(-1)
  assert.ok(replayed >= 2, `the last call has ${replayed} thoughts of its turn`)
}

export const scenarios = [
  ...Object.keys(talks).map((client) => ({ name: `two accounts of one vendor: a1 → a3 → a1, ${client}`, backend: 'a1', refused: 2, run: (t) => accounts(t, client) })),
  ...Object.keys(models).flatMap((name) => ['', '-chat'].flatMap((dialect) => Object.entries(talks).flatMap(([client, open]) => [
    [client, models[name], 0], [`a model of another name, ${client}`, 'house-model', 1],
  ].map(([what, model, refused]) => ({
    name: `without vendor, ${name}${dialect}: ${what}`, backend: `unnamed-${name}${dialect}`, refused, run: (t) => unnamed(t, open, model),
  }))))),
]
