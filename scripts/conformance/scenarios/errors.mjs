// Errors arrive as the SDKs' own classes.
import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { vendorKey } from '../stack.mjs'
import { anthropic, openai } from '../talk.mjs'

const body = { model: 'master', max_tokens: 100, messages: [{ role: 'user', content: 'Hello.' }] }
const chat = (t, options, more) => openai(t, options).chat.completions.create({ model: 'gpt-5', messages: body.messages, ...more })

/** The error that a call fails with, which must be of this class and tell of the request. */
async function fails(call, kind) {
  const error = await call.then(() => assert.fail('it did not fail'), (e) => e)
  assert.ok(error instanceof kind, `${kind.name} expected, not ${error.constructor.name}: ${error.message}`)
  assert.ok(error.headers.get('X-AG-Request-Id'), 'the gateway names the request')
  return error
}

async function badRequests(t) {
  const e = await fails(anthropic(t).messages.create({ ...body, messages: [{ role: 'robot', content: 'x' }] }), Anthropic.BadRequestError)
  assert.equal(e.error.error.type, 'invalid_request_error')
  const refused = await fails(chat(t, {}, { n: 2 }), OpenAI.BadRequestError)
  assert.match(refused.message, /"n"/)
}

async function wrongKeys(t) {
  const e = await fails(anthropic(t).messages.create(body), Anthropic.AuthenticationError)
  assert.match(e.message, /invalid x-api-key/)
  await fails(chat(t), OpenAI.AuthenticationError)
  const answer = await anthropic(t, { key: vendorKey }).messages.create(body)
  assert.equal(answer.stop_reason, 'end_turn')
}

async function rateLimits(t) {
  const e = await fails(anthropic(t).messages.create(body), Anthropic.RateLimitError)
  assert.equal(e.headers.get('retry-after'), '60')
  assert.match(e.message, /Rate limit reached/)
  const f = await fails(chat(t), OpenAI.RateLimitError)
  assert.equal(f.code, 'rate_limit_exceeded')
  const streamed = await chat(t, {}, { stream: true }).then(() => assert.fail('it did not fail'), (error) => error)
  assert.ok(streamed instanceof OpenAI.RateLimitError)
}

async function notServed(t) {
  const e = await fails(openai(t).completions.create({ model: 'gpt-5', prompt: 'x' }), OpenAI.NotFoundError)
  assert.match(e.message, /\/v1\/chat\/completions/)
  await fails(anthropic(t).messages.batches.list(), Anthropic.NotFoundError)
}

async function badConversation(t) {
  await fails(anthropic(t, { conversation: 'a b' }).messages.create(body), Anthropic.BadRequestError)
}

export const scenarios = [
  { name: 'errors, 400: BadRequestError', failed: 2, refused: 1, run: badRequests },
  { name: 'errors, 401: AuthenticationError, passthrough', backend: 'keyed', failed: 2, refused: 2, run: wrongKeys },
  { name: 'errors, 429: RateLimitError with retry-after', backend: 'limited', failed: 3, run: rateLimits },
  { name: 'errors, 404: NotFoundError', run: notServed },
  { name: 'errors, 400: a bad X-AG-Conversation-Id', failed: 1, run: badConversation },
]
