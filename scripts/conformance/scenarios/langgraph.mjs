// A graph of LangGraph JS whose memory is mneme: what one process was told the next one knows, and another thread does not.
import assert from 'node:assert/strict'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { run } from '../processes.mjs'
import { service } from './mcp.mjs'

const graph = join(dirname(dirname(fileURLToPath(import.meta.url))), 'testdata', 'langgraph', 'graph.mjs')

async function remembers(context, way) {
  const { url, end } = await service(context)
  const turn = async (thread, words) => {
    const { code, stdout, stderr } = await run('node', [graph, url, thread, way, words])
    assert.equal(code, 0, stderr)
    return JSON.parse(stdout)
  }
  assert.deepEqual((await turn('one', 'My name is Aliya.')).known, [])
  const { answer, known } = await turn('one', 'What is my name?')
  assert.match(answer, /Aliya/)
  assert.ok(known.some((text) => text.includes('My name is Aliya.')), JSON.stringify(known))
  const other = await turn('two', 'What is my name?')
  assert.doesNotMatch(other.answer, /Aliya/)
  assert.deepEqual(other.known, [])
  await end()
}

const ways = { 'mneme as its model': 'mneme', 'a model of its own': 'own' }
export const scenarios = Object.entries(ways).map(([name, way]) => ({ name: `langgraph: ${name}`, run: (context) => remembers(context, way) }))
