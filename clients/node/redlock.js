// Tests redlock, Redlock for Node, on one Redis server or on several.
import { createRequire } from 'node:module'
import Redis from 'ioredis'
import Redlock from 'redlock'
import { busy, notHeld, serve } from './adapter.js'

const retryDelay = 20
const held = new Map()
let redlock, ttl, failures

async function acquire(key, wait) {
  failures = 0
  const asked = Date.now()
  try {
    held.set(key, await redlock.lockWithOptions(key, ttl, { retryCount: Math.floor(wait / retryDelay), retryDelay }))
  } catch (e) {
    throw refused(e, busy)
  }
  return grant(key, asked)
}

// grant states the lease of the try that was granted, less what the library sets
// aside for clocks that drift.
const grant = (key, asked) => ({ lease_ms: Math.max(1, held.get(key).expiration - asked) })

// refused tells servers that said no from those that could not be asked.
const refused = (e, no) => e instanceof Redlock.LockError && failures === 0 ? no(e.message) : e

serve({
  async open(servers, ms) {
    ttl = ms
    const clients = servers.map(s => new Redis(s.url, { commandTimeout: 5000, maxRetriesPerRequest: 0 }))
    for (const c of clients) c.on('error', e => console.error(e.message))
    await Promise.all(clients.map(c => c.ping()))
    redlock = new Redlock(clients, { retryCount: 0, retryDelay, retryJitter: 0 })
    redlock.on('clientError', e => { failures++; console.error(e.message) })
  },
  acquire,
  async renew(key) {
    const lock = held.get(key)
    if (!lock) throw notHeld()
    failures = 0
    const asked = Date.now()
    try {
      held.set(key, await lock.extend(ttl))
    } catch (e) {
      throw refused(e, notHeld)
    }
    return grant(key, asked)
  },
  async release(key) {
    const lock = held.get(key)
    if (!lock) throw notHeld()
    held.delete(key)
    failures = 0
    await lock.unlock().catch(e => { throw refused(e, notHeld) })
  },
  // What the library recommends before each use: its deadline.
  check: async key => held.has(key) && held.get(key).expiration > Date.now(),
}, {
  name: 'redlock',
  version: createRequire(import.meta.url)('redlock/package.json').version,
  capabilities: ['wait', 'lease', 'renew', 'check'],
})
