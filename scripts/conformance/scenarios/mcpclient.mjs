// Tools of MCP servers: the protocol's own conformance suite for clients against the client that agents have.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { run } from '../processes.mjs'

// As in mcp.mjs.
const suites = {
  '2025-11-25': '@modelcontextprotocol/conformance@0.1.16',
  '2026-07-28': '@modelcontextprotocol/conformance@0.2.0-alpha.12',
}
const node = 'node@22.23.3'

// The others want OAuth, extensions, and questions in the midst of a call of the older era, which are not offered.
const applicable = {
  '2025-11-25': ['initialize', 'tools_call', 'sse-retry'],
  '2026-07-28': ['tools_call', 'request-metadata', 'sep-2322-client-request-state', 'http-standard-headers', 'http-custom-headers',
    'http-invalid-tool-headers', 'json-schema-ref-no-deref', 'json-schema-2020-12-preservation'],
}

const lacks = () => (spawnSync('npx', ['--version']).status === 0 ? '' : 'npx is not on PATH')

async function suite({ stack, dir }, version, scenario) {
  const out = join(dir, 'results')
  mkdirSync(out)
  const { stdout, stderr } = await run('npx', ['-y', '-p', node, '-p', suites[version], 'conformance', 'client',
    '--command', join(stack.bin, 'mcpclient'), '--scenario', scenario, '-o', out,
    ...(version > '2026' ? ['--spec-version', version] : [])])
  const [folder] = readdirSync(out)
  assert.ok(folder, `the suite gave no result: ${(stdout + stderr).slice(-400)}`)
  const checks = JSON.parse(readFileSync(join(out, folder, 'checks.json')))
  assert.deepEqual(checks.filter((c) => c.status === 'FAILURE').map((c) => `${c.id}: ${c.errorMessage}`), [])
  assert.ok(checks.some((c) => c.status === 'SUCCESS'), 'nothing was checked')
}

export const scenarios = Object.entries(applicable).flatMap(([version, names]) => names.map((name) => (
  { name: `mcp client suite, ${version}: ${name}`, lacks, run: (context) => suite(context, version, name) })))
