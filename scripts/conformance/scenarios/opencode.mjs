// opencode without its screen, offline, as a client of either dialect by its configuration file.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { run } from '../processes.mjs'
import { call, named, say, script, think } from '../talk.mjs'

const fileText = 'The file says marmalade.'

/** What opencode.json has for each dialect. A model's reasoning is asked for as opencode's users would. */
const providers = (t, headers) => {
  const options = { baseURL: `${t.url}/v1`, apiKey: t.key, headers }
  const model = { tool_call: true, reasoning: true, limit: { context: 200_000, output: 16_000 } }
  return {
    chat: { npm: '@ai-sdk/openai-compatible', name: 'chat', options, models: { 'gpt-5': { ...model, options: { reasoningEffort: 'medium' } } } },
    messages: {
      npm: '@ai-sdk/anthropic', name: 'messages', options, models: {
        'claude-opus-4-8': { ...model, options: { thinking: { type: 'adaptive' } } },
        master: { ...model, options: { thinking: { type: 'enabled', budgetTokens: 4000 } } },
      },
    },
  }
}

const program = fileURLToPath(new URL('../node_modules/opencode-linux-x64-baseline/bin/opencode', import.meta.url))
export const lacks = () => (existsSync(program) ? '' : 'opencode has no program for this machine')

export class Opencode {
  constructor(t, { model = 'chat/gpt-5', conversation, memory } = {}) {
    Object.assign(this, { t, model, work: join(t.dir, 'work') })
    const home = join(t.dir, 'home')
    for (const dir of [home, this.work]) mkdirSync(dir, { recursive: true })
    writeFileSync(join(this.work, 'sample'), `${fileText}\n`)
    const config = {
      $schema: 'https://opencode.ai/config.json', autoupdate: false, share: 'disabled', permission: 'allow',
      model, small_model: model, provider: providers(t, { ...named(conversation), ...(memory && { 'X-AG-Memory': memory }) }),
    }
    writeFileSync(join(t.dir, 'opencode.json'), JSON.stringify(config))
    this.env = {
      HOME: home, PATH: process.env.PATH, TERM: 'dumb', LANG: 'C.UTF-8', OPENCODE_CONFIG: join(t.dir, 'opencode.json'),
      ...Object.fromEntries(['CONFIG', 'DATA', 'STATE', 'CACHE'].map((kind) => [`XDG_${kind}_HOME`, join(home, kind)])),
      OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_MODELS_FETCH: '1', OPENCODE_DISABLE_LSP_DOWNLOAD: '1', OPENCODE_DISABLE_DEFAULT_PLUGINS: '1',
      // Nothing but the gateway is to be reached: nobody listens on the discard port.
      HTTPS_PROXY: 'http://127.0.0.1:9', NO_PROXY: '127.0.0.1',
    }
  }

  /** Says something, from the second time on as --continue, and gives what the model said at last. */
  async say(words) {
    // It puts quotes around an argument with spaces.
    const args = ['run', '--format', 'json', '--auto', '--model', this.model, ...(this.begun ? ['--continue'] : []), ...words.split(' ')]
    this.begun = true
    const { code, stdout, stderr } = await run(program, args, { cwd: this.work, env: this.env })
    const events = stdout.split('\n').filter(Boolean).map((l) => JSON.parse(l))
    const failed = events.find((e) => e.type === 'error')
    assert.ok(!failed, JSON.stringify(failed?.error))
    assert.equal(code, 0, stderr || stdout)
    return { events, text: events.filter((e) => e.type === 'text').map((e) => e.part.text).at(-1) }
  }

  /** Two rounds of a tool and an answer, with thinking before each. */
  rounds(words) {
    const read = call('read', { filePath: join(this.work, 'sample') })
    return script(words, [think(`First. ${words}`), say('I read.'), read], [think(`Again. ${words}`), read], [think(`Both are there. ${words}`), say(`Done: ${words}`)])
  }
}

async function loops(t, options) {
  const session = new Opencode(t, options)
  for (const n of [1, 2]) {
    const { events, text } = await session.say(session.rounds(`turn ${n}`))
    assert.equal(text, `Done: turn ${n}`)
    assert.equal(events.filter((e) => e.type === 'tool_use' && /marmalade/.test(JSON.stringify(e.part.state))).length, 2)
  }
}

/** There and back again: between the steps, and in the last ones by the tool that the model calls. */
async function switched(t, options, [a, b]) {
  const session = new Opencode(t, options)
  for (const [n, backend] of [a, b, a].entries()) {
    await t.use(backend)
    assert.equal((await session.say(session.rounds(`step ${n}`))).text, `Done: step ${n}`)
  }
  const use = (backend) => call('bash', { command: `MNEME_URL=${t.url} ${join(t.stack.bin, 'mneme')} proxy use ${backend}`, description: 'Switches' })
  const words = script('Switch.', [think('There.'), say('I switch.'), use(b)], [think('And back.'), use(a)], [think('Back.'), say('Switched twice.')])
  assert.equal((await session.say(words)).text, 'Switched twice.')
}

const adaptive = 'messages/claude-opus-4-8'
const manual = 'messages/master'
const chat = 'chat/gpt-5'
const ways = [
  [adaptive, 'adaptive', 'kimi', true], [adaptive, 'adaptive', 'generic'], [manual, 'deepseek', 'kimi'],
  [chat, 'adaptive', 'kimi-chat', true], [chat, 'deepseek-chat', 'manual'],
]

export const scenarios = [
  ...[[adaptive, 'adaptive'], [manual, 'manual'], [manual, 'kimi'], [manual, 'deepseek'], [manual, 'generic'], ...['adaptive', 'kimi', 'kimi-chat', 'deepseek-chat', 'generic'].map((b) => [chat, b])]
    .map(([model, backend]) => ({ name: `opencode, ${model.split('/')[0]}, ${backend}: turns with tools`, backend, run: (t) => loops(t, { model }) })),
  ...ways.flatMap(([model, a, b, named]) => ['', ...(named ? [', conversation named'] : [])].map((title) => ({
    name: `opencode, ${model.split('/')[0]}, ${a} ⇄ ${b}${title}: switched`, backend: a,
    run: (t) => switched(t, { model, ...(title && { conversation: t.conversation }) }, [a, b]),
  }))),
].map((s) => ({ ...s, lacks }))
