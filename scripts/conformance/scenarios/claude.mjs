// Claude Code in print mode, offline.
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { run } from '../processes.mjs'
import { call, redacted, say, script, think, useTheTool } from '../talk.mjs'

const fileText = 'The file says marmalade.'
const commandText = 'the command says thyme'

/** A scratch folder with a home, a file and a command named "sample", as the fake vendor fills in what a tool requires. */
export class Session {
  constructor(t, { conversation, experimental, memory } = {}) {
    this.t = t
    const [home, bin, work] = ['home', 'bin', 'work'].map((name) => join(t.dir, name))
    for (const dir of [home, bin, work]) mkdirSync(dir, { recursive: true })
    writeFileSync(join(work, 'sample'), `${fileText}\n`)
    writeFileSync(join(bin, 'sample'), `#!/bin/sh\necho ${commandText}\n`, { mode: 0o755 })
    this.work = work
    this.env = {
      HOME: home, PATH: `${bin}:${process.env.PATH}`, TERM: 'dumb', LANG: 'C.UTF-8',
      ANTHROPIC_BASE_URL: t.url, ANTHROPIC_API_KEY: t.key,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_AUTOUPDATER: '1', DISABLE_TELEMETRY: '1', DISABLE_ERROR_REPORTING: '1',
      // Nothing but the gateway is to be reached: nobody listens on the discard port.
      HTTPS_PROXY: 'http://127.0.0.1:9', NO_PROXY: '127.0.0.1',
      ...(conversation && { ANTHROPIC_CUSTOM_HEADERS: `X-AG-Conversation-Id: ${conversation}` }),
      ...(memory && { ANTHROPIC_CUSTOM_HEADERS: `X-AG-Memory: ${memory}` }),
      ...(!experimental && { CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS: '1' }),
    }
  }

  /** Says something, from the second time on as --continue, and gives the result. */
  async say(words, { tools = 'Read,Bash', model = 'claude-opus-4-8' } = {}) {
    const args = ['-p', words, '--output-format', 'json', '--model', model, '--allowedTools', 'Read Bash Task Agent']
    if (tools) args.push('--tools', tools)
    if (this.begun) args.push('--continue')
    this.begun = true
    const { code, stdout, stderr } = await run(this.t.claude, args, { cwd: this.work, env: this.env })
    let result
    try {
      result = JSON.parse(stdout)
    } catch {
      assert.fail(`claude ended with ${code} and no result: ${(stderr || stdout).slice(0, 300)}`)
    }
    assert.equal(result.is_error, false, `${result.result}`)
    assert.equal(code, 0, stderr)
    return result
  }
}

async function plain(t, options) {
  const { result } = await new Session(t, options).say('Hello, mneme.')
  assert.match(result, /^You said: /)
}

async function reads(t, options) {
  const { result } = await new Session(t, options).say(useTheTool, { tools: 'Read' })
  assert.match(result, /marmalade/)
}

async function executes(t, options) {
  const { result } = await new Session(t, options).say(useTheTool, { tools: 'Bash' })
  assert.match(result, /thyme/)
}

/** The first tool that Claude Code offers starts a subagent. */
async function delegates(t, options) {
  const { subagent_stats: stats } = await new Session(t, options).say(useTheTool, { tools: '' })
  assert.equal(stats.completed, 1)
}

async function restarts(t, options) {
  const session = new Session(t, options)
  for (let n = 0; n < 3; n++) {
    if (n) await t.restart()
    assert.match((await session.say(useTheTool, { tools: 'Read' })).result, /marmalade/)
  }
}

async function otherModels(t, options) {
  const session = new Session(t, options)
  for (const model of ['claude-opus-4-8', 'claude-sonnet-4-5', 'claude-opus-5-5', 'claude-opus-4-8']) {
    assert.match((await session.say(useTheTool, { tools: 'Read', model })).result, /marmalade/)
  }
}

async function otherBackends(t, options) {
  const session = new Session(t, options)
  for (const backend of ['adaptive', 'kimi', 'adaptive', 'generic', 'manual', 'deepseek', 'adaptive']) {
    await t.use(backend)
    assert.match((await session.say(useTheTool, { tools: 'Read' })).result, /marmalade/)
  }
}

/** The same conversation with more and fewer tools, which the prefix check minds. */
async function otherTools(t, options) {
  const session = new Session(t, options)
  for (const tools of ['Read', 'Bash', 'Read']) await session.say(useTheTool, { tools })
}

async function manyRounds(t, options) {
  const session = new Session(t, options)
  const file = join(session.work, 'sample')
  for (let n = 0; n < 2; n++) {
    const { result } = await session.say(script('Look around.',
      [think('Read it.'), say('I read.'), call('Read', { file_path: file })],
      [think('Both at once.'), redacted, call('Bash', { command: 'sample', description: 'Runs it' }), call('Bash', { command: 'cat sample', description: 'Shows it' })],
      [think('Enough.'), say('All was read.')]))
    assert.equal(result, 'All was read.')
    await t.restart()
  }
}

async function subagentWithTools(t, options) {
  const session = new Session(t, options)
  const task = script('Look.', [think('A look.'), call('Read', { file_path: join(session.work, 'sample') })], [think('Seen.'), say('Marmalade, says the file.')])
  const { subagent_stats: stats } = await session.say(script('Send somebody.',
    [think('Somebody else.'), call('Agent', { description: 'Looks', prompt: task, subagent_type: 'general-purpose', run_in_background: false })],
    [think('They came back.'), say('They have looked.')]), { tools: '' })
  assert.equal(stats.completed, 1)
  assert.equal((await session.say(script('And you?', [think('Me.'), call('Read', { file_path: join(session.work, 'sample') })], [say('Read.')]), { tools: '' })).result, 'Read.')
}

const tries = [
  { name: 'answers', run: plain },
  { name: 'reads a file', run: reads },
  { name: 'runs a command', run: executes },
  { name: 'delegates to a subagent', run: delegates },
  { name: '--continue after restarts of the gateway', run: restarts },
  { name: 'many rounds, parallel and redacted', run: manyRounds },
  { name: 'a subagent that reads', run: subagentWithTools },
]
// These go through several backends or mind the prefix check.
const changes = [
  { name: '--continue with other models', run: otherModels },
  // Manual refuses the other model's thinking.
  { name: '--continue on other backends', refused: 1, run: otherBackends },
  // A changed tool unbinds the thinking before it.
  { name: '--continue with other tools', refused: 1, run: otherTools },
]
// With all its betas Claude Code offers a placeholder first, which only a script
// passes by. The fake vendor does not know tool_addition, which is what the beta
// mid-conversation-tool-changes is about; Claude Code asks again without it.
const experimental = [
  ...tries.filter((s) => ![reads, executes, restarts].includes(s.run)),
  { name: '--continue with other tools', run: otherTools, failed: 1, refused: 2 },
]

const titled = (title, list, options = () => ({})) =>
  list.map((s) => ({ ...s, name: `claude code, ${title}: ${s.name}`, run: (t) => s.run(t, options(t)) }))

export const scenarios = [
  ...titled('adaptive', [...tries, ...changes]),
  ...titled('adaptive, conversation named', [...tries, ...changes], ({ conversation }) => ({ conversation })),
  ...titled('adaptive, experimental betas', experimental, () => ({ experimental: true })),
  ...['manual', 'kimi', 'deepseek', 'generic'].flatMap((backend) => titled(backend, tries).map((s) => ({ ...s, backend }))),
]
