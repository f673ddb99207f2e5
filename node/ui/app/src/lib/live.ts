// What nodes tell by themselves. A view names topics with useLive and gets the last value
// of each; the topics of all views without a query share one stream, since browsers open
// six connections to a host at most. Streams are closed while the page is hidden.
//
// A value stays when its stream breaks: link says since when, so that the page can show
// how old it is.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { refusal } from "./api";
import { session } from "./session";
import { readEvents, Refused } from "./sse";
import { store, useStore } from "./store";
import type { AuditItem, Connections, FlowResult, LogsItem, Problems, Rollouts, Status, TopSample } from "./types";

export interface Topics {
  status: Status;
  problems: Problems;
  traffic: TopSample;
  flow: FlowResult;
  connections: Connections;
  progress: Rollouts;
  changes: { kind: string; name: string; version: number; deleted?: boolean };
  logs: LogsItem;
  audit: AuditItem;
}
export type Topic = keyof Topics;

export interface Live<T> {
  data?: T;
  at?: number; // when it came, by Date.now
  error?: string; // why there is none
}

// Link is the state of the main stream.
export interface Link {
  state: "connecting" | "live" | "lost";
  since: number;
  why?: string;
  retryAt?: number;
}

export const link = store<Link>({ state: "connecting", since: Date.now() });

// The waits before streams are opened again, in milliseconds.
const firstWait = 500;
const maxWait = 15_000;

// mainQuery is what the main stream asks for: topics every two seconds at most, and the
// status without the endpoints of each service.
const mainQuery = "interval=2s&brief";

// hiddenFor is how long a page may be hidden before its streams are closed.
const hiddenFor = 20_000;

interface Entry {
  topic: Topic;
  query: string;
  users: number;
  value: ReturnType<typeof store<Live<unknown>>>;
}

const entries = new Map<string, Entry>();
const streams = new Map<string, Stream>(); // by query; "": the main one

class Stream {
  private stop = new AbortController();
  private topics = "";
  private wait = firstWait;
  private wake: (() => void) | undefined;

  constructor(private readonly query: string) {}

  // follow opens the stream anew if it has to carry other topics.
  follow(topics: Topic[]) {
    const text = topics.sort().join(",");
    if (text === this.topics) return;
    this.topics = text;
    this.close();
    if (text) void this.run(this.stop.signal, text);
  }

  close() {
    this.stop.abort();
    this.stop = new AbortController();
  }

  retry() {
    this.wait = firstWait;
    this.wake?.();
  }

  private async run(signal: AbortSignal, topics: string) {
    while (!signal.aborted) {
      let why = "the node has closed the connection";
      try {
        await readEvents(`/v1/events?topics=${topics}&${this.query || mainQuery}`, this.handlers(signal, (reason) => (why = reason)), signal);
      } catch (err) {
        if (signal.aborted) return;
        if (err instanceof Refused) {
          const refused = refusal(err.response, err.body);
          if (refused.status === 401) return;
          why = refused.message;
          this.say({ error: why });
        } else why = "the node does not answer";
      }
      if (signal.aborted) return;
      const pause = this.wait * (0.75 + Math.random() / 2);
      this.wait = Math.min(maxWait, this.wait * 2);
      this.report({ state: "lost", since: lostSince(), why, retryAt: Date.now() + pause });
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, pause);
        this.wake = () => (clearTimeout(timer), resolve());
        signal.addEventListener("abort", this.wake, { once: true });
      });
    }
  }

  private handlers(signal: AbortSignal, ended: (why: string) => void) {
    return {
      open: () => this.report({ state: "live", since: Date.now() }),
      event: (name: string, data: string) => {
        if (signal.aborted) return;
        this.wait = firstWait;
        const message: unknown = JSON.parse(data);
        if (name === "end") ended(String((message as { reason?: string }).reason ?? "the node has ended the stream"));
        else entries.get(key(name, this.query))?.value.set({ data: message, at: Date.now() });
      },
    };
  }

  private say(value: Live<unknown>) {
    for (const e of entries.values()) if (e.query === this.query) e.value.set({ ...e.value.get(), ...value });
  }

  private report(state: Link) {
    if (this.query === "") link.set(state);
  }
}

const lostSince = () => (link.get().state === "lost" ? link.get().since : Date.now());
const key = (topic: string, query: string) => `${topic}?${query}`;

let planned = false;
let asleep = false;

// plan opens and closes streams once the views of this turn have said what they need.
function plan() {
  if (planned) return;
  planned = true;
  queueMicrotask(() => {
    planned = false;
    const wanted = new Map<string, Topic[]>();
    if (session.get() && !asleep) {
      for (const e of entries.values()) if (e.users > 0) wanted.set(e.query, [...(wanted.get(e.query) ?? []), e.topic]);
    }
    for (const query of wanted.keys()) if (!streams.has(query)) streams.set(query, new Stream(query));
    for (const [query, stream] of streams) {
      stream.follow(wanted.get(query) ?? []);
      if (!wanted.has(query)) streams.delete(query);
    }
    for (const [k, e] of entries) if (e.users === 0 && e.query !== "") entries.delete(k);
  });
}

session.listen(plan);

let sleep: ReturnType<typeof setTimeout> | undefined;
document.addEventListener("visibilitychange", () => {
  clearTimeout(sleep);
  if (document.hidden) {
    sleep = setTimeout(() => {
      asleep = true;
      plan();
    }, hiddenFor);
  } else if (asleep) {
    asleep = false;
    plan();
  } else retry();
});
addEventListener("online", retry);

// retry opens what is lost at once.
export function retry() {
  for (const s of streams.values()) s.retry();
}

// useLive returns the last value of a topic. query holds the parameters of the topic's own
// URL and interval; a topic with a query has a stream of its own.
export function useLive<K extends Topic>(topic: K, query: Record<string, string> = {}): Live<Topics[K]> {
  const text = queryText(query);
  const value = useMemo(() => entry(topic, text).value, [topic, text]);
  useEffect(() => {
    const e = entry(topic, text);
    e.users++;
    plan();
    return () => {
      e.users--;
      plan();
    };
  }, [topic, text]);
  return useStore(value) as Live<Topics[K]>;
}

const queryText = (query: Record<string, string>) => new URLSearchParams(Object.entries(query).filter(([, v]) => v !== "")).toString();

function entry(topic: Topic, query: string): Entry {
  let e = entries.get(key(topic, query));
  if (!e) entries.set(key(topic, query), (e = { topic, query, users: 0, value: store<Live<unknown>>({}) }));
  return e;
}

// useEvents calls heard for each message of a topic: for those that are parts, not states.
export function useEvents<K extends Topic>(topic: K, heard: (message: Topics[K]) => void, query: Record<string, string> = {}) {
  useLive(topic, query);
  const latest = useRef(heard);
  latest.current = heard;
  const text = queryText(query);
  useEffect(() => {
    const { value } = entry(topic, text);
    return value.listen(() => {
      const { data } = value.get();
      if (data !== undefined) latest.current(data as Topics[K]);
    });
  }, [topic, text]);
}

// useFetch loads something by itself, and again when one of the dependencies changes or
// reload is called.
export function useFetch<T>(load: (signal: AbortSignal) => Promise<T>, deps: unknown[]): Live<T> & { loading: boolean; reload(): void } {
  const [turn, setTurn] = useState(0);
  const [state, set] = useState<Live<T> & { loading: boolean }>({ loading: true });
  useEffect(() => {
    const stop = new AbortController();
    set((s) => ({ ...s, loading: true }));
    load(stop.signal).then(
      (data) => !stop.signal.aborted && set({ data, at: Date.now(), loading: false }),
      (err: unknown) => !stop.signal.aborted && set((s) => ({ ...s, error: err instanceof Error ? err.message : String(err), loading: false })),
    );
    return () => stop.abort();
  }, [...deps, turn]);
  return { ...state, reload: () => setTurn((n) => n + 1) };
}

// useEvery calls again and again while the page is shown, every so many milliseconds.
export function useEvery(interval: number, act: () => void) {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && latest.current(), interval);
    return () => clearInterval(timer);
  }, [interval]);
}

// useClock renders again every second, for what shows an age.
export function useClock(on = true): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    if (!on) return;
    const timer = setInterval(() => set(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [on]);
  return now;
}
