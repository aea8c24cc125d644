// The models that pickers show, by both SDKs.
import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { anthropic, openai } from '../talk.mjs'

export const vendors = { named: ['-vendor', 'anthropic', '-name', 'named', '-models', 'claude-opus-4-8,claude-sonnet-4-5'], 'named-chat': ['-vendor', 'chat', '-models', 'one-model,other-model'] }
export const backends = (url) => ({
  'all-mapped': { kind: 'anthropic', vendor: 'anthropic', base_url: url.named, model_map: { '*': 'claude-opus-4-8' } },
  'all-mapped-chat': { kind: 'openai', vendor: 'generic', base_url: `${url['named-chat']}/v1`, model_map: { '*': 'one-model' } },
  listed: { kind: 'anthropic', vendor: 'anthropic', base_url: url.named, model_map: { '*': 'claude-opus-4-8' }, models: ['best', 'fast'] },
  'listed-chat': { kind: 'openai', vendor: 'generic', base_url: `${url['named-chat']}/v1`, model_map: { '*': 'one-model' }, models: ['best', 'fast'] },
  'some-mapped': { kind: 'anthropic', vendor: 'anthropic', base_url: url.named, model_map: { best: 'claude-opus-4-8', fast: 'claude-sonnet-4-5' } },
})

const clients = { 'anthropic sdk': [anthropic, Anthropic], 'openai sdk': [openai, OpenAI] }

async function lists(t, [open, SDK], names, path = '') {
  const client = open(t, { path })
  const found = []
  for await (const m of client.models.list()) found.push(m.id)
  for (const name of names) {
    assert.ok(found.includes(name), `${name} is not in ${found}`)
    assert.equal((await client.models.retrieve(name)).id, name)
  }
  return [client, found, SDK]
}

async function known(t, client, names) {
  const [sdk, found] = await lists(t, client, names)
  assert.deepEqual(found.toSorted(), names)
  // Any name is taken where "*" is mapped, also one that no list has.
  assert.equal((await sdk.models.retrieve('whatever')).id, 'whatever')
}

/** A list that has all names there are: another one is not found. */
async function closed(t, client, names) {
  const [sdk, found, SDK] = await lists(t, client, names)
  assert.deepEqual(found.toSorted(), names)
  const e = await sdk.models.retrieve('whatever').then(() => assert.fail('it was found'), (error) => error)
  assert.ok(e instanceof SDK.NotFoundError, `${e}`)
}

export const scenarios = Object.entries(clients).flatMap(([name, client]) => [
  { name: '"*" is mapped: the vendor\'s list, messages', backend: 'all-mapped', run: (t) => known(t, client, ['claude-opus-4-8', 'claude-sonnet-4-5']) },
  { name: '"*" is mapped: the vendor\'s list, chat', backend: 'all-mapped-chat', run: (t) => known(t, client, ['one-model', 'other-model']) },
  { name: 'a configured list, messages', backend: 'listed', run: (t) => known(t, client, ['best', 'fast']) },
  { name: 'a configured list, chat', backend: 'listed-chat', run: (t) => known(t, client, ['best', 'fast']) },
  { name: 'names that are mapped', backend: 'some-mapped', run: (t) => closed(t, client, ['best', 'fast']) },
  { name: 'a teammate', run: (t) => lists(t, client, ['kimi-model'], '/teammate/analytic') },
].map((s) => ({ ...s, name: `models, ${name}: ${s.name}` })))
