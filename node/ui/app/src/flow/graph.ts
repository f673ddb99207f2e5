// What a picture of the traffic shows: streams added up to a graph of a bounded size. The
// largest nodes of each column are shown, the others together as one.
import type { Stream } from "../lib/types";

export type Metric = "connections" | "bytes";

export interface Options {
  metric: Metric;
  listener: string; // parts of names, "": all
  service: string;
  most: number; // nodes in a column beside the one for the others
  // preview moves the traffic of a route to other shares: "service{subset}" -> share.
  preview?: { route: string; destination: string; shares: Record<string, number> } | null;
}

export const columns = ["listener", "route", "service", "subset", "endpoint"] as const;
export type Column = (typeof columns)[number];

export interface Node {
  id: string;
  column: Column;
  label: string;
  value: number;
  through: boolean; // nothing of its own: the ribbon passes, since there is no route or subset
  others: number; // how many nodes it stands for; 0: it is one
  colour: number; // of its service by size, from 0; -1: none
}

export interface Link {
  id: string;
  from: string;
  to: string;
  value: number;
  colour: number;
  stream: Stream; // the largest in it, which explain asks about
  streams: number;
}

export interface Graph {
  nodes: Node[];
  links: Link[];
  shown: Column[]; // columns that have something of their own
  total: number;
}

export const backendKey = (service: string, subset: string | undefined) => `${service}{${subset ?? ""}}`;

export const valueOf = (s: Stream, metric: Metric) => (metric === "connections" ? s.connections : s.inRate + s.outRate);

// select keeps the streams that the filters ask for.
export function select(streams: Stream[], o: Options): Stream[] {
  const has = (text: string, part: string) => text.toLowerCase().includes(part.toLowerCase());
  return streams.filter((s) => (!o.listener || has(s.listener, o.listener)) && (!o.service || has(s.service, o.service) || has(s.destination, o.service)));
}

export function build(streams: Stream[], o: Options): Graph {
  const all = moved(select(streams, o), o);
  const paths = all.map((s) => ({ s, v: valueOf(s, o.metric), path: columns.map((c) => nameIn(c, s)) })).filter((p) => p.v > 0);
  const kept = columns.map((_, i) => largest(paths, i, o.most));
  const colours = new Map([...(kept[2]?.names ?? [])].map((name, i) => [name, i]));
  const nodes = new Map<string, Node>();
  const links = new Map<string, Link>();
  let total = 0;
  for (const { s, v, path } of paths) {
    total += v;
    const service = path[2]!;
    const colour = colours.get(service) ?? -1;
    let before: Node | undefined;
    for (const [i, column] of columns.entries()) {
      const name = path[i]!;
      const through = name.startsWith(passes);
      const other = !through && !kept[i]!.names.has(name);
      // What passes through goes with its service, or with those that are not shown.
      const key = other ? "others" : through && !colours.has(service) ? `${passes}others` : name;
      const id = `${column}:${key}`;
      let node = nodes.get(id);
      if (!node) {
        const others = other ? kept[i]!.others : 0;
        nodes.set(id, (node = { id, column, label: other ? `${others} others` : label(column, s), value: 0, through, others, colour: column === "listener" ? -1 : colour }));
      }
      node.value += v;
      if (before) join(links, before, node, v, s, colour, o.metric);
      before = node;
    }
  }
  const shown = columns.filter((c) => [...nodes.values()].some((n) => n.column === c && !n.through));
  return { nodes: [...nodes.values()], links: [...links.values()], shown, total };
}

const passes = "\u0000";

function nameIn(column: Column, s: Stream): string {
  switch (column) {
    case "listener":
      return s.listener;
    case "route":
      return s.route ? `${s.route}\u0001${s.destination}` : passes + s.service;
    case "service":
      return s.service;
    case "subset":
      return s.subset ? backendKey(s.service, s.subset) : passes + s.service;
    case "endpoint":
      return `${s.service}\u0001${s.endpoint ?? ""}`;
  }
}

function label(column: Column, s: Stream): string {
  switch (column) {
    case "listener":
      return s.listener;
    case "route":
      return s.route ? s.route.slice(s.route.indexOf("/") + 1) : "";
    case "service":
      return s.service;
    case "subset":
      return s.subset ?? "";
    case "endpoint":
      return s.endpoint || "connecting";
  }
}

// largest picks the names of a column with the most traffic.
function largest(paths: { v: number; path: string[] }[], i: number, most: number) {
  const sums = new Map<string, number>();
  for (const { v, path } of paths) {
    const name = path[i]!;
    if (!name.startsWith(passes)) sums.set(name, (sums.get(name) ?? 0) + v);
  }
  const names = [...sums].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).map(([name]) => name);
  const others = Math.max(0, names.length - most);
  // One node for a single other would say less than the node itself.
  return others > 1 ? { names: new Set(names.slice(0, most)), others } : { names: new Set(names), others: 0 };
}

function join(links: Map<string, Link>, from: Node, to: Node, v: number, s: Stream, colour: number, metric: Metric) {
  const id = `${from.id}\u0002${to.id}`;
  const link = links.get(id);
  if (!link) links.set(id, { id, from: from.id, to: to.id, value: v, colour, stream: s, streams: 1 });
  else {
    link.value += v;
    link.streams++;
    if (valueOf(s, metric) > valueOf(link.stream, metric)) link.stream = s;
    if (link.colour !== colour) link.colour = -1;
  }
}

// moved gives the streams of a route the sizes that they would have with other shares.
function moved(streams: Stream[], o: Options): Stream[] {
  const p = o.preview;
  if (!p) return streams;
  const of = streams.filter((s) => s.route === p.route && s.destination === p.destination);
  const sum = (list: Stream[], field: "connections" | "inRate" | "outRate") => list.reduce((n, s) => n + s[field], 0);
  const groups = new Map<string, Stream[]>();
  for (const s of of) {
    const key = backendKey(s.service, s.subset);
    groups.set(key, [...(groups.get(key) ?? []), s]);
  }
  const rest = streams.filter((s) => !of.includes(s));
  const result: Stream[] = [];
  for (const [key, share] of Object.entries(p.shares)) {
    if (share <= 0) continue;
    const group = groups.get(key);
    if (!group) {
      const [, service = "", subset = ""] = /^(.*)\{(.*)\}$/.exec(key) ?? [];
      if (of[0]) {
        const rates = { connections: sum(of, "connections") * share, inRate: sum(of, "inRate") * share, outRate: sum(of, "outRate") * share };
        result.push({ ...of[0], service, subset, endpoint: "endpoints", ...rates });
      }
      continue;
    }
    const scaled = (s: Stream, field: "connections" | "inRate" | "outRate") => {
      const own = sum(group, field);
      return sum(of, field) * share * (own > 0 ? s[field] / own : 1 / group.length);
    };
    for (const s of group) result.push({ ...s, connections: scaled(s, "connections"), inRate: scaled(s, "inRate"), outRate: scaled(s, "outRate") });
  }
  return [...rest, ...result];
}
