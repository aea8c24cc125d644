// Child processes: each has a log file, and none outlives this one.
import { spawn } from 'node:child_process'
import { openSync, closeSync, readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

const running = new Set()

// However this process ends; stopAll is the gentle way.
process.once('exit', () => {
  for (const p of running) signal(p, 'SIGKILL')
})

/** Starts a program in a process group of its own, its output in a file. */
export function start(log, command, args, options = {}) {
  const file = openSync(log, 'a')
  const child = spawn(command, args, { stdio: ['ignore', file, file], detached: true, ...options })
  closeSync(file)
  const ended = new Promise((resolve) => {
    child.once('exit', (code, signal) => resolve(code ?? signal))
    child.once('error', (e) => resolve(e.message))
  })
  const p = { child, log, ended }
  running.add(p)
  ended.then(() => running.delete(p))
  return p
}

/** Signals a process and all that it has started. */
export function signal({ child }, name) {
  try {
    if (child.pid) process.kill(-child.pid, name)
  } catch (e) {
    if (e.code !== 'ESRCH') throw e // it is gone already
  }
}

/** Ends a process, by force if it does not go. */
export async function stop(p, grace = 5000) {
  signal(p, 'SIGTERM')
  const gone = await Promise.race([p.ended.then(() => true), sleep(grace, false, { ref: false })])
  if (!gone) signal(p, 'SIGKILL')
  await p.ended
}

export const stopAll = () => Promise.all([...running].map((p) => stop(p)))

/** Runs a program to its end; a time-out ends it. Gives its code and output. */
export async function run(command, args, { timeout = 120_000, ...options } = {}) {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], detached: true, ...options })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (s) => (stdout += s))
  child.stderr.setEncoding('utf8').on('data', (s) => (stderr += s))
  const p = { child }
  p.ended = new Promise((resolve) => {
    child.once('close', (code, signal) => resolve(code ?? signal))
    child.once('error', (e) => resolve(e.message))
  })
  running.add(p)
  const timer = setTimeout(() => signal(p, 'SIGKILL'), timeout)
  const code = await p.ended
  clearTimeout(timer)
  running.delete(p)
  return { code, stdout, stderr }
}

/** The whole lines of a process's log. */
export function lines({ log }) {
  return readFileSync(log, 'utf8').split('\n').slice(0, -1)
}

/** Waits until look gives something, or the process ends. */
export async function until(p, what, look) {
  const ended = p.ended.then((code) => ({ code }))
  for (let i = 0; i < 600; i++) {
    const found = await look()
    if (found) return found
    const end = await Promise.race([ended, sleep(50)])
    if (end) throw new Error(`${what} ended (${end.code}): ${lines(p).slice(-3).join(' | ')}`)
  }
  throw new Error(`${what} did not come up in 30 s`)
}

/** A port that nobody listens on now. */
export function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}
