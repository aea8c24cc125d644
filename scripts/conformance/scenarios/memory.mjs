// Memory for agents at the gateway: what Claude Code or codex was told in one session it knows in the next one, and in
// the other agent, by one header; without the header it does not.
import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { stop } from '../processes.mjs'
import { up } from '../stack.mjs'
import { Session } from './claude.mjs'
import { Codex } from './responses.mjs'

const told = 'My locker at the station has the number 12.'
const asked = 'What number has my locker at the station?'
const agents = { 'Claude Code': Session, codex: Codex }

/** The text of an agent's answer. */
const text = ({ result, text }) => result ?? text

async function remembers(t, first, second) {
  const { url, gateway, mneme } = await up(t, {}, ['--offline'])
  const session = (name, memory) => {
    const dir = join(t.dir, name)
    mkdirSync(dir, { recursive: true })
    return [{ ...t, dir, url: gateway }, { memory }]
  }
  await new first(...session('told', 'laptop')).say(told)
  assert.match(text(await new second(...session('asked', 'laptop')).say(asked)), /\b12\b/)
  assert.doesNotMatch(text(await new second(...session('without')).say(asked)), /\b12\b/)
  assert.doesNotMatch(text(await new second(...session('elsewhere', 'desk')).say(asked)), /\b12\b/)
  const { messages } = await (await fetch(`${url}/v1/chats/agent:laptop/history`)).json()
  assert.deepEqual(messages.filter((m) => m.role === 'user').map((m) => m.content), [told, asked])
  await stop(mneme)
}

export const scenarios = Object.keys(agents).flatMap((one) => Object.keys(agents).map((other) => ({
  name: `memory: ${one} is told, ${other} is asked`, run: (t) => remembers(t, agents[one], agents[other]),
})))
