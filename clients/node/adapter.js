// lockcheck's client protocol for lock libraries in Node. Copy this file next to
// your adapter; it needs nothing but Node 18. See docs/client-protocol.md.
import readline from 'node:readline'

// What certainly did not happen: the lock is another's, or was not held. All
// other errors mean that nobody knows.
export class Never extends Error {}
export const busy = why => new Never(why ?? 'lock is held by another')
export const notHeld = why => new Never(why ?? 'lock is not held')

// serve answers requests with lock, an object of async functions:
//
//   open(servers, ttl)      connect: an array of {name, software, url}, milliseconds
//   acquire(key, wait)      take the lock within wait milliseconds; 0: try once
//   release(key)            give it up
//   renew(key), check(key)  if capabilities name them
//
// acquire and renew return an object with what there is of token, lease_ms and
// valid_ms.
export function serve(lock, { name, version, capabilities }) {
  console.log = console.error // a print by mistake must not be taken for an answer
  const tokens = new Map()

  async function answer(q) {
    switch (q.f) {
      case 'open':
        await lock.open(q.servers ?? [], q.ttl_ms ?? 0)
        return { protocol: 1, name, version, capabilities }
      case 'acquire': {
        const grant = (await lock.acquire(q.key, q.wait_ms ?? 0)) ?? {}
        tokens.set(q.key, grant.token)
        return grant
      }
      case 'renew':
      case 'check':
        if (!capabilities.includes(q.f)) break
        if (q.f === 'check') return { value: await lock.check(q.key) }
        return await lock.renew(q.key)
      case 'release':
        tokens.delete(q.key)
        await lock.release(q.key)
        return {}
      case 'write': {
        const token = tokens.get(q.key)
        await ask('POST', token === undefined ? q.url : `${q.url}&token=${token}`)
        return token === undefined ? {} : { token }
      }
      case 'read':
        return { value: await ask('GET', q.url) }
      case 'close':
        return {}
    }
    throw new Never(`cannot ${q.f}`)
  }

  readline.createInterface({ input: process.stdin })
    .on('line', async line => {
      const q = JSON.parse(line)
      let r
      try {
        r = { type: 'ok', ...(await answer(q)) }
      } catch (e) {
        r = { type: e instanceof Never ? 'fail' : 'info', error: String(e?.message ?? e) || 'unknown' }
      }
      process.stdout.write(JSON.stringify({ id: q.id, ...r }) + '\n', () => q.f === 'close' && process.exit(0))
    })
    .on('close', () => process.exit(0)) // the harness is gone
}

// poll calls attempt until it returns something true or wait milliseconds have
// passed, for locks that cannot wait by themselves.
export async function poll(attempt, wait, delay = 10) {
  for (const end = performance.now() + wait; ;) {
    const got = await attempt()
    if (got) return got
    if (performance.now() >= end) throw busy()
    await new Promise(resolve => setTimeout(resolve, delay))
  }
}

// ask has the resource do what the protocol says of writes and reads.
async function ask(method, url) {
  let r
  try {
    r = await fetch(url, { method, redirect: 'manual', signal: AbortSignal.timeout(5000) })
  } catch (e) {
    throw e?.cause?.code === 'ECONNREFUSED' ? new Never('no connection to the resource') : e
  }
  const body = await r.text()
  if (r.status === 409) throw new Never(body)
  if (r.status !== 200) throw new Error(`status ${r.status}: ${body}`)
  return body
}
