'use strict';
// The live view of a run: the history's lines come as server-sent events. What
// is said here is what was seen so far; the verdict is the checker's, afterwards.
const $ = id => document.getElementById(id);
const WINDOW = 20e9, LAST = 40, LANE = 22;
const open = new Map();    // process: its open invocation
const holds = [];          // {process, key, from, to}
const holding = new Map(); // process and key: its hold
const faults = [];         // {kind, on, from, to}
const counts = {ops: 0, failed: 0, unknown: 0, grants: 0, rejected: 0, both: 0};
let last = [], now = 0, over = false, drawn = 0;

const lock = (process, key) => JSON.stringify([process, key || '']);

function lose(process, key, t) {
  const h = holding.get(lock(process, key));
  if (!h) return;
  h.to = t;
  holding.delete(lock(process, key));
}

function take(e) {
  now = Math.max(now, e.time || 0);
  last.push(e);
  if (e.process === 'nemesis') {
    const on = e.value && e.value.on ? [].concat(e.value.on) : [];
    if (e.type === 'ok') faults.push({kind: e.f, on, from: e.time, to: Infinity});
    if (e.type === 'info' && e.f !== 'heal') {
      const f = faults.findLast(f => f.kind === e.f && f.to === Infinity && (!on.length || String(f.on) === String(on)));
      if (f) f.to = e.time;
    }
    return;
  }
  if (e.process === 'resource') {
    if (e.type === 'fail') counts.rejected++;
    return;
  }
  if (e.process === 'harness') {
    if (e.f === 'close' && e.value) {
      const on = new Set([].concat(e.value.on || []));
      for (const h of [...holding.values()]) if (on.has(h.process)) lose(h.process, h.key, e.time);
    }
    return;
  }
  if (e.type === 'invoke') {
    counts.ops++;
    open.set(e.process, e);
    if (e.f === 'release') lose(e.process, e.key, e.time);
    return;
  }
  if (e.f === 'lost') { lose(e.process, e.key, e.time); return; }
  if (e.type === 'fail') counts.failed++;
  if (e.type === 'info') counts.unknown++;
  if ((e.f === 'check' && (e.type === 'fail' || e.value === false)) || (e.f === 'renew' && e.type === 'fail')) lose(e.process, e.key, e.time);
  if (e.f === 'acquire' && e.type === 'ok') {
    counts.grants++;
    lose(e.process, e.key, e.time);
    for (const h of holding.values()) if (h.key === (e.key || '') && h.process !== e.process) { counts.both++; break; }
    const h = {process: e.process, key: e.key || '', from: e.time, to: Infinity};
    holding.set(lock(e.process, e.key), h);
    holds.push(h);
  }
  open.delete(e.process);
}

function show() {
  drawn = 0;
  for (const id of Object.keys(counts)) $(id).textContent = String(counts[id]);
  const active = faults.filter(f => f.to === Infinity);
  $('faults').textContent = active.length ? active.map(f => f.kind + (f.on.length ? ' on ' + f.on.join(', ') : '')).join('; ') : 'none';
  $('state').textContent = (over ? 'The run is over. ' : 'Going on. ') + (now / 1e9).toFixed(1) + ' s.';
  last = last.slice(-LAST);
  $('last').replaceChildren(...last.slice().reverse().map(e => {
    const row = document.createElement('tr');
    const more = [e.value === undefined ? '' : JSON.stringify(e.value), e.token === undefined ? '' : 'token ' + e.token, e.error || ''].filter(Boolean).join(', ');
    for (const text of [((e.time || 0) / 1e6).toFixed(1), e.process, e.type, e.f, e.key || '', more.slice(0, 200)]) {
      const cell = document.createElement('td');
      cell.textContent = String(text);
      row.append(cell);
    }
    return row;
  }));
  draw();
}

function draw() {
  while (holds.length && holds[0].to < now - WINDOW) holds.shift();
  while (faults.length > 1000) faults.shift();
  const names = [...new Set(holds.map(h => h.process))].sort().slice(0, 40);
  const c = $('lanes'), dpr = devicePixelRatio || 1, w = c.clientWidth, h = Math.max(60, names.length * LANE + 24);
  c.style.height = h + 'px';
  c.width = w * dpr;
  c.height = h * dpr;
  const g = c.getContext('2d'), style = getComputedStyle(document.documentElement), colour = n => style.getPropertyValue(n);
  g.scale(dpr, dpr);
  g.font = '12px system-ui, sans-serif';
  g.textBaseline = 'middle';
  const from = Math.max(0, now - WINDOW), left = 110, x = t => left + (Math.min(t, now) - from) / (Math.max(now, WINDOW) - from) * (w - left - 10);
  for (const f of faults) {
    if (f.to < from) continue;
    g.fillStyle = 'rgba(130,80,223,.25)';
    g.fillRect(Math.max(left, x(f.from)), 0, Math.max(2, x(f.to) - Math.max(left, x(f.from))), h);
    g.fillStyle = colour('--text');
    g.fillText(f.kind, Math.max(left, x(f.from)) + 3, 9);
  }
  names.forEach((name, i) => {
    g.fillStyle = colour('--text');
    g.fillText('client ' + name.slice(0, 12), 6, 24 + i * LANE + 8);
    g.fillStyle = colour('--link');
    for (const hold of holds) {
      if (hold.process !== name || hold.to < from) continue;
      const a = Math.max(left, x(hold.from));
      g.fillRect(a, 24 + i * LANE, Math.max(2, x(hold.to) - a), 15);
    }
  });
}

const source = new EventSource('/events/' + document.body.dataset.run);
source.addEventListener('open', () => { // after a break all comes again
  for (const k of Object.keys(counts)) counts[k] = 0;
  open.clear(); holding.clear(); holds.length = 0; faults.length = 0; last = []; now = 0;
});
source.addEventListener('events', m => {
  for (const e of JSON.parse(m.data)) take(e);
  if (!drawn) drawn = requestAnimationFrame(show);
});
source.addEventListener('end', () => {
  over = true;
  source.close();
  $('page').hidden = false;
  show();
});
