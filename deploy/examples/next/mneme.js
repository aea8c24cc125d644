// The chat is that of whoever is signed in, and the key stays here: take CHAT from your session.
const chat = process.env.CHAT ?? 'demo'
export const mneme = (path, init = {}) =>
  fetch(`${process.env.MNEME_URL ?? 'http://127.0.0.1:8080'}/v1/chats/${chat}/${path}`, {
    ...init, cache: 'no-store', headers: { 'content-type': 'application/json', authorization: `Bearer ${process.env.MNEME_KEY ?? 'none'}` },
  })
