// Clients that generators make of /openapi.json: made, compiled and used against a whole mneme that wants keys.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { run } from '../processes.mjs'
import { House } from './endpoint.mjs'

const here = dirname(dirname(fileURLToPath(import.meta.url)))
const modules = join(here, 'node_modules')
const runtime = 'github.com/oapi-codegen/runtime@v1.9.0'
const go = (cwd, ...args) => ['go', args, { cwd, env: { ...process.env, GOFLAGS: '-trimpath -mod=mod' } }]

/** How each client is made of ../openapi.json in a folder, and used. */
const generators = {
  'oapi-codegen v2.8.2': {
    commands: (dir) => [
      go(dir, 'mod', 'init', 'generated'),
      go(dir, 'run', 'github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2',
        '-generate', 'types,client', '-package', 'gen', '-o', 'gen/gen.go', 'openapi.json'),
      go(dir, 'get', runtime),
      go(dir, 'run', '.'),
    ],
  },
  'ogen v1.24.0': {
    commands: (dir) => [
      go(dir, 'mod', 'init', 'generated'),
      go(dir, 'run', 'github.com/ogen-go/ogen/cmd/ogen@v1.24.0',
        '--target', 'gen', '--package', 'gen', '--config', 'ogen.json', 'openapi.json'),
      go(dir, 'get', 'github.com/ogen-go/ogen@v1.24.0'),
      go(dir, 'run', '.'),
    ],
    // Without the server, which the client does not need and which takes minutes to compile.
    files: { 'ogen.json': { generator: { features: { disable_all: true, enable: ['paths/client'] } } } },
  },
  'openapi-typescript 7.13.0': {
    commands: (dir) => [
      [join(modules, '.bin', 'openapi-typescript'), ['openapi.json', '-o', 'api.d.ts'], { cwd: dir }],
      [join(modules, '.bin', 'tsc'), ['--noEmit', 'false'], { cwd: dir }],
      ['node', ['main.js'], { cwd: dir }],
    ],
    files: {
      'package.json': { type: 'module' },
      'tsconfig.json': { compilerOptions: { strict: true, noUncheckedIndexedAccess: true, target: 'es2022', module: 'nodenext',
        types: ['node'], typeRoots: [join(modules, '@types')] } },
    },
  },
}

async function generate(context, name) {
  const { commands, files = {} } = generators[name]
  const dir = join(context.dir, 'client')
  mkdirSync(join(dir, 'gen'), { recursive: true })
  cpSync(join(here, 'testdata', name.split(' ')[0]), dir, { recursive: true })
  for (const [file, content] of Object.entries(files)) writeFileSync(join(dir, file), JSON.stringify(content))
  symlinkSync(modules, join(dir, 'node_modules'))
  const key = `mn_generated_${randomBytes(24).toString('hex')}`
  const keys = join(context.dir, 'keys.yaml')
  writeFileSync(keys, JSON.stringify({ keys: [{ id: 'generated', tenant: 'default', scopes: ['chat', 'memory:read', 'approve'],
    hash: createHash('sha256').update(key).digest('hex') }] }))
  const h = await House.open(context, 'generic', { auth: { mode: 'keys', keys_file: keys } })
  writeFileSync(join(dir, 'openapi.json'), await fetch(`${h.url}/openapi.json`).then((r) => r.text()))
  let said
  for (const [command, args, options] of commands(dir)) {
    said = await run(command, args, { timeout: 600_000, ...options, env: { ...process.env, ...options.env, MNEME_URL: h.url, MNEME_KEY: key } })
    assert.equal(said.code, 0, `${command} ${args.join(' ')}: ${(said.stdout + said.stderr).slice(-500)}`)
  }
  assert.match(said.stdout, /post, stream, approvals, resume, history, chats/)
  await h.end()
}

const lacks = () => (spawnSync('go', ['version']).status === 0 ? '' : 'go is not on PATH')

export const scenarios = Object.keys(generators).map((name) => ({ name: `generated clients: ${name}`, lacks, run: (context) => generate(context, name) }))
