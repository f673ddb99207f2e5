// Reads the flow of the cluster and adds it up outside the page's own thread: 10,000
// streams would otherwise cost the picture its frames.
import { readEvents, Refused } from "../lib/sse";
import type { FlowResult, Stream } from "../lib/types";
import { build, select, valueOf, type Graph, type Options } from "./graph";

export interface Ask {
  node: string;
  table: boolean; // the rows are shown
  options: Options;
}

export interface Answer {
  graph: Graph;
  rows: Stream[]; // the largest ones
  count: number; // of the streams that the filters select
  listeners: string[];
  services: string[];
  missing: string[];
  more: number;
  at: number;
  error?: string;
}

// maxRows bounds the table.
const maxRows = 1000;
const maxNames = 500;
const pause = 2000;

let ask: Ask | undefined;
let data: FlowResult | undefined;
let at = 0;
let stop = new AbortController();

self.addEventListener("message", (e: MessageEvent<Ask>) => {
  const node = ask?.node;
  ask = e.data;
  if (node !== ask.node) {
    stop.abort();
    stop = new AbortController();
    data = undefined;
    void follow(ask.node, stop.signal);
  } else tell();
});

async function follow(node: string, signal: AbortSignal) {
  const query = new URLSearchParams({ topics: "flow", interval: "2s" });
  if (node) query.set("node", node);
  while (!signal.aborted) {
    let error = "the node has closed the stream";
    try {
      const event = (name: string, text: string) => {
        if (name !== "flow" || signal.aborted) return;
        data = JSON.parse(text) as FlowResult;
        at = Date.now();
        tell();
      };
      await readEvents(`/v1/events?${query}`, { event }, signal);
    } catch (err) {
      error = err instanceof Refused ? words(err) : "the node does not answer";
    }
    if (signal.aborted) return;
    tell(error);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

function words(refused: Refused): string {
  try {
    return (JSON.parse(refused.body) as { error?: string }).error ?? refused.message;
  } catch {
    return refused.message;
  }
}

function tell(error?: string) {
  if (!ask || (!data && !error)) return;
  const o = ask.options;
  const streams = data?.streams ?? [];
  const chosen = select(streams, o).sort((a, b) => valueOf(b, o.metric) - valueOf(a, o.metric));
  const answer: Answer = {
    graph: build(streams, o),
    rows: ask.table ? chosen.slice(0, maxRows) : [],
    count: chosen.length,
    listeners: names(streams.map((s) => s.listener)),
    services: names(streams.flatMap((s) => [s.service, s.destination])),
    missing: data?.missing ?? [],
    more: data?.more ?? 0,
    at,
    error,
  };
  self.postMessage(answer);
}

const names = (all: string[]) => [...new Set(all)].filter(Boolean).sort().slice(0, maxNames);
