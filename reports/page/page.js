'use strict';
(async () => {
const started = performance.now();
const $ = id => document.getElementById(id);

// ---- the packed history -------------------------------------------------

async function unpack(text) {
  let bytes;
  if (Uint8Array.fromBase64) {
    bytes = Uint8Array.fromBase64(text);
  } else {
    const raw = atob(text);
    bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  const all = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = new DataView(all.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(all.subarray(4, 4 + size)));
  const cols = {};
  let at = 4 + size;
  for (const c of head.columns) {
    cols[c.name] = decode(all, at, c.len, c.code === 'd', small(c.name));
    at += c.bytes;
  }
  head.columns = cols;
  return head;
}

// small says that the numbers of a column fit 32 bits.
function small(name) {
  return !/\.(call|took|time|asked|confirmed|believed|from|until|lease|length|token)$/.test(name);
}

// decode reads a column of n varints; with deltas each is the zigzag difference
// to the one before. Products, not shifts: times need more than 32 bits.
function decode(bytes, p, n, deltas, ints) {
  const out = ints ? new Int32Array(n) : new Float64Array(n);
  let last = 0;
  for (let i = 0; i < n; i++) {
    let b = bytes[p++];
    let v = b & 127;
    for (let m = 128; b > 127; m *= 128) {
      b = bytes[p++];
      v += (b & 127) * m;
    }
    if (deltas) {
      last += v % 2 ? -(v + 1) / 2 : v / 2;
      v = last;
    }
    out[i] = v;
  }
  return out;
}

const node = $('history');
const data = await unpack(node.textContent);
node.textContent = '';
const C = data.columns;
const N = {op: C['op.call'].length, hold: C['hold.asked'].length, applied: C['applied.time'].length, overlap: C['overlap.from'].length};
const unpacked = performance.now();

const KINDS = ['operation', 'acquire', 'renew', 'release', 'check', 'write', 'read', 'compare-and-set', 'append', 'add'];
const OUTCOMES = ['unknown', 'ok', 'failed'];
const RENEW = 2, WRITE = 5, READ = 6;
const end = Math.max(data.end, 1);

const kind = i => C['op.what'][i] & 15;
const outcome = i => (C['op.what'][i] >> 4) & 3;
const retOf = i => C['op.took'][i] ? C['op.call'][i] + C['op.took'][i] : end;
const token = v => data.tokens ? data.tokens[v] : String(v);

// ---- small helpers --------------------------------------------------------

// search returns the first i in [lo, hi) with at(i) >= v, or hi.
function search(lo, hi, v, at) {
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (at(mid) < v) lo = mid + 1; else hi = mid;
  }
  return lo;
}

// ahead is search for what is likely to be near lo.
function ahead(lo, hi, v, at) {
  let step = 1;
  while (lo + step < hi && at(lo + step) < v) step *= 2;
  return search(lo, Math.min(hi, lo + step + 1), v, at);
}

// time writes nanoseconds in a unit that suits a span.
function time(ns, span) {
  const digits = span < 1e4 ? 6 : span < 1e5 ? 5 : span < 1e6 ? 4 : span < 1e7 ? 3 : span < 1e8 ? 2 : span < 2e9 ? 1 : 0;
  return (ns / 1e6).toFixed(digits);
}

function length(ns) {
  if (ns >= 1e10) return (ns / 1e9).toFixed(1) + ' s';
  if (ns >= 1e8) return (ns / 1e6).toFixed(0) + ' ms';
  if (ns >= 1e6) return (ns / 1e6).toFixed(1) + ' ms';
  return (ns / 1e3).toFixed(1) + ' \u00b5s';
}

// ---- lanes: what belongs to which client --------------------------------------

// group sorts the numbers 0..n-1 by what of(i) says, keeping their order, and
// leaves out what keep(i) does not want.
function group(n, groups, of, keep) {
  const counts = new Int32Array(groups + 1);
  for (let i = 0; i < n; i++) if (keep(i)) counts[of(i) + 1]++;
  for (let g = 0; g < groups; g++) counts[g + 1] += counts[g];
  const out = new Int32Array(counts[groups]);
  const next = counts.slice();
  for (let i = 0; i < n; i++) if (keep(i)) out[next[of(i)]++] = i;
  return g => out.subarray(counts[g], counts[g + 1]);
}

// sums are the running totals of the lengths of spans, so that what part of a
// pixel they cover costs two look-ups, however many there are.
function sums(idx, from, to) {
  const out = new Float64Array(idx.length + 1);
  for (let i = 0; i < idx.length; i++) out[i + 1] = out[i] + Math.max(0, to[idx[i]] - from[idx[i]]);
  return out;
}

let lanes = [], applied, overlaps, jumps = [];
const shown = {key: -1, clients: ''};

function select() {
  const key = shown.key, want = shown.clients.toLowerCase();
  const of = keys => key < 0 ? () => true : i => keys[i] === key;
  const people = data.processes.length;
  const ops = group(N.op, people, i => C['op.process'][i], of(C['op.key']));
  const holds = group(N.hold, people, i => C['hold.process'][i], of(C['hold.key']));
  lanes = [];
  for (let p = 0; p < people; p++) {
    const mine = ops(p), held = holds(p);
    if (!mine.length && !held.length) continue;
    if (want && !data.processes[p].toLowerCase().includes(want)) continue;
    const name = data.processes[p];
    lanes.push({
      name, ops: mine, holds: held,
      renewals: mine.filter(i => kind(i) === RENEW && outcome(i) === 1),
      believed: sums(held, C['hold.confirmed'], C['hold.believed']),
      granted: sums(held, C['hold.from'], C['hold.until']),
      faults: data.faults.filter(f => !f.failed && f.on && f.on.includes(name)),
    });
  }
  const some = n => Int32Array.from({length: n}, (_, i) => i);
  const wanted = of(C['applied.key']); // a read harms nothing, and is among its client's operations
  applied = some(N.applied).filter(i => wanted(i) && (C['applied.what'][i] & 15) !== READ);
  overlaps = some(N.overlap).filter(of(C['overlap.key']));
  jumps = data.jumps.slice();
  for (const i of overlaps) {
    const from = C['overlap.from'][i], a = C['overlap.a'][i], b = C['overlap.b'][i];
    jumps.push({property: 'mutex', at: from, to: from + C['overlap.length'][i], text: `${who(a)} and ${who(b)} both believed that they held, for ${length(C['overlap.length'][i])}`});
  }
  for (const i of applied) {
    if (C['applied.what'][i] & 64) jumps.push({property: 'fence', at: C['applied.time'][i], to: C['applied.time'][i], text: `the resource accepted a stale write of ${data.processes[C['applied.client'][i]]}`});
  }
  jumps.sort((a, b) => a.at - b.at);
}

const who = hold => data.processes[C['hold.process'][hold]];

// ---- colours ----------------------------------------------------------------

let paint = {};
const hatches = {};
function colours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['bg', 'card', 'line', 'text', 'dim', 'believed', 'on-believed', 'granted', 'on-granted', 'granted-edge', 'frozen', 'bad', 'good', 'warn', 'focus']) {
    paint[name] = style.getPropertyValue('--' + name).trim();
  }
  for (const name of ['frozen', 'bad']) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 8;
    const g = tile.getContext('2d');
    g.strokeStyle = paint[name];
    g.lineWidth = 2;
    g.beginPath();
    for (const d of [-8, 0, 8]) { g.moveTo(d, 8); g.lineTo(d + 8, 0); }
    g.stroke();
    hatches[name] = tile;
  }
}

// ---- a chart ------------------------------------------------------------------

const LANE = 74, AXIS = 24, OVER = 20, FAULT = 18, RESOURCE = 88;
const BELIEVED = {y: 8, h: 20}, GRANTED = {y: 30, h: 14}, OPS = {y: 49, h: 12};
const faultKinds = [...new Set(data.faults.map(f => f.kind))];

const widths = new Map();

class Chart {
  constructor(box, from, to, onView) {
    this.box = box;
    this.canvas = document.createElement('canvas');
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'img');
    this.canvas.setAttribute('aria-label', 'Lanes of clients over time. The same is in the tables below. Press . and , to step through operations.');
    this.spacer = document.createElement('div');
    box.append(this.canvas, this.spacer);
    this.onView = onView || (() => {});
    this.selected = null;
    this.frames = [];
    this.from = from;
    this.to = to;
    box.addEventListener('scroll', () => this.redraw());
    new ResizeObserver(() => this.layout()).observe(box);
    this.listen();
    this.layout();
  }

  get span() { return this.to - this.from; }
  x(t) { return this.left + (t - this.from) / this.span * this.w; }
  t(x) { return this.from + (x - this.left) / this.w * this.span; }

  layout() {
    const width = this.box.clientWidth;
    this.left = width < 700 ? 74 : 120;
    this.top = AXIS + OVER + faultKinds.length * FAULT;
    this.full = this.top + lanes.length * LANE + (applied.length ? RESOURCE : 0) + 4;
    this.height = Math.min(this.full, Math.max(260, innerHeight * 0.72));
    this.width = width;
    this.w = Math.max(50, width - this.left - 12);
    const dpr = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * dpr);
    this.canvas.height = Math.round(this.height * dpr);
    this.canvas.style.height = this.height + 'px';
    this.spacer.style.height = Math.max(0, this.full - this.height) + 'px';
    this.redraw();
  }

  // view shows a time, within bounds.
  view(from, to) {
    let span = Math.min(Math.max(to - from, 50), end * 1.08);
    const mid = (from + to) / 2;
    from = Math.min(Math.max(mid - span / 2, -end * 0.04), end * 1.04 - span);
    this.from = from;
    this.to = from + span;
    this.onView(this);
    this.redraw();
  }
  zoom(factor, at = (this.from + this.to) / 2) {
    this.view(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }
  pan(part) { this.view(this.from + this.span * part, this.to + this.span * part); }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const t = performance.now();
      this.draw();
      this.frames.push(performance.now() - t);
      if (this.frames.length > 600) this.frames.splice(0, 300);
    });
  }

  draw() {
    const g = this.g = this.canvas.getContext('2d');
    const dpr = devicePixelRatio || 1;
    g.setTransform(dpr, 0, 0, dpr, 0, 0);
    g.fillStyle = paint.bg;
    g.fillRect(0, 0, this.width, this.height);
    g.textBaseline = 'middle';
    const scroll = this.box.scrollTop;
    const laneY = i => this.top + i * LANE - scroll;
    g.save();
    g.beginPath();
    g.rect(0, this.top, this.width, this.height - this.top);
    g.clip();
    const first = Math.max(0, Math.floor(scroll / LANE));
    const last = Math.min(lanes.length, Math.ceil((scroll + this.height) / LANE));
    for (let i = first; i < last; i++) this.lane(lanes[i], laneY(i), i);
    if (applied.length) this.resource(this.resourceY());
    g.restore();
    this.serverFaults();
    this.overlaps();
    this.axis();
    if (this.selected !== null) this.mark(this.selected);
  }

  // resourceY is where the resource's lane is: below the others, and always in view.
  resourceY() { return Math.min(this.top + lanes.length * LANE - this.box.scrollTop, this.height - RESOURCE - 2); }

  clip(fn) {
    const g = this.g;
    g.save();
    g.beginPath();
    g.rect(this.left, 0, this.w, this.height);
    g.clip();
    fn();
    g.restore();
  }

  // room returns the width of a text in a font; most are asked for often.
  room(text, font) {
    const k = font + text;
    let w = widths.get(k);
    if (w === undefined) {
      this.g.font = font;
      w = this.g.measureText(text).width;
      if (widths.size > 5000) widths.clear();
      widths.set(k, w);
    }
    return w;
  }

  label(text, x, y, colour, font = '12px system-ui, sans-serif', align = 'left') {
    const g = this.g;
    g.font = font;
    g.textAlign = align;
    g.fillStyle = colour;
    g.fillText(text, x, y);
  }

  // fitted is a text, cut to the room left of the lanes.
  fitted(text, font) {
    if (text.length > 60) text = text.slice(0, 60) + '\u2026';
    while (text.length > 3 && this.room(text, font) > this.left - 12) text = text.slice(0, -2) + '\u2026';
    return text;
  }

  // boxed is a label on a background of its own, kept inside the chart.
  boxed(text, x, y, colour, font = '600 12px system-ui, sans-serif') {
    const g = this.g, w = this.room(text, font);
    x = Math.max(this.left + 3, Math.min(x, this.left + this.w - w - 3));
    g.fillStyle = paint.bg;
    g.globalAlpha = 0.85;
    g.fillRect(x - 3, y - 8, w + 6, 16);
    g.globalAlpha = 1;
    this.label(text, x, y, colour, font);
    return [x - 3, x + w + 3];
  }

  // gridStep is the time between two lines of the grid.
  gridStep() {
    const least = this.span / (this.w / 85);
    const step = Math.pow(10, Math.floor(Math.log10(least)));
    return step * [1, 2, 5, 10].find(m => step * m >= least);
  }

  grid(y, h) {
    const g = this.g, step = this.gridStep();
    g.fillStyle = paint.line;
    g.globalAlpha = 0.5;
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) g.fillRect(Math.round(this.x(t)), y, 1, h);
    g.globalAlpha = 1;
  }

  axis() {
    const g = this.g, step = this.gridStep();
    g.fillStyle = paint.card;
    g.fillRect(0, 0, this.width, AXIS);
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) {
      const x = this.x(t);
      g.fillStyle = paint.line;
      g.fillRect(Math.round(x), AXIS - 5, 1, 5);
      if (x > this.left + 20 && x < this.width - 24) this.label(time(t, step * 8), x, AXIS / 2 - 1, paint.dim, '11px system-ui, sans-serif', 'center');
    }
    this.label('time, ms', 8, AXIS / 2, paint.dim, '11px system-ui, sans-serif');
  }

  lane(lane, y, number) {
    const g = this.g;
    g.fillStyle = number % 2 ? paint.bg : paint.card;
    g.fillRect(0, y, this.width, LANE);
    this.grid(y, LANE);
    this.clip(() => {
      this.spans(lane.holds, C['hold.from'], C['hold.until'], lane.granted, y + GRANTED.y, GRANTED.h, 'granted');
      this.spans(lane.holds, C['hold.confirmed'], C['hold.believed'], lane.believed, y + BELIEVED.y, BELIEVED.h, 'believed');
      for (const f of lane.faults) this.onClient(f, y);
      this.outlived(lane, y);
      this.expiries(lane, y);
      this.operations(lane, y);
      for (const f of lane.faults) this.named(f, y);
    });
    g.fillStyle = number % 2 ? paint.bg : paint.card;
    g.fillRect(0, y, this.left - 2, LANE);
    this.label(this.fitted('client ' + lane.name, '600 13px system-ui, sans-serif'), 8, y + BELIEVED.y + 10, paint.text, '600 13px system-ui, sans-serif');
    const wide = this.left > 100;
    this.label(wide ? 'granted by service' : 'granted', 8, y + GRANTED.y + 8, paint.dim, '11px system-ui, sans-serif');
    this.label('operations', 8, y + OPS.y + 6, paint.dim, '11px system-ui, sans-serif');
  }

  // range returns the part of idx that is in view, of spans ordered by start.
  range(idx, from, to) {
    let lo = search(0, idx.length, this.from, i => from[idx[i]]);
    for (let n = 0; lo > 0 && n < 64 && (n < 1 || to[idx[lo - 1]] > this.from); n++) lo--;
    return [lo, search(lo, idx.length, this.to, i => from[idx[i]])];
  }

  // spans draws bars one by one, or, where there are more than pixels, how much
  // of each two pixels they cover.
  spans(idx, from, to, total, y, h, what) {
    const g = this.g;
    const [lo, hi] = this.range(idx, from, to);
    if (hi - lo > this.w / 3) {
      g.fillStyle = what === 'believed' ? paint.believed : paint['granted-edge'];
      const covered = (i, t) => i ? total[i - 1] + Math.max(0, Math.min(t, to[idx[i - 1]]) - from[idx[i - 1]]) : 0;
      const step = 2, dt = this.span * step / this.w, at = k => from[idx[k]];
      let i = search(0, idx.length, this.from, at), sum = covered(i, this.from), start = 0, shade = 0;
      for (let x = 0; x <= this.w; x += step) {
        const t = this.from + (x / step + 1) * dt;
        const j = ahead(i, idx.length, t, at);
        const next = covered(j, t), part = Math.min(1, (next - sum) / dt);
        const now = x + step > this.w ? -1 : part > 0 || j > i ? 2 + Math.round(8 * part) : 0;
        if (now !== shade) { // what looks the same is one rectangle
          if (shade > 0) {
            g.globalAlpha = shade / 10;
            g.fillRect(this.left + start, y, x - start, h);
          }
          start = x; shade = now;
        }
        i = j; sum = next;
      }
      g.globalAlpha = 1;
      return;
    }
    for (let k = lo; k < hi; k++) {
      const i = idx[k];
      if (to[i] <= from[i]) continue;
      const x1 = Math.max(this.x(from[i]), this.left - 5), x2 = Math.min(this.x(to[i]), this.left + this.w + 5);
      const w = Math.max(x2 - x1, 2);
      if (what === 'believed') {
        g.fillStyle = paint.believed;
        g.fillRect(Math.round(x1), y, Math.max(2, Math.round(x2) - Math.round(x1)), h);
        this.inside(`believes it holds${this.tokenOf(i)}`, x1, w, y + h / 2, paint['on-believed'], `${data.processes[C['hold.process'][i]]}${this.tokenOf(i)}`);
        continue;
      }
      // Between the request and its answer the grant is somewhere.
      const sure = Math.min(Math.max(this.x(C['hold.confirmed'][i]), x1), x2);
      g.lineWidth = 1;
      g.strokeStyle = paint['granted-edge'];
      if (sure - x1 > 3) {
        g.setLineDash([3, 3]);
        g.strokeRect(x1 + 0.5, y + 0.5, sure - x1, h - 1);
        this.inside('free again: may be granted from here on', x1, sure - x1, y + h / 2, paint['granted-edge'], 'free');
      }
      g.setLineDash([]);
      if (x2 - sure < 3) { // no room for an edge
        g.fillStyle = paint['granted-edge'];
        g.fillRect(sure, y, Math.max(x2 - sure, 1), h);
        continue;
      }
      g.fillStyle = paint.granted;
      g.fillRect(sure, y, x2 - sure, h);
      if (C['hold.what'][i] & 16) g.setLineDash([3, 3]);
      g.strokeRect(sure + 0.5, y + 0.5, x2 - sure, h - 1);
      g.setLineDash([]);
      this.inside(`granted by ${data.service || 'the service'}`, sure, x2 - sure, y + h / 2, paint['on-granted'], 'granted');
    }
  }

  // outlived marks where a client believes and its lease is over.
  outlived(lane, y) {
    const g = this.g, [lo, hi] = this.range(lane.holds, C['hold.from'], C['hold.believed']);
    if (hi - lo > this.w / 12) return;
    for (let k = lo; k < hi; k++) {
      const i = lane.holds[k], from = Math.max(C['hold.until'][i], C['hold.confirmed'][i]);
      if (!C['hold.lease'][i] || C['hold.believed'][i] <= from) continue;
      const x1 = Math.max(this.x(from), this.left - 5), x2 = Math.min(this.x(C['hold.believed'][i]), this.left + this.w + 5);
      if (x2 - x1 < 2) continue;
      g.strokeStyle = paint.bad;
      g.lineWidth = 1;
      g.setLineDash([2, 3]);
      g.strokeRect(x1 + 0.5, y + GRANTED.y + 0.5, x2 - x1, GRANTED.h - 1);
      g.setLineDash([]);
      const text = 'lease is over, but it still believes';
      const a = Math.max(x1, this.left), w = this.room(text, '600 11.5px system-ui, sans-serif');
      // Room for the label of the lease's end, if that is in view.
      const skip = this.x(from) >= this.left ? 190 : 6;
      if (x2 - a > w + skip + 10) this.boxed(text, a + skip, y + GRANTED.y + GRANTED.h / 2 + 1, paint.bad, '600 11.5px system-ui, sans-serif');
    }
  }

  tokenOf(hold) { return C['hold.what'][hold] & 32 ? `, token ${token(C['hold.token'][hold])}` : ''; }

  inside(text, x, w, y, colour, shorter) {
    if (w < 20) return;
    w = Math.min(x + w, this.left + this.w) - Math.max(x, this.left);
    x = Math.max(x, this.left);
    for (const t of [text, shorter]) {
      if (this.room(t, '11.5px system-ui, sans-serif') + 10 < w) { this.label(t, x + 5, y + 0.5, colour, '11.5px system-ui, sans-serif'); return; }
    }
  }

  diamond(x, y, r, colour) {
    const g = this.g;
    g.fillStyle = colour;
    g.beginPath(); g.moveTo(x, y - r); g.lineTo(x + r, y); g.lineTo(x, y + r); g.lineTo(x - r, y); g.fill();
  }

  // expiries marks where leases ended by themselves, and where they were renewed.
  expiries(lane, y) {
    const g = this.g;
    const [lo, hi] = this.range(lane.holds, C['hold.from'], C['hold.until']);
    const few = hi - lo <= this.w / 12;
    let free = -1e9;
    for (let k = lo; few && k < hi; k++) {
      const i = lane.holds[k], until = C['hold.until'][i];
      if (!C['hold.lease'][i] || until < C['hold.from'][i] + C['hold.lease'][i] || until > this.to || until < this.from) continue;
      const x = this.x(until), mid = y + GRANTED.y + GRANTED.h / 2;
      g.strokeStyle = paint['granted-edge'];
      g.lineWidth = 2;
      g.beginPath(); g.moveTo(x, y + BELIEVED.y - 4); g.lineTo(x, y + GRANTED.y + GRANTED.h + 3); g.stroke();
      this.diamond(x, mid, 6, paint['granted-edge']);
      if (x > free) {
        const text = `${lane.name}'s lease ends ${time(until, this.span)} ms`;
        const w = this.room(text, '600 11.5px system-ui, sans-serif');
        const [, right] = this.boxed(text, x + 10 + w > this.left + this.w ? x - w - 10 : x + 10, mid + 1, paint['granted-edge'], '600 11.5px system-ui, sans-serif');
        free = right;
      }
    }
    const r = lane.renewals;
    let n = search(0, r.length, this.from, i => C['op.call'][r[i]]), drawn = -9;
    for (; n < r.length && C['op.call'][r[n]] < this.to;) {
      const x = this.x(C['op.call'][r[n]]);
      if (x - drawn >= 3) {
        g.fillStyle = paint['granted-edge'];
        g.beginPath(); g.moveTo(x, y + GRANTED.y + 4); g.lineTo(x + 4, y + GRANTED.y + GRANTED.h); g.lineTo(x - 4, y + GRANTED.y + GRANTED.h); g.fill();
        drawn = x;
      }
      // On to the next pixel.
      n = Math.max(n + 1, search(n, r.length, this.t(drawn + 3), i => C['op.call'][r[i]]));
    }
  }

  opColour(i) { return outcome(i) === 2 ? paint.bad : outcome(i) === 0 ? paint.warn : kind(i) === WRITE ? paint.text : paint.dim; }

  operations(lane, y) {
    const g = this.g, idx = lane.ops, call = C['op.call'];
    y += OPS.y;
    let lo = search(0, idx.length, this.from, i => call[idx[i]]);
    if (lo) lo--;
    const hi = search(lo, idx.length, this.to, i => call[idx[i]]);
    if (hi - lo > this.w / 2) { // how many there are
      const step = 2, dt = this.span * step / this.w, counts = [], at = k => call[idx[k]];
      let i = search(0, idx.length, this.from, at), most = 1;
      for (let x = 0; x < this.w; x += step) {
        const j = ahead(i, idx.length, this.from + (x / step + 1) * dt, at);
        counts.push(j - i);
        most = Math.max(most, j - i);
        i = j;
      }
      g.fillStyle = paint.dim;
      for (let k = 0, start = 0; k <= counts.length; k++) {
        const h = n => n ? Math.max(2, Math.round(OPS.h * n / most)) : 0;
        if (k < counts.length && h(counts[k]) === h(counts[start])) continue;
        const high = h(counts[start]);
        if (high) g.fillRect(this.left + start * step, y + OPS.h - high, (k - start) * step, high);
        start = k;
      }
      return;
    }
    let free = -1e9;
    for (let k = lo; k < hi; k++) {
      const i = idx[k], x1 = Math.max(this.x(call[i]), this.left - 5), x2 = Math.min(this.x(retOf(i)), this.left + this.w + 5);
      const colour = this.opColour(i), w = Math.max(x2 - x1, 2);
      g.strokeStyle = g.fillStyle = colour;
      g.lineWidth = 2;
      if (outcome(i) === 0) { // dashed: unknown
        g.setLineDash([4, 3]);
        g.beginPath(); g.moveTo(x1, y + 3); g.lineTo(x1 + w, y + 3); g.stroke();
        g.setLineDash([]);
      } else g.fillRect(x1, y + 2, w, 2);
      g.fillRect(x1, y, 1.5, 6);
      if (outcome(i) === 2) { // a cross, not only a colour
        g.beginPath(); g.moveTo(x2 - 3, y); g.lineTo(x2 + 3, y + 6); g.moveTo(x2 + 3, y); g.lineTo(x2 - 3, y + 6); g.stroke();
      } else if (outcome(i) === 1) g.fillRect(x1 + w - 1.5, y, 1.5, 6);
      const x = Math.max(x1, this.left + 2);
      if (x <= free || hi - lo > this.w / 12) continue;
      const text = KINDS[kind(i)] + (outcome(i) === 2 ? ' failed' : outcome(i) === 0 ? ' ?' : ''), room = this.room(text, '11px system-ui, sans-serif');
      if (x + room < this.left + this.w + 8) {
        this.label(text, x, y + 14, colour, '11px system-ui, sans-serif');
        free = x + room + 6;
      }
    }
  }

  onClient(f, y) {
    if (f.to < this.from || f.from > this.to) return;
    const g = this.g, x1 = Math.max(this.x(f.from), this.left - 5), x2 = Math.min(this.x(f.to), this.left + this.w + 5), w = Math.max(x2 - x1, 2);
    g.fillStyle = g.createPattern(hatches.frozen, 'repeat');
    g.globalAlpha = 0.42;
    g.fillRect(x1, y + 2, w, LANE - 4);
    g.globalAlpha = 1;
    g.strokeStyle = paint.frozen;
    g.lineWidth = 1.5;
    g.strokeRect(x1, y + 2, w, LANE - 4);
  }

  named(f, y) {
    if (f.to < this.from || f.from > this.to) return;
    const g = this.g, x1 = this.x(f.from), x2 = this.x(f.to), w = x2 - x1;
    if (w > 60) {
      const text = (f.kind === 'pause' ? 'FROZEN for ' : f.kind + ' for ') + length(f.to - f.from) + (f.open ? ' or more' : '');
      const room = this.room(text, '600 12px system-ui, sans-serif');
      this.boxed(text, Math.max(x1, this.left) + (Math.min(x2, this.left + this.w) - Math.max(x1, this.left) - room) / 2, y + OPS.y + 8, paint.frozen);
    }
  }

  // serverFaults draws a row for each kind of fault, and shades what is not on a
  // client over all lanes.
  serverFaults() {
    const g = this.g, names = new Set(lanes.map(l => l.name));
    g.fillStyle = paint.bg;
    g.fillRect(0, AXIS, this.width, this.top - AXIS);
    faultKinds.forEach((kind, n) => {
      const y = AXIS + OVER + n * FAULT;
      this.clip(() => {
        let drawn = -9;
        for (const f of data.faults) {
          if (f.kind !== kind || f.to < this.from || f.from > this.to) continue;
          const x1 = Math.max(this.x(f.from), this.left - 5), x2 = Math.min(this.x(f.to), this.left + this.w + 5);
          if (x2 < drawn + 1) continue;
          const w = Math.max(x2 - x1, 2);
          drawn = x1 + w;
          if (f.failed) { this.label('\u2715', x1, y + FAULT / 2, paint.bad); continue; }
          g.fillStyle = paint.frozen;
          g.globalAlpha = 0.28;
          g.fillRect(x1, y + 2, w, FAULT - 4);
          if (!(f.on || []).some(on => names.has(on))) {
            g.globalAlpha = 0.08;
            g.fillRect(x1, this.top, w, this.height - this.top);
          }
          g.globalAlpha = 1;
          this.inside((f.on || []).length ? `${kind}: ${f.on.join(', ')}` : kind, x1, w, y + FAULT / 2, paint.text, kind);
        }
      });
      this.label(this.fitted('fault: ' + kind, '11.5px system-ui, sans-serif'), 8, y + FAULT / 2, paint.frozen, '11.5px system-ui, sans-serif');
    });
  }

  overlaps() {
    const g = this.g, from = C['overlap.from'], len = C['overlap.length'];
    if (!overlaps.length) return;
    let lo = Math.max(0, search(0, overlaps.length, this.from, i => from[overlaps[i]]) - 64);
    const hi = search(lo, overlaps.length, this.to, i => from[overlaps[i]]);
    this.clip(() => {
      let free = -1e9, drawn = -1e9;
      for (let k = lo; k < hi;) {
        const i = overlaps[k], a = this.x(from[i]), b = Math.max(this.x(from[i] + len[i]), a + 4);
        if (b >= this.left && b > drawn) {
          const x1 = Math.max(a, this.left - 4), x2 = Math.min(b, this.left + this.w + 4);
          g.fillStyle = paint.bad;
          const many = hi - lo > this.w / 10; // then what they happen to must stay visible
          g.globalAlpha = many ? 0.1 : 0.2;
          g.fillRect(x1, AXIS, x2 - x1, this.height - AXIS);
          g.globalAlpha = 1;
          g.fillRect(x1, AXIS, x2 - x1, many ? 7 : 4);
          if (!many) {
            g.strokeStyle = paint.bad;
            g.lineWidth = 1.5;
            g.strokeRect(x1, AXIS, x2 - x1, this.height - AXIS - 1);
          }
          drawn = b;
          // What ends on the same pixel is one.
          k = hi - lo < this.w ? k + 1 : Math.max(k + 1, ahead(k, hi, this.t(Math.max(drawn, this.left)), i => from[overlaps[i]]));
          if (many || x2 + 6 <= free) continue;
          const text = `\u26a0 OVERLAP ${length(len[i])}: ${who(C['overlap.a'][i])} and ${who(C['overlap.b'][i])}`;
          const w = this.room(text, '700 12px system-ui, sans-serif');
          const x = Math.max(this.left + 4, x2 + 6 + w > this.left + this.w ? (x2 - x1 > w + 10 ? x1 + 6 : x1 - w - 8) : (x2 - x1 > w + 10 ? x1 + 6 : x2 + 6));
          if (x > free) { this.boxed(text, x, AXIS + 12, paint.bad, '700 12px system-ui, sans-serif'); free = x + w + 14; }
          continue;
        }
        k++;
      }
      if (hi - lo > this.w / 10) this.boxed(`\u26a0 ${overlaps.length} overlaps: zoom in to tell them apart`, this.left + 8, AXIS + 13, paint.bad, '700 12px system-ui, sans-serif');
    });
    this.label('overlap', 8, AXIS + 12, paint.bad, '600 11.5px system-ui, sans-serif');
  }

  sign(what, x, y) {
    const g = this.g;
    if (what & 64) { // stale: a triangle
      g.fillStyle = paint.bad;
      g.beginPath(); g.moveTo(x, y - 8); g.lineTo(x + 8, y + 6); g.lineTo(x - 8, y + 6); g.fill();
    } else if (what & 16) {
      g.fillStyle = paint.good;
      g.beginPath(); g.arc(x, y, 5.5, 0, 7); g.fill();
    } else {
      g.strokeStyle = paint.warn;
      g.lineWidth = 2;
      g.strokeRect(x - 5, y - 5, 10, 10);
      g.beginPath(); g.moveTo(x - 5, y - 5); g.lineTo(x + 5, y + 5); g.stroke();
    }
  }

  resource(y) {
    const g = this.g, at = C['applied.time'], what = C['applied.what'];
    g.fillStyle = paint.card;
    g.fillRect(0, y, this.width, RESOURCE + 4);
    g.fillStyle = paint.line;
    g.fillRect(0, y, this.width, 1);
    this.grid(y, RESOURCE);
    const lo = search(0, applied.length, this.from, i => at[applied[i]]), hi = search(lo, applied.length, this.to, i => at[applied[i]]);
    this.clip(() => {
      if (hi - lo > this.w / 8) { // a row for each outcome
        const rows = [[64, 'bad', y + 8], [16, 'good', y + 36], [0, 'warn', y + 62]];
        const drawn = [-9, -9, -9];
        const stride = Math.max(1, Math.floor((hi - lo) / (this.w * 24))); // of the many, not of what is wrong
        for (let k = lo; k < hi; k++) {
          const w = what[applied[k]], r = w & 64 ? 0 : w & 16 ? 1 : 2;
          if (r === 1 && k % stride) continue;
          const x = Math.round(this.x(at[applied[k]]));
          if (x <= drawn[r]) continue;
          g.fillStyle = paint[rows[r][1]];
          g.fillRect(x, rows[r][2], r ? 1 : 2, 18);
          drawn[r] = x;
        }
        return;
      }
      // Labels go to the first of three lines that has room; a stale write's
      // comes first.
      const order = [];
      for (let k = lo; k < hi; k++) order.push(applied[k]);
      const taken = [[], [], []];
      order.slice().sort((a, b) => (what[b] & 64) - (what[a] & 64) || (what[a] & 16) - (what[b] & 16) || a - b).forEach(i => {
        const x = this.x(at[i]);
        g.font = (what[i] & 64 || !(what[i] & 16) ? '600 ' : '') + '11.5px system-ui, sans-serif';
        const text = this.applied(i), room = g.measureText(text).width + 14;
        for (let r = 0; r < 3; r++) {
          for (const left of [x + 10, x - room]) {
            if (left < this.left || left + room > this.left + this.w + 8 || taken[r].some(([a, b]) => left < b && left + room > a)) continue;
            taken[r].push([left, left + room]);
            this.label(text, left, y + 18 + r * 25, what[i] & 64 ? paint.bad : what[i] & 16 ? paint.text : paint.warn, (what[i] & 64 || !(what[i] & 16) ? '600 ' : '') + '11.5px system-ui, sans-serif');
            this.sign(what[i], x, y + 18 + r * 25);
            g.fillStyle = paint.dim;
            g.fillRect(x - 0.5, y, 1, 12 + r * 25);
            return;
          }
        }
        this.sign(what[i], x, y + 78);
      });
    });
    g.fillStyle = paint.card;
    g.fillRect(0, y + 1, this.left - 2, RESOURCE);
    this.label('resource', 8, y + 18, paint.text, '600 13px system-ui, sans-serif');
    this.label(data.resource || '', 8, y + 36, paint.dim, '11px system-ui, sans-serif');
  }

  // applied says what the resource did, in words.
  applied(i) {
    const what = C['applied.what'][i], value = C['applied.value'][i];
    let v = value ? ' ' + data.values[value - 1] : '';
    if (v.length > 22) v = v.slice(0, 20) + '\u2026';
    return `${data.processes[C['applied.client'][i]]}'s ${KINDS[what & 15]}${v}${what & 32 ? ` #${token(C['applied.token'][i])}` : ''} ${what & 16 ? 'ACCEPTED' : 'REJECTED'}${what & 64 ? ' (stale)' : ''}`;
  }

  // mark outlines the selected operation.
  mark(i) {
    const n = lanes.findIndex(l => l.name === data.processes[C['op.process'][i]]);
    if (n < 0) return;
    const g = this.g, y = this.top + n * LANE - this.box.scrollTop + OPS.y;
    const x1 = Math.max(this.x(C['op.call'][i]), this.left), x2 = Math.min(this.x(retOf(i)), this.left + this.w);
    if (x2 < this.left || x1 > this.left + this.w) return;
    g.strokeStyle = paint.focus;
    g.lineWidth = 2;
    g.strokeRect(x1 - 4, y - 4, Math.max(x2 - x1, 2) + 8, 14);
  }

  // what says what is at a point of the canvas, in words; null for nothing.
  what(px, py) {
    if (px < this.left) return null;
    const t = this.t(px), slack = this.span / this.w * 6;
    if (py < this.top) {
      const row = Math.floor((py - AXIS - OVER) / FAULT);
      const hits = data.faults.filter(f => f.from - slack <= t && f.to + slack >= t && (row < 0 || f.kind === faultKinds[row]));
      if (row < 0) {
        const o = overlaps.find(i => C['overlap.from'][i] - slack <= t && C['overlap.from'][i] + C['overlap.length'][i] + slack >= t);
        if (o !== undefined) return {text: `${who(C['overlap.a'][o])} and ${who(C['overlap.b'][o])} both believed that they held for ${length(C['overlap.length'][o])}, from ${ms(C['overlap.from'][o])}`};
      }
      return hits.length ? {text: hits.slice(0, 4).map(fault).join('\n')} : null;
    }
    const n = Math.floor((py - this.top + this.box.scrollTop) / LANE);
    if (applied.length && py >= this.resourceY()) {
      const k = nearest(applied, C['applied.time'], t, slack);
      return k < 0 ? null : {text: `${this.applied(k)}\nat ${ms(C['applied.time'][k])} (event ${C['applied.index'][k]})`};
    }
    if (n >= lanes.length) return null;
    const lane = lanes[n], y = (py - this.top + this.box.scrollTop) % LANE;
    if (y < OPS.y - 2) {
      for (let k = search(0, lane.holds.length, t + slack, i => C['hold.from'][lane.holds[i]]) - 1, tries = 0; k >= 0 && tries < 64; k--, tries++) {
        const i = lane.holds[k];
        if (Math.max(C['hold.believed'][i], C['hold.until'][i]) + slack >= t) return {text: hold(i)};
      }
    } else {
      for (let k = search(0, lane.ops.length, t + slack, i => C['op.call'][lane.ops[i]]) - 1, tries = 0; k >= 0 && tries < 8; k--, tries++) {
        const i = lane.ops[k];
        if (retOf(i) + slack >= t) return {text: operation(i), op: i};
      }
    }
    const f = lane.faults.find(f => f.from <= t && f.to >= t);
    return f ? {text: fault(f)} : null;
  }

  listen() {
    const c = this.canvas;
    let drag = null;
    c.addEventListener('wheel', e => {
      const across = Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey;
      if (!e.ctrlKey && !e.metaKey && !across && document.activeElement !== c) return; // the page scrolls
      e.preventDefault();
      if (across && !e.ctrlKey) this.pan((e.deltaX || e.deltaY) / this.w);
      else this.zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY / 300))), this.t(e.offsetX));
    }, {passive: false});
    c.addEventListener('pointerdown', e => { drag = {x: e.offsetX, from: this.from, to: this.to}; c.setPointerCapture(e.pointerId); });
    c.addEventListener('pointerup', e => {
      if (drag && Math.abs(e.offsetX - drag.x) < 4) {
        const hit = this.what(e.offsetX, e.offsetY);
        if (hit) { $('detail').textContent = hit.text; this.selected = hit.op ?? null; this.redraw(); }
      }
      drag = null;
    });
    c.addEventListener('pointermove', e => {
      if (drag) {
        const d = (drag.x - e.offsetX) / this.w * (drag.to - drag.from);
        if (Math.abs(drag.x - e.offsetX) >= 4) this.view(drag.from + d, drag.to + d);
        return;
      }
      tip(this.what(e.offsetX, e.offsetY), e.clientX, e.clientY);
    });
    c.addEventListener('pointerleave', () => tip(null));
    c.addEventListener('dblclick', e => this.zoom(0.4, this.t(e.offsetX)));
    c.addEventListener('keydown', e => {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      const keys = {
        ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15),
        ArrowUp: () => this.box.scrollBy(0, -LANE), ArrowDown: () => this.box.scrollBy(0, LANE),
        '+': () => this.zoom(0.6), '=': () => this.zoom(0.6), '-': () => this.zoom(1 / 0.6),
        '0': () => this.view(0, end), Home: () => this.view(0, this.span), End: () => this.view(end - this.span, end),
        '.': () => this.step(1), ',': () => this.step(-1),
        n: () => jump(1), p: () => jump(-1), v: () => jump(0),
      };
      if (!keys[e.key]) return;
      e.preventDefault();
      keys[e.key]();
    });
  }

  // step selects the next operation in time, of those shown.
  step(by) {
    const call = C['op.call'], names = new Set(lanes.map(l => l.name));
    let i = this.selected === null ? search(0, N.op, this.from, k => call[k]) - (by > 0 ? 1 : 0) : this.selected;
    do i += by; while (i >= 0 && i < N.op && !(names.has(data.processes[C['op.process'][i]]) && (shown.key < 0 || C['op.key'][i] === shown.key)));
    if (i < 0 || i >= N.op) return;
    this.selected = i;
    if (call[i] < this.from || call[i] > this.to) this.view(call[i] - this.span / 2, call[i] + this.span / 2);
    const n = lanes.findIndex(l => l.name === data.processes[C['op.process'][i]]), y = n * LANE;
    if (y < this.box.scrollTop || y > this.box.scrollTop + this.height - this.top - LANE) this.box.scrollTop = Math.max(0, y - LANE);
    $('detail').textContent = operation(i);
    this.redraw();
  }
}

// nearest returns the element of idx whose time is next to t, -1 for none.
function nearest(idx, at, t, slack) {
  const k = search(0, idx.length, t, i => at[idx[i]]);
  let best = -1, near = slack;
  for (const j of [k - 1, k]) {
    if (j >= 0 && j < idx.length && Math.abs(at[idx[j]] - t) <= near) { best = idx[j]; near = Math.abs(at[idx[j]] - t); }
  }
  return best;
}

// ---- words for what is pointed at --------------------------------------------

const ms = ns => (ns / 1e6).toFixed(3) + ' ms';
const onKey = k => data.keys.length > 1 ? ` of ${data.keys[k]}` : '';

function operation(i) {
  const what = C['op.what'][i], value = C['op.value'][i], error = C['op.error'][i];
  return `${data.processes[C['op.process'][i]]}: ${KINDS[kind(i)]}${onKey(C['op.key'][i])}${value ? ' ' + data.values[value - 1] : ''}${what & 64 ? `, token ${token(C['op.token'][i])}` : ''}: ${OUTCOMES[outcome(i)]}${error ? ` (${data.errors[error]})` : ''}\n` +
    (C['op.took'][i] ? `${ms(C['op.call'][i])} to ${ms(retOf(i))}, took ${length(C['op.took'][i])}` : `from ${ms(C['op.call'][i])} on, never answered for certain`) +
    ` (event ${C['op.index'][i]})`;
}

function hold(i) {
  const what = C['hold.what'][i], lease = C['hold.lease'][i];
  let s = `${who(i)} holds${onKey(C['hold.key'][i])}${what & 32 ? `, token ${token(C['hold.token'][i])}` : ''}\n` +
    `asked ${ms(C['hold.asked'][i])}, granted ${ms(C['hold.confirmed'][i])}\n` +
    `believed until ${ms(C['hold.believed'][i])} (${data.endings[what & 15]})`;
  if (lease) s += `\nlease ends ${ms(C['hold.from'][i] + lease)} at the earliest`;
  if (what & 16) s += '\nthe service let go of it before, at a time that only it knows';
  const late = C['hold.believed'][i] - C['hold.from'][i] - lease;
  if (lease && late > 0) s += `\nbelieved for ${length(late)} longer than its lease`;
  return s;
}

function fault(f) {
  return `${f.kind}${f.on && f.on.length ? ' on ' + f.on.join(', ') : ''}, ` +
    (f.failed ? `did not come into effect: ${f.failed}` : `${ms(f.from)} to ${ms(f.to)} (${length(f.to - f.from)}${f.open ? ', not healed' : ''})`) + (f.proof ? `\nproof: ${f.proof}` : '');
}

function tip(hit, x, y) {
  const box = $('tip');
  box.hidden = !hit;
  if (!hit) return;
  box.textContent = hit.text;
  box.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.offsetWidth - 8)) + 'px';
  box.style.top = (y + 20 + box.offsetHeight > innerHeight ? y - box.offsetHeight - 12 : y + 16) + 'px';
}

// ---- the whole run in small -----------------------------------------------------

function drawMap(chart) {
  const c = $('map'), dpr = devicePixelRatio || 1, w = c.clientWidth, h = 40;
  c.width = w * dpr;
  c.height = h * dpr;
  const g = c.getContext('2d'), x = t => chart.left + t / end * (w - chart.left - 12), call = C['op.call'];
  g.scale(dpr, dpr);
  g.fillStyle = paint.card;
  g.fillRect(0, 0, w, h);
  const counts = [];
  let i = 0, most = 1;
  for (let px = chart.left; px < w - 12; px += 2) {
    const j = search(i, N.op, (px + 2 - chart.left) / (w - chart.left - 12) * end, k => call[k]);
    counts.push(j - i);
    most = Math.max(most, j - i);
    i = j;
  }
  g.fillStyle = paint.dim;
  counts.forEach((n, k) => { if (n) g.fillRect(chart.left + k * 2, h - 3 - Math.max(2, n / most * (h - 14)), 2, Math.max(2, n / most * (h - 14))); });
  g.fillStyle = paint.frozen;
  let drawn = -9;
  for (const f of data.faults) {
    if (f.failed || x(f.to) < drawn + 1) continue;
    g.globalAlpha = 0.3;
    g.fillRect(x(f.from), 0, Math.max(2, x(f.to) - x(f.from)), h);
    drawn = x(f.to);
  }
  g.globalAlpha = 1;
  g.fillStyle = paint.bad;
  drawn = -9;
  for (const j of jumps) {
    if (x(j.at) < drawn + 2) continue;
    drawn = x(j.at);
    g.fillRect(drawn - 1, 0, 3, h);
  }
  g.font = '11px system-ui, sans-serif';
  g.textBaseline = 'middle';
  g.fillStyle = paint.dim;
  g.fillText('whole run', 8, h / 2);
  g.strokeStyle = paint.focus;
  g.lineWidth = 2;
  const a = Math.max(x(chart.from), 1);
  g.strokeRect(a, 1, Math.max(4, Math.min(x(chart.to), w - 1) - a), h - 2);
}

function listenMap(chart) {
  const c = $('map');
  const go = e => {
    const t = (e.offsetX - chart.left) / (c.clientWidth - chart.left - 12) * end;
    chart.view(t - chart.span / 2, t + chart.span / 2);
  };
  let down = false;
  c.addEventListener('pointerdown', e => { down = true; c.setPointerCapture(e.pointerId); go(e); });
  c.addEventListener('pointermove', e => { if (down) go(e); });
  c.addEventListener('pointerup', () => { down = false; });
}

// ---- violations -------------------------------------------------------------------

let at = -1;

// jump goes to the next or the previous violation, or with 0 to the first one.
function jump(by) {
  if (!jumps.length) return;
  at = by === 0 ? 0 : (at + by + jumps.length) % jumps.length;
  const j = jumps[at];
  const room = Math.max((j.to - j.at) * 0.7, j.to > j.at ? 0 : 2e6);
  main.view(j.at - room, j.to + room);
  said();
  $('detail').textContent = `${j.property}, ${ms(j.at)}: ${j.text}`;
}

function said() {
  $('where').textContent = jumps.length ? `${at < 0 ? '' : at + 1 + ' of '}${jumps.length} violation${jumps.length > 1 ? 's' : ''}` : 'no violation to show';
  for (const id of ['first', 'prev', 'next']) $(id).disabled = !jumps.length;
}

// ---- deep links: #t=middle in ms&z=span in ms&k=key -------------------------------

let linking = 0;
function link(chart) {
  clearTimeout(linking);
  linking = setTimeout(() => {
    let s = `#t=${((chart.from + chart.to) / 2e6).toFixed(6)}&z=${(chart.span / 1e6).toFixed(6)}`;
    if (shown.key >= 0) s += '&k=' + encodeURIComponent(data.keys[shown.key]);
    try { history.replaceState(null, '', s); } catch { /* some places allow none */ }
  }, 150);
}

function linked() {
  const q = new URLSearchParams(location.hash.slice(1)), t = parseFloat(q.get('t')), z = parseFloat(q.get('z'));
  const key = q.has('k') ? data.keys.indexOf(q.get('k')) : -1;
  return {key, view: isFinite(t) && isFinite(z) && z > 0 ? [(t - z / 2) * 1e6, (t + z / 2) * 1e6] : null};
}

// ---- start ----------------------------------------------------------------------------

const charts = [];
let main;
const saved = (() => { try { return localStorage.getItem('lockcheck-theme'); } catch { return null; } })();
if (saved === 'light' || saved === 'dark') document.documentElement.dataset.theme = saved;
colours();
const start = linked();
shown.key = start.key;
select();

main = new Chart($('main'), ...(start.view || data.focus), c => { drawMap(c); link(c); });
charts.push(main);
if (start.view) main.view(...start.view);
drawMap(main);
listenMap(main);
new ResizeObserver(() => drawMap(main)).observe($('map'));

// A violation that is thin in the whole story gets a picture of its own.
const first = overlaps.length ? overlaps[0] : -1;
if (first >= 0 && C['overlap.length'][first] * 12 < data.focus[1] - data.focus[0]) {
  const from = C['overlap.from'][first], len = C['overlap.length'][first];
  $('closeup-box').hidden = false;
  $('closeup-title').textContent = `Close-up: the ${length(len)} in which ${who(C['overlap.a'][first])} and ${who(C['overlap.b'][first])} both believed that they held`;
  charts.push(new Chart($('closeup'), from - len * 0.55, from + len * 1.55));
}

const keys = $('key');
keys.append(new Option(data.keys.length > 1 ? `all ${data.keys.length}` : 'all', '-1'));
data.keys.slice(0, 1000).forEach((name, i) => keys.append(new Option(name || '(none)', String(i))));
keys.value = String(shown.key);
const again = () => { at = -1; select(); said(); for (const c of charts) { c.selected = null; c.layout(); } drawMap(main); link(main); };
keys.addEventListener('change', () => { shown.key = Number(keys.value); again(); });
$('filter').addEventListener('input', e => { shown.clients = e.target.value.trim(); again(); });
$('first').addEventListener('click', () => jump(0));
$('next').addEventListener('click', () => jump(1));
$('prev').addEventListener('click', () => jump(-1));
$('zoom-in').addEventListener('click', () => main.zoom(0.5));
$('zoom-out').addEventListener('click', () => main.zoom(2));
$('all').addEventListener('click', () => main.view(-end * 0.02, end * 1.02));
addEventListener('hashchange', () => { const l = linked(); if (l.view) main.view(...l.view); });

const recolour = () => { colours(); for (const c of charts) c.redraw(); drawMap(main); };
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolour);
$('theme').addEventListener('click', () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  try { localStorage.setItem('lockcheck-theme', root.dataset.theme); } catch { /* offline files may have none */ }
  recolour();
});
said();

// For tests, and for whoever is curious.
window.lockcheck = {
  main, charts, data, jumps: () => jumps, lanes: () => lanes, layout: {LANE, BELIEVED, GRANTED, OPS},
  timing: {unpack: unpacked - started, ready: performance.now() - started},
};
document.documentElement.dataset.ready = 'true';
})().catch(e => { document.getElementById('detail').textContent = 'The lanes cannot be drawn: ' + e.message + '. The tables below say the same.'; document.documentElement.dataset.ready = 'failed'; });
