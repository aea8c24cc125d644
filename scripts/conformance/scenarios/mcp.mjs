// mneme as an MCP server: the protocol's own conformance suite for servers against POST /mcp, and Claude Code as a client.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { run, stop } from '../processes.mjs'
import { up } from '../stack.mjs'
import { call, say, script } from '../talk.mjs'
import { Session } from './claude.mjs'

// Version 0.1 of the suite ends with 2025-11-25; 2026-07-28 is in the prerelease of 0.2. Both want Node 22, which the
// package node brings.
const suites = {
  '2025-11-25': '@modelcontextprotocol/conformance@0.1.16',
  '2026-07-28': '@modelcontextprotocol/conformance@0.2.0-alpha.12',
}
const node = 'node@22.23.3'

// The others call tools, prompts and resources of the suite's own by name, which only its reference server has.
const applicable = {
  '2025-11-25': ['server-initialize', 'ping', 'tools-list', 'dns-rebinding-protection'],
  '2026-07-28': ['server-stateless', 'tools-list', 'server-sse-multiple-streams', 'dns-rebinding-protection', 'caching', 'http-header-validation'],
}

const lacks = () => (spawnSync('npx', ['--version']).status === 0 ? '' : 'npx is not on PATH')

/** Starts a whole mneme with the offline model; gives its base URL and what ends it. */
export async function service({ stack, dir }) {
  const { url, mneme } = await up({ stack, dir }, {}, ['--offline'])
  return { url, end: () => stop(mneme) }
}

/** Says whether a check fails for what the server does not have, and need not. */
function needless({ errorMessage = '' }) {
  return errorMessage.startsWith('Not testable: server does not list') || /^(prompts|resources)\/.*-32601/.test(errorMessage)
}

async function suite(context, version, scenario) {
  const { url, end } = await service(context)
  const out = join(context.dir, 'results')
  mkdirSync(out)
  const { stdout, stderr } = await run('npx', ['-y', '-p', node, '-p', suites[version], 'conformance', 'server',
    '--url', `${url}/mcp`, '--scenario', scenario, '-o', out, ...(version > '2026' ? ['--spec-version', version] : [])])
  await end()
  const [folder] = readdirSync(out)
  assert.ok(folder, `the suite gave no result: ${(stdout + stderr).slice(-400)}`)
  const checks = JSON.parse(readFileSync(join(out, folder, 'checks.json')))
  const failed = checks.filter((c) => c.status === 'FAILURE' && !needless(c))
  assert.deepEqual(failed.map((c) => `${c.id}: ${c.errorMessage}`), [])
  assert.ok(checks.some((c) => c.status === 'SUCCESS'), 'nothing was checked')
}

/** Claude Code finds the three tools, and what it says by ask it finds again by recall. */
async function claudeCode(context, server) {
  const { url, end } = await service(context)
  const session = new Session(context)
  const config = join(context.dir, 'mcp.json')
  writeFileSync(config, JSON.stringify({ mcpServers: { mneme: server(url, context.stack) } }))
  const words = script('Keep it in mind.',
    [call('mcp__mneme__ask', { chat: 'claude', message: 'My name is Aliya.' })],
    [call('mcp__mneme__recall', { chat: 'claude', query: 'name' })],
    [call('mcp__mneme__search_documents', { collection: 'nothing', query: 'name' })],
    [say('Done.')])
  const { code, stdout, stderr } = await run(context.claude, ['-p', words, '--output-format', 'stream-json', '--verbose',
    '--model', 'claude-opus-4-8', '--mcp-config', config, '--strict-mcp-config', '--allowedTools', 'mcp__mneme'],
  { cwd: session.work, env: session.env })
  await end()
  writeFileSync(join(context.dir, 'claude.ndjson'), stdout)
  assert.equal(code, 0, stderr || stdout.slice(-300))
  const lines = stdout.trim().split('\n').map((line) => JSON.parse(line))
  assert.deepEqual(lines[0].mcp_servers.map(({ name, status }) => `${name} ${status}`), ['mneme connected'])
  assert.deepEqual(lines[0].tools.filter((name) => name.startsWith('mcp__')).sort(), ['ask', 'recall', 'search_documents'].map((name) => `mcp__mneme__${name}`))
  const results = lines.filter((l) => l.type === 'user').flatMap((l) => l.message.content).filter((b) => b.type === 'tool_result').map((b) => JSON.stringify(b.content))
  assert.match(results[0], /your name is Aliya/)
  assert.match(results[1], /My name is Aliya\./)
  assert.match(results[2], /There is no collection of this name/)
  assert.equal(lines.at(-1).result, 'Done.')
}

const servers = {
  http: (url) => ({ type: 'http', url: `${url}/mcp` }),
  stdio: (url, stack) => ({ command: join(stack.bin, 'mneme'), args: ['mcp', '--url', url] }),
}

export const scenarios = [
  ...Object.entries(applicable).flatMap(([version, names]) => names.map((name) => (
    { name: `mcp suite, ${version}: ${name}`, lacks, run: (context) => suite(context, version, name) }))),
  ...Object.entries(servers).map(([way, server]) => (
    { name: `claude code, mcp: ${way}`, run: (context) => claudeCode(context, server) })),
]
