// Uses the types that openapi-typescript makes of /openapi.json, by openapi-fetch.
import assert from 'node:assert/strict'
import createClient from 'openapi-fetch'
import type { components, paths } from './api.js'

type Event = components['schemas']['Event']
const baseUrl = process.env.MNEME_URL
const chat = '7'
const path = { chat }

/** The text of an answer's events. */
async function read(body: ReadableStream<Uint8Array> | null): Promise<string> {
  assert.ok(body)
  let text = ''
  let last: Event | undefined
  for (const line of (await new Response(body).text()).split('\n')) {
    if (!line.startsWith('data:')) continue
    last = JSON.parse(line.slice(5)) as Event
    if (last.role === 'assistant_delta') text += last.text
  }
  assert.ok(last?.role === 'run_finished' && last.outcome === 'completed', JSON.stringify(last))
  return text
}

const refused = await createClient<paths>({ baseUrl }).GET('/v1/chats')
assert.equal(refused.response.status, 401)
assert.equal(refused.error?.error.code, 'unauthorized')

const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${process.env.MNEME_KEY}` } })
const posted = await client.POST('/v1/chats/{chat}/messages', {
  params: { path }, body: { message: 'One. SCRIPT [[{"say": "Answer one."}]]', chat_id: 7 } })
assert.ok(posted.data && 'content' in posted.data, JSON.stringify(posted.error))
assert.equal(posted.data.content, 'Answer one.')

const live = await client.POST('/v1/chats/{chat}/messages', { parseAs: 'stream',
  params: { path }, body: { message: 'Two. SCRIPT [[{"say": "Answer two."}]]', stream: true } })
assert.equal(await read(live.data as ReadableStream<Uint8Array>), 'Answer two.')
const run = live.response.headers.get('Mneme-Run-Id')
assert.ok(run)
const again = await client.GET('/v1/chats/{chat}/runs/{run}/events', { parseAs: 'stream', params: { path: { chat, run } } })
assert.equal(await read(again.data as ReadableStream<Uint8Array>), 'Answer two.')

const tools = [{ name: 'weather', description: 'The weather in a city.', parameters: { type: 'object' } }]
const waiting = await client.POST('/v1/chats/{chat}/messages', {
  params: { path }, body: { message: 'Three. SCRIPT [[{"use": "weather", "input": {}}], [{"say": "Sunny."}]]', tools } })
assert.ok(waiting.data && 'waits' in waiting.data, JSON.stringify(waiting))
let open: components['schemas']['ApprovalList'] | undefined
for (let i = 0; !open?.approvals.length && i < 100; i++) { // it is listed once its run has given the chat's turn back
  await new Promise((resolve) => setTimeout(resolve, 50))
  open = (await client.GET('/v1/approvals')).data
}
assert.deepEqual(open!.approvals.map((a) => [a.run_id, a.kind]), [[waiting.data.run_id, 'client_result']])
const done = await client.POST('/v1/chats/{chat}/runs/{run}/resume', { params: { path: { chat, run: waiting.data.run_id } },
  body: { answers: [{ id: open!.approvals[0]!.id, decision: 'approve', result: 'Sun.' }] } })
assert.ok(done.data && 'content' in done.data, JSON.stringify(done.error))
assert.equal(done.data.content, 'Sunny.')

const completion = await client.POST('/c/{chat}/v1/chat/completions', { params: { path: { chat: 'other' } }, body: {
  model: 'mneme', messages: [{ role: 'user', content: 'One. SCRIPT [[{"say": "{}"}]]' }], tool_choice: 'none', response_format: { type: 'json_object' } } })
assert.ok(typeof completion.data === 'object', JSON.stringify(completion.error))
assert.equal(completion.data.choices[0]?.message.content, '{}')

const { data: history } = await client.GET('/v1/chats/{chat}/history', { params: { path } })
assert.equal(history?.messages[1]?.content, 'Answer one.')
const { data: chats } = await client.GET('/v1/chats')
assert.deepEqual(chats?.chats.map((c) => c.chat_id).sort(), [chat, 'other'])
console.log('post, stream, approvals, resume, history, chats')
