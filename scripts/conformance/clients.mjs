// Frameworks above the SDKs. Each keeps the history as it does by itself and calls the tool by itself.
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { ChatAnthropic } from '@langchain/anthropic'
import { ChatOpenAI } from '@langchain/openai'
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool as agentsTool } from '@openai/agents'
import { Output, generateText, isStepCount, streamText, tool as aiTool } from 'ai'
import { createAgent, tool as langTool } from 'langchain'
import { z } from 'zod'
import { forecast, named, openai } from './talk.mjs'

setTracingDisabled(true)
globalThis.AI_SDK_LOG_WARNINGS = false

const instructions = 'You are helpful.'
const description = 'The weather in a city.'
const input = z.object({ city: z.string() })
/** By backend, the model and the way to ask it for thinking in the messages dialect. */
const modelOf = (backend) => (backend === 'adaptive' ? 'claude-opus-4-8' : 'claude-sonnet-4-5')
const asksOf = (backend) => (backend === 'adaptive' ? 'adaptive' : 'enabled')

/**
 * What all of them have: turn says something and gives { text, finish, usage, reasoning },
 * where reasoning is how many of its answers came with some. */
class Talk {
  constructor(t, { backend = 'adaptive', stream = true, conversation, path = '', thinks = true, name = 'gpt-5' } = {}) {
    Object.assign(this, { t, backend, stream, thinks, name, headers: named(conversation), base: t.url + path, messages: [], cities: [] })
    this.between = async () => {}
  }

  /** Runs the tool: between is awaited first, with the number of calls so far in this turn. */
  async weather({ city }) {
    await this.between(this.calls++)
    this.cities.push(city)
    return forecast(city)
  }

  turn(words, between = async () => {}) {
    Object.assign(this, { between, calls: 0 })
    return this.say(words)
  }
}

/** Vercel's AI SDK; of chat completions it keeps no reasoning. */
class AITalk extends Talk {
  get settings() {
    const anthropic = { thinking: asksOf(this.backend) === 'adaptive' ? { type: 'adaptive' } : { type: 'enabled', budgetTokens: 2000 } }
    return {
      model: this.model, instructions, maxRetries: 0, maxOutputTokens: 4000, stopWhen: isStepCount(20),
      tools: { weather: aiTool({ description, inputSchema: input, execute: (args) => this.weather(args) }) },
      ...(this.thinks && { providerOptions: { anthropic, openai: { reasoningEffort: 'medium' } } }),
    }
  }

  get provider() {
    return { baseURL: `${this.base}/v1`, apiKey: this.t.key, headers: this.headers }
  }

  async say(content) {
    this.messages.push({ role: 'user', content })
    const result = await this.generate({ messages: this.messages })
    this.messages.push(...(await result.responseMessages))
    const steps = await result.steps
    return { text: await result.text, finish: await result.finishReason, usage: await result.usage, reasoning: steps.filter((s) => s.reasoningText).length }
  }

  async generate(more) {
    if (!this.stream) return generateText({ ...this.settings, ...more })
    const result = streamText({ ...this.settings, ...more, onError: () => {} })
    for await (const part of result.stream) if (part.type === 'error') throw part.error
    return result
  }

  /** An answer of this schema. */
  async object(schema, prompt) {
    const result = await this.generate({ prompt, output: Output.object({ schema }), tools: undefined })
    return result.output
  }
}

class AIMessagesTalk extends AITalk {
  get model() {
    return createAnthropic(this.provider)(modelOf(this.backend))
  }
}

class AIChatTalk extends AITalk {
  get model() {
    return createOpenAI(this.provider).chat(this.name)
  }
}

/** It names earlier items by their ids alone. */
class AIResponsesTalk extends AITalk {
  get settings() {
    const openai = this.thinks && { reasoningEffort: 'medium', reasoningSummary: 'auto' }
    return { ...super.settings, ...(openai && { providerOptions: { openai } }) }
  }

  get model() {
    return createOpenAI(this.provider)(this.name)
  }
}

class AICompatibleTalk extends AITalk {
  get model() {
    return createOpenAICompatible({ name: 'mneme', includeUsage: true, ...this.provider })(this.name)
  }
}

/** LangChain's agent, a graph of LangGraph. */
class LangTalk extends Talk {
  async say(content) {
    const weather = langTool((args) => this.weather(args), { name: 'weather', description, schema: input })
    const agent = createAgent({ model: this.model, tools: [weather], systemPrompt: instructions })
    this.messages.push({ role: 'user', content })
    const known = this.messages.length
    if (this.stream) {
      for await (const [mode, state] of await agent.stream({ messages: this.messages }, { streamMode: ['messages', 'values'] })) {
        if (mode === 'values') this.messages = state.messages
      }
    } else {
      this.messages = (await agent.invoke({ messages: this.messages })).messages
    }
    const answers = this.messages.slice(known).filter((m) => m.getType() === 'ai')
    const { text, usage_metadata: u } = answers.at(-1)
    const thought = (m) => m.additional_kwargs.reasoning_content || m.additional_kwargs.reasoning || (Array.isArray(m.content) && m.content.some((b) => /thinking/.test(b.type)))
    return {
      text, reasoning: answers.filter(thought).length,
      usage: { inputTokens: u?.input_tokens, outputTokens: u?.output_tokens },
    }
  }

  async object(schema, prompt) {
    return this.model.withStructuredOutput(schema).invoke(prompt)
  }
}

class LangMessagesTalk extends LangTalk {
  get model() {
    const thinking = asksOf(this.backend) === 'adaptive' ? { type: 'adaptive' } : { type: 'enabled', budget_tokens: 2000 }
    return new ChatAnthropic({
      model: modelOf(this.backend), anthropicApiKey: this.t.key, anthropicApiUrl: this.base, maxRetries: 0, maxTokens: 4000,
      clientOptions: { defaultHeaders: this.headers }, ...(this.thinks && { thinking }),
    })
  }
}

class LangChatTalk extends LangTalk {
  get model() {
    return new ChatOpenAI({
      model: this.name, apiKey: this.t.key, maxRetries: 0, ...(this.thinks && { reasoning: { effort: 'medium' } }),
      configuration: { baseURL: `${this.base}/v1`, defaultHeaders: this.headers }, ...this.dialect,
    })
  }
}

class LangResponsesTalk extends LangChatTalk {
  dialect = { useResponsesApi: true }
}

/** OpenAI's Agents SDK on chat completions. */
class AgentsTalk extends Talk {
  useResponses = false

  async say(content) {
    const weather = agentsTool({ name: 'weather', description, parameters: input, execute: (args) => this.weather(args), errorFunction: null })
    return this.run({ tools: [weather] }, content)
  }

  async run(more, content) {
    const { t, base } = this
    const client = openai({ ...t, url: base }, { conversation: this.headers['X-AG-Conversation-Id'] })
    const agent = new Agent({ name: 'one', instructions, model: this.name, modelSettings: this.thinks ? { reasoning: { effort: 'medium' } } : {}, ...more })
    const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient: client, useResponses: this.useResponses }) })
    const result = await runner.run(agent, [...this.messages, { role: 'user', content }], { stream: this.stream, maxTurns: 20 })
    if (this.stream) {
      for await (const _ of result.toStream()) { /* as it comes */ }
      await result.completed
      if (result.error) throw result.error
    }
    this.messages = result.history
    const responses = result.rawResponses
    return {
      text: result.finalOutput, usage: responses.at(-1).usage,
      reasoning: responses.filter((r) => r.output.some((o) => o.type === 'reasoning')).length,
    }
  }

  async object(schema, prompt) {
    return (await this.run({ outputType: schema }, prompt)).text
  }
}

class AgentsResponsesTalk extends AgentsTalk {
  useResponses = true
}

/** The clients by their names, and what they speak. */
export const frameworks = {
  'ai sdk, messages': AIMessagesTalk,
  'ai sdk, chat': AIChatTalk,
  'langchain, messages': LangMessagesTalk,
  'langchain, chat': LangChatTalk,
  'agents sdk': AgentsTalk,
  'ai sdk, responses': AIResponsesTalk,
  'langchain, responses': LangResponsesTalk,
  'agents sdk, responses': AgentsResponsesTalk,
}

/** Those that take an address of chat completions, with the package that is made for others than OpenAI. */
export const compatible = { 'ai sdk, compatible': AICompatibleTalk, 'langchain, chat': LangChatTalk, 'agents sdk': AgentsTalk }

/** Those that speak Responses by default, and LangChain, which is told to. */
export const responding = { 'ai sdk, responses': AIResponsesTalk, 'langchain, responses': LangResponsesTalk, 'agents sdk, responses': AgentsResponsesTalk }
