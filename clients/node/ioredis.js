// Tests the lock that is written by hand with ioredis: SET NX PX, and scripts
// that compare the value before they renew or delete.
import { randomUUID } from 'node:crypto'
import { createRequire } from 'node:module'
import Redis from 'ioredis'
import { notHeld, poll, serve } from './adapter.js'

const held = new Map()
let redis, ttl

async function ifMine(key, command, ...args) {
  const value = held.get(key)
  if (!value) throw notHeld()
  const script = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('${command}', KEYS[1], unpack(ARGV, 2)) else return 0 end`
  if (await redis.eval(script, 1, key, value, ...args) !== 1) throw notHeld()
}

serve({
  async open(servers, ms) {
    ttl = ms
    redis = new Redis(servers[0].url, { commandTimeout: 5000, maxRetriesPerRequest: 0 })
    redis.on('error', e => console.error(e.message))
    await redis.ping()
  },
  async acquire(key, wait) {
    const value = randomUUID()
    await poll(() => redis.set(key, value, 'PX', ttl, 'NX'), wait)
    held.set(key, value)
    return { lease_ms: ttl }
  },
  async renew(key) {
    await ifMine(key, 'pexpire', ttl)
    return { lease_ms: ttl }
  },
  async release(key) {
    await ifMine(key, 'del').finally(() => held.delete(key))
  },
}, {
  name: 'ioredis',
  version: createRequire(import.meta.url)('ioredis/package.json').version,
  capabilities: ['wait', 'lease', 'renew'],
})
