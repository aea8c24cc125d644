import { mneme } from '../../../mneme.js'

// The page reaches these of the chat's routes and no others.
const reaches = /^(ui(\/[^/]+\/stream)?|runs\/[^/]+\/stop)$/

async function forward(request, { params }) {
  const path = (await params).path.map(encodeURIComponent).join('/')
  if (!reaches.test(path)) return new Response('There is nothing here.', { status: 404 })
  const body = request.method === 'POST' ? await request.text() : undefined
  return mneme(path, { method: request.method, body, signal: request.signal })
}

export { forward as GET, forward as POST }
