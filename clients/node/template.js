// An adapter to copy, with adapter.js: a lock that is a file, which exists while
// somebody holds it. Replace what has to do with files.
import { mkdir, open, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { busy, notHeld, serve } from './adapter.js'

const held = new Set()
let dir
const path = key => join(dir, encodeURIComponent(key))

serve({
  // Connect to servers[0].url; ttl is the lease to ask for, in milliseconds.
  // All clients do this at the same time.
  async open(servers, ttl) {
    // Of each run another, since whoever is killed leaves its files behind.
    dir = join(tmpdir(), 'my-locks-' + encodeURIComponent(servers[0]?.url ?? ''))
    await mkdir(dir, { recursive: true })
  },
  async acquire(key, wait) {
    try {
      await (await open(path(key), 'wx')).close()
    } catch (e) {
      throw e.code === 'EEXIST' ? busy() : e // certainly not granted, or nobody knows
    }
    held.add(key)
    return {} // or token, lease_ms, valid_ms: what the lock has of these
  },
  async release(key) {
    if (!held.delete(key)) throw notHeld()
    await rm(path(key))
  },
}, {
  name: 'template',
  version: '1',
  // What the lock can do: wait, token, lease, renew, check, lost, deadline, reentrant.
  capabilities: [],
})
