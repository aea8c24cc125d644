// Runs the scenarios one after the other and prints a line for each.
import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { stopAll } from './processes.mjs'
import { Stack } from './stack.mjs'
import * as agents from './scenarios/agents.mjs'
import * as chat from './scenarios/chat.mjs'
import * as claude from './scenarios/claude.mjs'
import * as controls from './scenarios/controls.mjs'
import * as copilot from './scenarios/copilot.mjs'
import * as endpoint from './scenarios/endpoint.mjs'
import * as errors from './scenarios/errors.mjs'
import * as faults from './scenarios/faults.mjs'
import * as frameworks from './scenarios/frameworks.mjs'
import * as generated from './scenarios/generated.mjs'
import * as langgraph from './scenarios/langgraph.mjs'
import * as listed from './scenarios/listed.mjs'
import * as mcp from './scenarios/mcp.mjs'
import * as mcpclient from './scenarios/mcpclient.mjs'
import * as memory from './scenarios/memory.mjs'
import * as messages from './scenarios/messages.mjs'
import * as opencode from './scenarios/opencode.mjs'
import * as responses from './scenarios/responses.mjs'
import * as restarts from './scenarios/restarts.mjs'
import * as routes from './scenarios/routes.mjs'
import * as streams from './scenarios/streams.mjs'
import * as structured from './scenarios/structured.mjs'
import * as switches from './scenarios/switches.mjs'
import * as ui from './scenarios/ui.mjs'
import * as usage from './scenarios/usage.mjs'
import * as vendors from './scenarios/vendors.mjs'

const modules = join(dirname(fileURLToPath(import.meta.url)), 'node_modules')
const { dependencies, optionalDependencies } = JSON.parse(readFileSync(join(dirname(fileURLToPath(import.meta.url)), 'package.json')))
const packages = Object.keys({ ...dependencies, ...optionalDependencies })

const { values: flags } = parseArgs({
  options: {
    bin: { type: 'string' }, dir: { type: 'string' }, only: { type: 'string', multiple: true },
    short: { type: 'boolean' }, list: { type: 'boolean' }, 'without-redis': { type: 'boolean' },
  },
})
const sets = [controls, messages, chat, switches, errors, faults, frameworks, responses, vendors, structured, listed, usage, claude, agents, routes, opencode, copilot, streams, mcp, mcpclient, endpoint, restarts, ui, generated, langgraph, memory]
const row = (s) => s.name.split(':')[0]
const scenarios = sets
  .flatMap((m) => m.scenarios)
  .filter((s) => !flags.only || flags.only.some((text) => s.name.includes(text)))
  .filter((s, at, all) => !flags.short || all.findIndex((other) => row(other) === row(s)) === at)

if (scenarios.length === 0) {
  console.error('no scenario has such a name; see --list')
  process.exit(2)
}
if (flags.list) {
  for (const s of scenarios) console.log(s.name)
  process.exit(0)
}

let stopping = false
for (const name of ['SIGINT', 'SIGTERM']) {
  process.on(name, async () => {
    if (stopping) return
    stopping = true
    await stopAll()
    process.exit(130)
  })
}

/** What a scenario gets: the gateway, a credential and a folder of its own. */
function context(stack, name) {
  const key = `key-${randomBytes(9).toString('hex')}`
  const dir = join(stack.dir, name.replaceAll(/[^a-z0-9]+/gi, '-'))
  mkdirSync(dir, { recursive: true })
  return {
    stack, key, dir, url: stack.url, claude: join(modules, '.bin', 'claude'), codex: join(modules, '.bin', 'codex'),
    conversation: `conformance-${randomBytes(9).toString('hex')}`,
    use: (backend) => stack.use(backend),
    restart: () => stack.restart(),
  }
}

const counted = ['upstream', 'thinking', 'refused', 'retried', 'dropped']

/** Runs one scenario; gives its verdict, a reason and what was seen meanwhile. */
async function judge(stack, s) {
  if (s.needsRedis && !stack.redis) return { verdict: 'skip', reason: 'the gateway has no Redis' }
  const lacks = s.lacks?.()
  if (lacks) return { verdict: 'skip', reason: lacks }
  await stack.use(s.backend ?? 'adaptive')
  const look = stack.watch()
  let error
  try {
    await s.run(context(stack, s.name))
  } catch (e) {
    error = e
  }
  const seen = look()
  const [mayRefuse, mayFail] = [s.refused ?? 0, s.failed ?? 0]
  let reason = ''
  if (error) reason = `${error.message}`.split('\n').join(' ').slice(0, 600)
  else if (seen.failed.length > mayFail) reason = `the client saw ${seen.failed.length} errors, not ${mayFail}: ${seen.failed}`
  else if (seen.refused.length > mayRefuse) reason = `the vendors refused more than ${mayRefuse}`
  return { verdict: reason ? 'FAIL' : 'ok', reason, ...seen }
}

const counts = (c) => counted.map((name) => `${c[name].length ?? c[name]} ${name}`).join(', ')

/** Runs all of them; gives a table of the names before the colons. */
async function runAll(stack) {
  const width = Math.max(...scenarios.map((s) => s.name.length))
  const table = {}
  for (const s of scenarios) {
    const r = await judge(stack, s)
    if (stopping) await new Promise(() => {}) // what failed then says nothing; the signal's handler ends this
    const remark = [r.reason, r.refused && counts(r)].filter(Boolean).join('; ')
    console.log(`${r.verdict.padEnd(4)}  ${s.name.padEnd(width)}  ${remark}`)
    for (const line of r.refused ?? []) console.log(`        ${line}`)
    for (const line of [row(s), 'all']) {
      table[line] ??= { ok: 0, FAIL: 0, skip: 0, ...Object.fromEntries(counted.map((name) => [name, 0])) }
      table[line][r.verdict]++
      for (const name of counted) table[line][name] += r[name]?.length ?? r[name] ?? 0
    }
  }
  return table
}

function print({ all, ...rows }) {
  const columns = ['ok', 'FAIL', 'skip', ...counted]
  const width = Math.max(...Object.keys(rows).map((name) => name.length))
  const line = (name, cells) => console.log(`${name.padEnd(width)}  ${cells.map((c, i) => `${c}`.padStart(columns[i].length)).join('  ')}`)
  line('', columns)
  for (const [name, row] of Object.entries({ ...rows, all })) line(name, columns.map((c) => row[c]))
}

function version(name) {
  const file = join(modules, name, 'package.json')
  return existsSync(file) ? JSON.parse(readFileSync(file)).version : 'is not for this machine'
}

let failures = 0
try {
  const stack = await Stack.start({ bin: flags.bin, dir: flags.dir, redis: !flags['without-redis'], sets })
  console.log(`${packages.map((p) => `${p} ${version(p)}`).join(', ')}, node ${process.versions.node}`)
  console.log(stack.redis ? 'the gateway has a Redis' : 'the gateway has no Redis and forgets at each restart')
  const table = await runAll(stack)
  print(table)
  failures = table.all.FAIL
  stack.stop()
} catch (e) {
  console.error(e.message)
  failures = 1
}
await stopAll()
process.exit(failures ? 1 : 0)
