// The gateway, the vendors behind it and its Redis.
import { mkdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { freePort, lines, run, start, stop, until } from './processes.mjs'

/** The key that the vendor "keyed" wants. */
export const vendorKey = 'right-key'

// Betas that Claude Code and opencode send and that the fake vendor does not know by itself.
const betas = ['structured-outputs-2025-11-13', 'advanced-tool-use-2025-11-20', 'mid-conversation-tool-changes-2026-07-01', 'per-turn-control-2026-07-01']

// The two Anthropics have one name, so their signatures are one vendor's. One of
// them drops thinking of the other's model silently, the other refuses it; both
// have been seen.
const vendors = {
  adaptive: ['-vendor', 'anthropic', '-prefix-check'],
  manual: ['-vendor', 'anthropic', '-reject-other-models'],
  kimi: ['-vendor', 'kimi'],
  deepseek: ['-vendor', 'deepseek'],
  generic: ['-vendor', 'chat'],
  openai: ['-vendor', 'openai'],
  keyed: ['-vendor', 'anthropic', '-name', 'keyed', '-key', vendorKey],
}

const thinking = { budget_tokens: 4000 }
const backends = (url) => ({
  adaptive: { kind: 'anthropic', vendor: 'anthropic', base_url: url.adaptive, thinking, model_map: { master: 'claude-opus-4-8', 'gpt-5': 'claude-opus-4-8' } },
  manual: { kind: 'anthropic', vendor: 'anthropic', base_url: url.manual, thinking, model_map: { '*': 'claude-sonnet-4-5' } },
  kimi: { kind: 'anthropic', vendor: 'kimi', base_url: `${url.kimi}/anthropic`, thinking, model_map: { '*': 'kimi-k2.6' } },
  deepseek: { kind: 'anthropic', vendor: 'deepseek', base_url: `${url.deepseek}/anthropic`, thinking, model_map: { '*': 'deepseek-v4' } },
  'kimi-chat': { kind: 'openai', vendor: 'kimi', base_url: `${url.kimi}/v1`, model_map: { '*': 'kimi-k2.6' } },
  'deepseek-chat': { kind: 'openai', vendor: 'deepseek', base_url: `${url.deepseek}/v1`, model_map: { '*': 'deepseek-v4' } },
  generic: { kind: 'openai', vendor: 'generic', base_url: `${url.generic}/v1`, model_map: { '*': 'generic-model' } },
  gpt: { kind: 'responses', vendor: 'openai', base_url: `${url.openai}/v1`, model_map: { '*': 'gpt-5.1' } },
  keyed: { kind: 'anthropic', vendor: 'anthropic', base_url: url.keyed, auth: 'passthrough' },
  limited: { kind: 'openai', vendor: 'generic', base_url: `${url.limited}/v1` },
})

/** A vendor whose every answer is 429, which the fake vendor's program has no flag for. */
function limitedVendor() {
  const error = { message: 'Rate limit reached.', type: 'requests', param: null, code: 'rate_limit_exceeded' }
  const server = createServer((request, response) => {
    request.resume()
    response.writeHead(429, { 'content-type': 'application/json', 'retry-after': '60' }).end(JSON.stringify({ error }))
  })
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve({ server, url: `http://127.0.0.1:${server.address().port}` })))
}

/** Starts a service of mneme in a folder, with a configuration that is written there; it is ready once it says so at url. */
export async function mneme({ bin, dir, url, config, service = 'up', args = [], environment = {} }) {
  mkdirSync(dir, { recursive: true })
  const file = join(dir, 'mneme.yaml')
  writeFileSync(file, JSON.stringify(config, null, 2)) // JSON is YAML
  const { MNEME_CONFIG: _, ...env } = process.env
  const p = start(join(dir, `${service}.log`), join(bin, 'mneme'), [service, ...args, '--config', file], { env: { ...env, ...environment }, cwd: dir })
  await until(p, `mneme ${service}`, () => fetch(`${url}/readyz`).then((r) => r.ok, () => false))
  return p
}

/** Starts all services of mneme in one process; more goes into the configuration. again starts them once more. */
export async function up({ stack, dir }, { proxy = {}, ...more } = {}, args = []) {
  const [web, api, gateway, redis] = (await Promise.all([freePort(), freePort(), freePort(), freePort()])).map((port) => `127.0.0.1:${port}`)
  const config = {
    data_dir: join(dir, 'data'), log: { format: 'json' }, redis: { embedded_listen: redis }, ...more,
    webmemory: { listen: web }, apiserver: { listen: api }, proxy: { listen: gateway, ...proxy },
  }
  const again = () => mneme({ bin: stack.bin, dir, url: `http://${web}`, config, args })
  return { url: `http://${web}`, gateway: `http://${gateway}`, mneme: await again(), again }
}

/** Starts a Redis that keeps nothing; its url is empty if there is no redis-server. */
export async function redisServer(dir) {
  const port = await freePort()
  const p = start(join(dir, 'redis.log'), 'redis-server', ['--port', `${port}`, '--bind', '127.0.0.1', '--save', '', '--dir', dir])
  if (/ENOENT/.test(await Promise.race([p.ended, new Promise((resolve) => p.child.once('spawn', () => resolve('')))]))) return { url: '' }
  await until(p, 'redis-server', () => lines(p).some((l) => l.includes('Ready to accept connections')))
  return { p, url: `redis://127.0.0.1:${port}` }
}

export class Stack {
  /** Starts everything: programs from bin, logs into dir; sets of scenarios may have vendors, backends and variables of their own. */
  static async start({ bin, dir, redis = true, sets = [] }) {
    const s = new Stack()
    Object.assign(s, { bin, dir, vendors: {}, environment: Object.assign({}, ...sets.map((m) => m.environment)) })
    mkdirSync(dir, { recursive: true })
    const url = (s.vendorURLs = {})
    for (const [name, rules] of Object.entries(Object.assign({}, vendors, ...sets.map((m) => m.vendors)))) {
      const p = start(join(dir, `vendor-${name}.log`), join(bin, 'fakevendor'), [...rules, '-script', '-betas', betas.join(',')])
      s.vendors[name] = p
      url[name] = await until(p, `the vendor ${name}`, () => lines(p)[0])
    }
    s.limited = await limitedVendor()
    url.limited = s.limited.url
    s.redis = redis ? (await redisServer(dir)).url : ''
    s.port = await freePort()
    s.url = `http://127.0.0.1:${s.port}`
    s.config = {
      redis: s.redis ? { url: s.redis } : {},
      data_dir: join(dir, 'data'),
      log: { format: 'json' },
      proxy: { listen: `127.0.0.1:${s.port}`, active: 'adaptive', embeddings_backend: 'generic', teammates: { analytic: 'kimi' }, backends: Object.assign(backends(url), ...sets.map((m) => m.backends?.(url))), routes: Object.assign({}, ...sets.map((m) => m.routes)) },
    }
    await s.startGateway()
    return s
  }

  async startGateway() {
    this.gateway = await mneme({ ...this, service: 'proxy' })
  }

  /** Ends the gateway and starts it anew on its port. */
  async restart() {
    await stop(this.gateway)
    await this.startGateway()
    if (!this.redis) await this.use(this.active) // it has forgotten that, too
  }

  /** Switches the active backend as an operator would. */
  async use(backend) {
    this.active = backend
    const { code, stderr } = await run(join(this.bin, 'mneme'), ['proxy', 'use', backend, '--url', this.url])
    if (code !== 0) throw new Error(`mneme proxy use ${backend}: ${stderr}`)
  }

  /** The next requests to a vendor fail so, none any more without a fault; see the fake vendor's program. */
  async fail(vendor, ...faults) {
    const { status } = await fetch(`${this.vendorURLs[vendor]}/fail`, { method: 'POST', body: JSON.stringify(faults) })
    if (status !== 204) throw new Error(`the vendor ${vendor} takes no such faults: ${status}`)
  }

  /** Notes where the logs stand; the function that it gives tells what came since. */
  watch() {
    const from = Object.entries({ ...this.vendors, gateway: this.gateway }).map(([name, p]) => [name, p, lines(p).length])
    return () => {
      const seen = { calls: [], upstream: 0, refused: [], failed: [], retried: 0, thinking: 0, dropped: 0 }
      for (const [name, p, start] of from) {
        for (const line of lines(p).slice(start)) {
          if (name !== 'gateway') {
            if (/^200 models/.test(line)) continue // a gateway that starts asks everybody
            seen.upstream++
            const count = (what) => Number(new RegExp(` ${what} (\\d+)`).exec(line)?.[1] ?? 0)
            seen.calls.push({ vendor: name, line, replayed: count('replayed'), documents: count('documents') })
            if (/^200 .* thinking/.test(line)) seen.thinking++
            if (/ (dropped|lost) /.test(line)) seen.dropped++
            if (!line.startsWith('200 ')) seen.refused.push(`${name}: ${line}`)
          } else if (line.startsWith('{')) {
            const entry = JSON.parse(line)
            if (entry.message === 'model call' && entry.status >= 400) seen.failed.push(entry.status)
            if (entry.message?.includes('[thinking_retry]')) seen.retried++
          }
        }
      }
      return seen
    }
  }

  /** Ends what is no process of its own; stopAll ends the rest. */
  stop() {
    this.limited.server.close()
  }
}
