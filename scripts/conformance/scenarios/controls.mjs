// The vendors without the gateway: they refuse what it puts right.
import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { ChatTalk, MessagesTalk, anthropic, bare, cut, openai, useTheTool } from '../talk.mjs'

const direct = (t, vendor, base = '') => ({ ...t, url: t.stack.vendorURLs[vendor] + base })

async function refuses(talk, kind, text) {
  const error = await talk.turn(useTheTool).then(() => assert.fail('the vendor took it'), (e) => e)
  assert.ok(error instanceof kind, `${error}`)
  assert.match(error.message, text)
}

const missing = /reasoning_content is missing|must be passed back|Expected `thinking`/

const cutThinking = (t) =>
  refuses(new MessagesTalk(anthropic(direct(t, 'adaptive')), { model: 'claude-opus-4-8', keep: cut }), Anthropic.BadRequestError, /Invalid `signature`/)
const noThinking = (vendor, base) => (t) =>
  refuses(new MessagesTalk(anthropic(direct(t, vendor, base)), { asks: 'manual', keep: bare }), Anthropic.BadRequestError, missing)
const noReasoning = (t) => refuses(new ChatTalk(openai(direct(t, 'kimi'))), OpenAI.BadRequestError, missing)

export const scenarios = [
  { name: 'adaptive: cut thinking is refused', run: cutThinking },
  { name: 'manual: missing thinking is refused', run: noThinking('manual') },
  { name: 'kimi: missing thinking is refused', run: noThinking('kimi', '/anthropic') },
  { name: 'deepseek: missing thinking is refused', run: noThinking('deepseek', '/anthropic') },
  { name: 'kimi-chat: missing reasoning is refused', run: noReasoning },
].map((s) => ({ ...s, name: `without the gateway, ${s.name}`, refused: 1 }))
