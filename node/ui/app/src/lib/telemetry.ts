// Queries of what nodes have measured in the last hour.
import { failureOf, get } from "./api";
import type { TelemetryResult } from "./types";

export interface Window {
  since: string;
  step: string;
}

export const windows: Record<string, Window> = {
  "2m": { since: "2m", step: "1s" },
  "15m": { since: "15m", step: "10s" },
  "1h": { since: "1h", step: "30s" },
};

export interface Series {
  labels: string[];
  values: (number | null)[];
}

// Measured are the groups of one metric. Counters are per second; quantiles have a list of
// groups each, in seconds.
export interface Measured {
  step: number; // seconds
  series: Series[];
  quantiles: Series[][];
}

interface Query {
  metrics: string[];
  by?: string[];
  where?: Record<string, string[]>;
  quantiles?: number[];
  window: Window;
}

// measure asks for metrics. What no node has recorded yet has no series.
export async function measure(q: Query, signal?: AbortSignal): Promise<Answer> {
  try {
    return await ask(q, signal);
  } catch (err) {
    if (failureOf(err).code !== "not_found") throw err;
    if (q.metrics.length === 1) return { metrics: {}, missing: [] };
    const each = await Promise.all(q.metrics.map((m) => measure({ ...q, metrics: [m] }, signal)));
    return { metrics: Object.assign({}, ...each.map((a) => a.metrics)) as Answer["metrics"], missing: each[0]?.missing ?? [] };
  }
}

interface Answer {
  metrics: Record<string, Measured>;
  missing: string[];
}

async function ask(q: Query, signal?: AbortSignal): Promise<Answer> {
  const result = await get<TelemetryResult>(
    "/v1/telemetry",
    { ...q.where, metric: q.metrics, by: q.by?.join(","), quantile: q.quantiles?.map(String), since: q.window.since, step: q.window.step },
    signal,
  );
  const metrics: Record<string, Measured> = {};
  for (const f of result.frames ?? []) {
    const step = f.step / 1e9;
    const groups = f.groups ?? [];
    metrics[f.metric] = {
      step,
      series: groups.map((g) => ({ labels: g.labels ?? [], values: (g.values ?? []).map((v) => (f.kind === "counter" ? v / step : v)) })),
      quantiles: (f.quantiles ?? []).map((one) => (one.groups ?? []).map((values, i) => ({ labels: groups[i]?.labels ?? [], values }))),
    };
  }
  return { metrics, missing: (result.nodes ?? []).filter((n) => n.error).map((n) => `${n.name}: ${n.error}`) };
}

// sum adds series up point by point, from the last one back.
export function sum(series: Series[]): (number | null)[] {
  const points = Math.max(0, ...series.map((s) => s.values.length));
  const total: (number | null)[] = Array.from({ length: points }, () => null);
  for (const s of series) {
    const shift = points - s.values.length;
    s.values.forEach((v, i) => {
      if (v !== null) total[shift + i] = (total[shift + i] ?? 0) + v;
    });
  }
  return total;
}
