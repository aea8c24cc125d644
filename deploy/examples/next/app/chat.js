'use client'
import { useChat } from '@ai-sdk/react'
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from 'ai'

export default function Chat({ messages: before }) {
  const { messages, status, error, sendMessage, regenerate, addToolApprovalResponse } = useChat({
    id: 'page', messages: before, resume: true, transport: new DefaultChatTransport({ api: '/api/ui' }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  })
  const show = (p) => {
    if (p.type === 'text') return p.text
    if (p.type === 'data-subagent') return <small>{p.data.name}, {p.data.state}: {p.data.text}</small>
    if (p.type === 'source-url') return <a href={p.url}>[{p.sourceId}] {p.title}</a>
    if (p.type === 'source-document') return <cite>[{p.sourceId}] {p.title}</cite>
    if (p.state !== 'approval-requested') return null
    const answer = (approved) => () => addToolApprovalResponse({ id: p.approval.id, approved })
    return <>{p.toolName} {JSON.stringify(p.input)} <button onClick={answer(true)}>Allow</button><button onClick={answer(false)}>Deny</button></>
  }
  const send = (form) => sendMessage({ text: form.get('text') })
  const stop = () => fetch(`/api/runs/${messages.at(-1).metadata?.run}/stop`, { method: 'POST' })
  return <main>
    {messages.map((m) => <article key={m.id} className={m.role}>{m.parts.map((p, i) => <p key={i}>{show(p)}</p>)}</article>)}
    {error && <p role="alert">{error.message}</p>}
    <form action={send}><input name="text" required /><button>Send</button></form>
    {status === 'ready' ? <button onClick={() => regenerate()}>Again</button> : <button onClick={stop}>Stop</button>}
  </main>
}
