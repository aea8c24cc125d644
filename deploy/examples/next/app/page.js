import { mneme } from '../mneme.js'
import Chat from './chat.js'

export const dynamic = 'force-dynamic'

export default async function Page() {
  const { messages } = await (await mneme('history?offset=-50&limit=50')).json()
  return <Chat messages={messages.map((m) => ({ id: m.id, role: m.role, parts: [{ type: 'text', text: m.content }] }))} />
}
