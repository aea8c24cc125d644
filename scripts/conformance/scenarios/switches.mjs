// Backends switched and gateways restarted in the middle of a conversation.
import assert from 'node:assert/strict'
import { ChatTalk, MessagesTalk, anthropic, openai, rounds, textOf, useTheTool } from '../talk.mjs'

const ways = [['adaptive', 'kimi'], ['adaptive', 'manual'], ['manual', 'deepseek'], ['kimi', 'adaptive'], ['deepseek', 'generic'], ['manual', 'kimi-chat']]
// Manual refuses the other model's thinking, once each time that there is some to send.
const refused = (way) => (way.join() === 'adaptive,manual' ? 2 : 0)
const talks = {
  'anthropic sdk': (t, params) => new MessagesTalk(anthropic(t), { asks: 'adaptive', ...params }),
  'anthropic sdk, conversation named': (t, params) => new MessagesTalk(anthropic(t, t), { asks: 'adaptive', ...params }),
  'openai sdk': (t) => new ChatTalk(openai(t)),
  'openai sdk, conversation named': (t) => new ChatTalk(openai(t, t)),
}

const said = (answer) => (answer.message ? answer.message.content : textOf(answer))

/** There and back again between turns. */
async function betweenTurns(t, talk, [a, b]) {
  for (const backend of [a, b, a, b, a]) {
    await t.use(backend)
    assert.match(said(await talk.turn(useTheTool)), /The tool gave/)
  }
}

/** There and back again while a tool runs. */
async function insideTurns(t, talk, [a, b]) {
  for (const n of [1, 2]) {
    const answer = await talk.turn(rounds(`turn ${n}`), (round) => t.use(round === 0 ? b : a))
    assert.equal(said(answer), `Done: turn ${n}`)
  }
}

async function restarts(t, talk) {
  await talk.turn(useTheTool)
  await t.restart()
  await talk.turn(useTheTool, () => t.restart())
  await talk.turn(useTheTool)
  if (t.stack.redis) assert.ok(talk.thought() >= 3)
}

async function restartsInside(t, talk) {
  for (const n of [1, 2]) await talk.turn(rounds(`turn ${n}`), () => t.restart())
  if (t.stack.redis) assert.equal(talk.thought(), talk.answers.length)
}

// What an operator has chosen holds after a restart.
async function choiceSurvives(t) {
  await t.use('kimi')
  await t.restart()
  const { active } = await (await fetch(`${t.url}/admin/backend`)).json()
  assert.equal(active, 'kimi')
}

export const scenarios = [
  ...Object.entries(talks).flatMap(([name, open]) => ways.flatMap((way) => [
    { name: `${name}, ${way.join(' ⇄ ')}: switched between turns`, backend: way[0], refused: refused(way), run: (t) => betweenTurns(t, open(t), way) },
    { name: `${name}, ${way.join(' ⇄ ')}: switched inside turns`, backend: way[0], refused: refused(way), run: (t) => insideTurns(t, open(t), way) },
  ])),
  ...Object.entries(talks).flatMap(([name, open]) => ['adaptive', 'manual', 'kimi', 'deepseek'].flatMap((backend) => [
    { name: `${name}, ${backend}: the gateway restarts`, backend, run: (t) => restarts(t, open(t)) },
    { name: `${name}, ${backend}: the gateway restarts between tools`, backend, run: (t) => restartsInside(t, open(t)) },
  ])),
  { name: 'mneme proxy use: the choice survives a restart', needsRedis: true, run: choiceSurvives },
]
