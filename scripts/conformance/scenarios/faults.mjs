// Vendors that fail: an error where a stream should begin, and answers that break off.
import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { frameworks } from '../clients.mjs'
import { anthropic, call, openai, say, script, textOf, think } from '../talk.mjs'

/** By client, the name of its second speaker, which takes a stream's events itself. */
const sdks = { 'anthropic sdk': 'anthropic sdk, events', 'openai sdk': 'openai sdk, chunks', 'openai sdk, responses': 'openai sdk, responses, events' }
const sides = ['messages', 'chat']
// Backends of their own, as what fails counts against a backend.
const title = (what, client, side) => `${what} ${side}, ${client}`.replaceAll(/[^a-z]+/g, '-')
const clients = [...Object.keys(sdks), ...Object.keys(frameworks)]

export const backends = (url) => Object.fromEntries(['failing', 'torn'].flatMap((what) => clients.flatMap((client) => [
  [title(what, client, 'messages'), { kind: 'anthropic', vendor: 'anthropic', base_url: url.manual, model_map: { '*': 'claude-sonnet-4-5' } }],
  [title(what, client, 'chat'), { kind: 'openai', vendor: 'generic', base_url: `${url.generic}/v1`, model_map: { '*': 'generic-model' } }],
])))

const whole = 'All of it has come, in many small pieces.'
const cut = (words, how, ...parts) => script(words, [...parts, think('Slowly thought.'), say(whole), { cut: how }])

/** By client, what says something in a stream and gives the text of the answer. */
const speakers = {
  'anthropic sdk': (t) => async (content) => {
    const body = { model: 'master', max_tokens: 3000, messages: [{ role: 'user', content }] }
    return textOf(await anthropic(t).messages.stream(body).finalMessage())
  },
  'anthropic sdk, events': (t) => async (content) => {
    const body = { model: 'master', max_tokens: 3000, messages: [{ role: 'user', content }], stream: true }
    let text = ''
    for await (const e of await anthropic(t).messages.create(body)) text += e.delta?.text ?? ''
    return text
  },
  'openai sdk': (t) => async (content) => {
    const body = { model: 'gpt-5', messages: [{ role: 'user', content }] }
    return (await openai(t).chat.completions.stream(body).finalContent()) ?? ''
  },
  'openai sdk, chunks': (t) => async (content) => {
    let text = ''
    const body = { model: 'gpt-5', messages: [{ role: 'user', content }], stream: true }
    for await (const c of await openai(t).chat.completions.create(body)) text += c.choices[0]?.delta.content ?? ''
    return text
  },
  'openai sdk, responses': (t) => async (input) => {
    const answer = await openai(t).responses.stream({ model: 'gpt-5', input }).finalResponse()
    assert.equal(answer.status, 'completed', answer.error?.message)
    return answer.output_text
  },
  'openai sdk, responses, events': (t) => async (input) => {
    let text = ''
    for await (const e of await openai(t).responses.create({ model: 'gpt-5', input, stream: true })) {
      if (e.type === 'response.output_text.delta') text += e.delta
    }
    return text
  },
  ...Object.fromEntries(Object.entries(frameworks).map(([name, Talk]) =>
    [name, (t) => async (words) => (await new Talk(t, { backend: 'manual', thinks: false }).turn(words)).text])),
}

const openaiClasses = { 400: OpenAI.BadRequestError, 429: OpenAI.RateLimitError, 500: OpenAI.InternalServerError, 502: OpenAI.InternalServerError, 529: OpenAI.InternalServerError }
const classes = {
  'anthropic sdk': { 400: Anthropic.BadRequestError, 429: Anthropic.RateLimitError, 500: Anthropic.InternalServerError, 502: Anthropic.InternalServerError, 529: Anthropic.OverloadedError },
  'openai sdk': openaiClasses,
  'openai sdk, responses': openaiClasses,
}

/** Once it fails, and the client gets the answer all the same. */
async function firstEventOnce(t, client, status) {
  assert.equal(await speakers[client](t)(cut(`${t.key} once`, { error: status, times: 1 })), whole)
}

async function firstEventAlways(t, client, status, how = { error: status }) {
  const words = cut(`${t.key} always`, how)
  for (const speak of [speakers[client], speakers[sdks[client]]]) {
    const e = await speak(t)(words).then(() => assert.fail('it did not fail'), (error) => error)
    assert.ok(e instanceof classes[client][status], `${classes[client][status].name} expected, not ${e.constructor.name}: ${e.message}`)
    assert.equal(e.status, status)
    assert.ok(e.headers.get('X-AG-Request-Id'), 'the gateway names the request')
    if (status === 400) return // its second time costs nothing to know
  }
}

/** Wherever an answer breaks off, the client hears of it or has all of it. */
async function torn(t, speaker, how) {
  const speak = speakers[speaker](t)
  let broke = 0
  for (let after = 0; after < 16; after++) {
    const words = cut(`${t.key} ${after}`, { after, ...how, times: 1 })
    const answer = await speak(words).catch((e) => e)
    if (answer instanceof Error) {
      broke++
      assert.equal(await speak(words), whole, 'asked again')
    }
    // Two events say nothing of the answer yet, and the gateway asks again.
    if (after < 2 || !(answer instanceof Error)) assert.equal(answer, whole, `cut after ${after} events, the client took ${JSON.stringify(answer)} for the answer`)
  }
  assert.ok(broke >= 4, `only ${broke} broke off`)
}

/** By client, what says something and gives the text of an answer that is no stream. */
const wholes = {
  'anthropic sdk': (t, content) => anthropic(t).messages.create({ model: 'master', max_tokens: 3000, messages: [{ role: 'user', content }] }).then(textOf),
  'openai sdk': (t, content) => openai(t).chat.completions.create({ model: 'gpt-5', messages: [{ role: 'user', content }] }).then((a) => a.choices[0].message.content),
  'openai sdk, responses': (t, input) => openai(t).responses.create({ model: 'gpt-5', input }).then((a) => a.output_text),
}

/** Half of an answer that is no stream is no answer. */
async function tornWhole(t, client) {
  const ask = (words) => wholes[client](t, words)
  const e = await ask(cut(`${t.key} always`, {})).then(() => assert.fail('it did not fail'), (error) => error)
  assert.equal(e.status, 502)
  const answer = await ask(cut(`${t.key} once`, { times: 1 })).catch((error) => error)
  assert.ok(answer === whole || answer.status === 502, `${answer}`)
}

/** A call of a tool that breaks off is not made. */
async function tornCall(t, client, how) {
  for (const after of [6, 8, 10, 12]) {
    const talk = new frameworks[client](t, { backend: 'manual' })
    const words = script(`${t.key} ${after}`, [think('Look.'), call('weather', { city: 'Rome, and then a name that is rather long' }), { cut: { after, ...how, times: 1 } }], [say(whole)])
    const answer = await talk.turn(words).catch((e) => e)
    if (answer instanceof Error) assert.deepEqual(talk.cities, [], `cut after ${after} events, the tool was called`)
    else assert.equal(answer.text, whole)
  }
}

const ways = { 'the connection breaks': {}, 'inside an event': { inside: true }, 'the stream just ends': { clean: true } }
const anyFailures = { failed: Infinity, refused: Infinity }

export const scenarios = [
  ...Object.keys(sdks).flatMap((client) => sides.flatMap((side) => [
    ...[429, 500, 529].map((status) => ({ name: `once ${status}`, run: (t) => firstEventOnce(t, client, status) })),
    ...[400, 429, 500, 529].map((status) => ({ name: `always ${status}`, failed: 2, run: (t) => firstEventAlways(t, client, status) })),
    { name: 'always cut before its answer', failed: 2, backend: title('torn', client, side), run: (t) => firstEventAlways(t, client, 502, { after: 1 }) },
  ].map((s) => ({ backend: title('failing', client, side), ...s, name: `error as first event, ${client}: on ${side}, ${s.name}` })))),
  ...Object.keys(speakers).flatMap((speaker) => sides.flatMap((side) => Object.entries(ways).map(([way, how]) => ({
    ...anyFailures, backend: title('torn', clients.findLast((c) => speaker.startsWith(c)), side), name: `torn stream, ${speaker}: on ${side}, ${way}`, run: (t) => torn(t, speaker, how),
  })))),
  ...Object.keys(sdks).flatMap((client) => sides.map((side) => ({
    ...anyFailures, backend: title('torn', client, side), name: `torn stream, ${client}: on ${side}, half of a whole answer`, run: (t) => tornWhole(t, client),
  }))),
  ...Object.keys(frameworks).flatMap((client) => sides.map((side) => ({
    ...anyFailures, backend: title('torn', client, side), name: `torn stream, ${client}: on ${side}, inside a tool call`, run: (t) => tornCall(t, client, {}),
  }))),
]
