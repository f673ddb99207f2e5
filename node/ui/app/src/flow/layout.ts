// Where the nodes and ribbons of a graph are drawn. The work is bounded: a fixed number of
// passes over a graph that has a bounded size.
import type { Graph, Link, Node } from "./graph";

export interface Box {
  node: Node;
  x: number;
  y: number;
  height: number;
}

export interface Ribbon {
  link: Link;
  x0: number;
  y0: number; // the middle where it begins
  x1: number;
  y1: number;
  height: number;
}

export interface Layout {
  boxes: Map<string, Box>;
  ribbons: Map<string, Ribbon>;
  width: number;
  height: number;
}

export const boxWidth = 10;
const gap = 12;
const thin = 1.5; // the least height
const passes = 8;

// layout places a graph. before keeps the order of nodes that were there, so that the eye
// can follow.
export function layout(g: Graph, width: number, height: number, before?: Layout): Layout {
  const columns = g.shown.map((c) => g.nodes.filter((n) => n.column === c));
  const boxes = new Map<string, Box>();
  const links = skip(g);
  const scale = Math.min(...columns.map((c) => (height - gap * (c.length - 1)) / Math.max(1e-9, c.reduce((n, x) => n + x.value, 0))));
  const step = columns.length > 1 ? (width - boxWidth) / (columns.length - 1) : 0;
  for (const [i, column] of columns.entries()) {
    const was = (n: Node) => before?.boxes.get(n.id)?.y;
    column.sort((a, b) => last(a) - last(b) || (was(a) ?? Infinity) - (was(b) ?? Infinity) || b.value - a.value || (a.id < b.id ? -1 : 1));
    let y = 0;
    for (const node of column) {
      const h = Math.max(thin, node.value * Math.max(0, scale));
      boxes.set(node.id, { node, x: Math.round(i * step), y, height: h });
      y += h + gap;
    }
  }
  const into = group(links, (l) => l.to);
  const out = group(links, (l) => l.from);
  for (let pass = 0; pass < passes; pass++) {
    const down = pass % 2 === 0;
    const order = down ? columns : [...columns].reverse();
    for (const column of order.slice(1)) {
      for (const n of column) settle(boxes, boxes.get(n.id)!, down ? (into.get(n.id) ?? []).map((l) => [l.from, l.value]) : (out.get(n.id) ?? []).map((l) => [l.to, l.value]));
      column.sort((a, b) => boxes.get(a.id)!.y - boxes.get(b.id)!.y);
      apart(column.map((n) => boxes.get(n.id)!), height);
    }
  }
  return { boxes, ribbons: ribbons(links, boxes, into, out), width, height };
}

const last = (n: Node) => (n.others > 0 ? 1 : 0);

function group(links: Link[], by: (l: Link) => string): Map<string, Link[]> {
  const all = new Map<string, Link[]>();
  for (const l of links) {
    const list = all.get(by(l));
    if (list) list.push(l);
    else all.set(by(l), [l]);
  }
  return all;
}

// settle moves a box to the middle of those that it is joined to.
function settle(boxes: Map<string, Box>, box: Box, joined: [string, number][]) {
  let sum = 0;
  let weight = 0;
  for (const [id, value] of joined) {
    const b = boxes.get(id);
    if (!b) continue;
    sum += (b.y + b.height / 2) * value;
    weight += value;
  }
  if (weight > 0) box.y = sum / weight - box.height / 2;
}

// apart moves the boxes of a column until none covers another.
function apart(column: Box[], height: number) {
  let y = 0;
  for (const b of column) {
    b.y = Math.max(b.y, y);
    y = b.y + b.height + gap;
  }
  let bottom = height;
  for (const b of [...column].reverse()) {
    b.y = Math.min(b.y, bottom - b.height);
    bottom = b.y - gap;
  }
}

// skip joins the nodes of shown columns directly where a column between them is not shown.
function skip(g: Graph): Link[] {
  const hidden = new Set(g.nodes.filter((n) => !g.shown.includes(n.column)).map((n) => n.id));
  let links = g.links;
  for (const id of hidden) {
    const into = links.filter((l) => l.to === id);
    const out = links.filter((l) => l.from === id);
    if (into.length === 0) {
      links = links.filter((l) => l.from !== id);
      continue;
    }
    const total = out.reduce((n, l) => n + l.value, 0) || 1;
    const joined = into.flatMap((a) => out.map((b) => ({ ...b, id: `${a.from}\u0002${b.to}`, from: a.from, value: (a.value * b.value) / total, stream: a.streams === 1 ? a.stream : b.stream })));
    links = [...links.filter((l) => l.to !== id && l.from !== id), ...joined];
  }
  const merged = new Map<string, Link>();
  for (const l of links) {
    const m = merged.get(l.id);
    if (m) merged.set(l.id, { ...m, value: m.value + l.value, streams: m.streams + l.streams, colour: m.colour === l.colour ? l.colour : -1 });
    else merged.set(l.id, l);
  }
  return [...merged.values()];
}

function ribbons(links: Link[], boxes: Map<string, Box>, into: Map<string, Link[]>, out: Map<string, Link[]>): Map<string, Ribbon> {
  const all = new Map<string, Ribbon>();
  for (const l of links) {
    const from = boxes.get(l.from);
    const to = boxes.get(l.to);
    if (from && to) all.set(l.id, { link: l, x0: from.x + boxWidth, y0: 0, x1: to.x, y1: 0, height: Math.max(0.75, (l.value / Math.max(1e-9, from.node.value)) * from.height) });
  }
  const stack = (lists: Map<string, Link[]>, other: (l: Link) => string, put: (r: Ribbon, y: number) => void) => {
    for (const [id, list] of lists) {
      const box = boxes.get(id);
      if (!box) continue;
      list.sort((a, b) => (boxes.get(other(a))?.y ?? 0) - (boxes.get(other(b))?.y ?? 0));
      let y = box.y;
      for (const l of list) {
        const r = all.get(l.id);
        if (!r) continue;
        put(r, y + r.height / 2);
        y += r.height;
      }
    }
  };
  stack(out, (l) => l.to, (r, y) => (r.y0 = y));
  stack(into, (l) => l.from, (r, y) => (r.y1 = y));
  return all;
}
