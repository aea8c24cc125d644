// Memory for agents at the gateway: what an agent was told in one session it knows in the next one, and another agent
// knows it, by one header; without the header it does not.
import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { run, stop } from '../processes.mjs'
import { up } from '../stack.mjs'
import { Session } from './claude.mjs'
import { lacks as lacksCopilot, program as copilot } from './copilot.mjs'
import { lacks as lacksOpencode, Opencode } from './opencode.mjs'
import { Codex } from './responses.mjs'

const told = 'My locker at the station has the number 12.'
const asked = 'What number has my locker at the station?'

/** The GitHub Copilot CLI with a provider of its user's own, one prompt a session. */
class Copilot {
  constructor(t, { memory } = {}) {
    this.work = join(t.dir, 'work')
    mkdirSync(this.work, { recursive: true })
    this.env = {
      HOME: t.dir, COPILOT_HOME: join(t.dir, 'copilot'), PATH: process.env.PATH, TERM: 'dumb', LANG: 'C.UTF-8',
      COPILOT_OFFLINE: 'true', COPILOT_PROVIDER_BASE_URL: `${t.url}/v1`, COPILOT_PROVIDER_API_KEY: 'none', COPILOT_MODEL: 'gpt-5',
      ...(memory && { COPILOT_PROVIDER_HEADERS: `X-AG-Memory: ${memory}` }),
    }
  }

  async say(words) {
    const { code, stdout, stderr } = await run(copilot, ['-p', words, '--silent', '--allow-all-tools'], { cwd: this.work, env: this.env })
    assert.equal(code, 0, stderr || stdout)
    return { text: stdout }
  }
}

const agents = { 'Claude Code': Session, codex: Codex, opencode: Opencode, 'Copilot CLI': Copilot }
const lacks = { opencode: lacksOpencode, 'Copilot CLI': lacksCopilot }

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

/** The prompt of a compaction is not recorded as the user's words. */
async function compacts(t) {
  const { url, gateway, mneme } = await up(t, {}, ['--offline'])
  const session = new Session({ ...t, url: gateway }, { memory: 'laptop' })
  for (const words of [told, '/compact', asked]) await session.say(words)
  const { messages } = await (await fetch(`${url}/v1/chats/agent:laptop/history`)).json()
  assert.deepEqual(messages.filter((m) => m.role === 'user').map((m) => m.content), [told, asked])
  await stop(mneme)
}

// Each agent is told once and asked once at least, by itself and by the one that is next.
export const scenarios = [{ name: 'memory: Claude Code compacts', run: compacts }].concat(Object.keys(agents).flatMap((one, i, all) => [one, all[(i + 1) % all.length]].map((other) => ({
  name: `memory: ${one} is told, ${other} is asked`, lacks: () => lacks[one]?.() || lacks[other]?.() || '',
  run: (t) => remembers(t, agents[one], agents[other]),
}))))
