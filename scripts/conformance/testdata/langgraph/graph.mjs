// A LangGraph graph whose memory is mneme: node graph.mjs URL THREAD WAY WORDS prints what it answers. It keeps nothing itself:
// there is no checkpointer, and each turn is a process of its own.
import { HumanMessage, SystemMessage } from '@langchain/core/messages'
import { Annotation, END, START, StateGraph } from '@langchain/langgraph'
import { ChatOpenAI } from '@langchain/openai'

const [url, thread, way, words] = process.argv.slice(2)
const chat = `${url}/v1/chats/${encodeURIComponent(thread)}`

async function call(path, body) {
  const r = await fetch(chat + path, body && { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })
  if (!r.ok) throw new Error(`${path}: ${r.status} ${await r.text()}`)
  return r.json()
}

const State = Annotation.Root({ question: Annotation(), known: Annotation(), answer: Annotation() })

/** What was said before in this thread, and what is noted of it. */
async function recall({ question }) {
  const [{ hits }, { notes }] = await Promise.all([call(`/recall?query=${encodeURIComponent(question)}`), call('/notes')])
  return { known: [...notes, ...hits].map((found) => found.text) }
}

// mneme is the graph's chat model, too: it stores the exchange, and what it knows is in its own prompt.
const mneme = new ChatOpenAI({ model: 'mneme', apiKey: 'none', configuration: { baseURL: `${url}/c/${encodeURIComponent(thread)}/v1` } })
const asked = async ({ question }) => ({ answer: (await mneme.invoke([new HumanMessage(question)])).content })

// Or the graph keeps its own model, which is told what was recalled. This one says what it was told.
const own = { invoke: async ([system]) => ({ content: system.content }) }
const told = async ({ question, known }) => ({ answer: (await own.invoke([new SystemMessage(known.join('\n')), new HumanMessage(question)])).content })

/** What the user has told is noted, for all turns to come. */
async function store({ question }) {
  if (!question.endsWith('?')) await call('/notes', { text: question })
  return {}
}

const none = async () => ({})
const graph = new StateGraph(State)
  .addNode('recall', recall)
  .addNode('model', way === 'mneme' ? asked : told)
  .addNode('store', way === 'mneme' ? none : store)
  .addEdge(START, 'recall').addEdge('recall', 'model').addEdge('model', 'store').addEdge('store', END)
  .compile()
const { answer, known } = await graph.invoke({ question: words })
console.log(JSON.stringify({ answer, known }))
