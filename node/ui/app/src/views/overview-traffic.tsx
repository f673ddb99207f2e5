// The traffic of the cluster over the last minutes.
import type { ComponentChildren } from "preact";
import { count, latency, rate } from "../lib/format";
import { useEvery, useFetch } from "../lib/live";
import { useQuery } from "../lib/router";
import { measure, sum, windows, type Series } from "../lib/telemetry";
import { Card, Failed, Missing, Segments } from "../ui/parts";
import { last, Spark, type Line } from "../ui/spark";

// fine are results of connections that ended as they should (docs/metrics.md).
const fine = new Set(["client_fin", "upstream_fin", "drained", "idle_timeout", "max_age"]);

const opened = "penstock_routed_connections_total";
const moved = "penstock_bytes_total";
const ended = "penstock_connections_total";
const connected = "penstock_connect_duration_seconds";

function useTraffic(name: string) {
  const window = windows[name] ?? windows["2m"]!;
  const found = useFetch(
    async (signal) => {
      const coarse = name === "2m" ? { since: "2m", step: "10s" } : window; // latency is kept for every ten seconds
      const [a, b, c, d] = await Promise.all([
        measure({ metrics: [opened], window }, signal),
        measure({ metrics: [moved], by: ["direction"], window }, signal),
        measure({ metrics: [ended], by: ["result"], window }, signal),
        measure({ metrics: [connected], quantiles: [0.5, 0.99], window: coarse }, signal),
      ]);
      const directions = (name: string) => sum((b.metrics[moved]?.series ?? []).filter((s) => s.labels[0] === name));
      return {
        opened: sum(a.metrics[opened]?.series ?? []),
        in: directions("in"),
        out: directions("out"),
        errors: worst(c.metrics[ended]?.series ?? []),
        p50: d.metrics[connected]?.quantiles[0]?.[0]?.values ?? [],
        p99: d.metrics[connected]?.quantiles[1]?.[0]?.values ?? [],
        missing: a.missing,
      };
    },
    [name],
  );
  useEvery(name === "2m" ? 4000 : 10_000, found.reload);
  return found;
}

// worst are the results that are errors, the most frequent first, and the rest as one.
function worst(series: Series[]): Line[] {
  const bad = series.filter((s) => !fine.has(s.labels[0] ?? "") && s.values.some((v) => v));
  const total = (s: Series) => s.values.reduce<number>((n, v) => n + (v ?? 0), 0);
  bad.sort((a, b) => total(b) - total(a));
  const lines = bad.slice(0, 3).map((s): Line => ({ name: s.labels[0] ?? "", values: s.values }));
  if (bad.length > 3) lines.push({ name: `${bad.length - 3} more`, values: sum(bad.slice(3)) });
  return lines;
}

export function Traffic() {
  const [query, setQuery] = useQuery();
  const window = query.get("window") ?? "2m";
  const { data, error, reload } = useTraffic(window);
  const rates = (n: number) => `${count(n)}/s`;
  return (
    <section aria-labelledby="traffic">
      <div class="card-head">
        <h2 id="traffic">Traffic</h2>
        <div class="actions">
          <Segments
            label="Time shown"
            value={window}
            options={[
              ["2m", "2 min"],
              ["15m", "15 min"],
              ["1h", "1 h"],
            ]}
            onChange={(v) => setQuery({ window: v === "2m" ? "" : v })}
          />
        </div>
      </div>
      {error && !data ? (
        <Card title="Traffic is not known">
          <Failed what="No measurements" error={error} retry={reload} />
        </Card>
      ) : (
        <div class="tiles">
          <Tile title="New connections" value={rates(now(data?.opened))}>
            <Spark title="New connections" lines={[{ name: "per second", values: data?.opened ?? [] }]} show={rates} />
          </Tile>
          <Tile title="Bytes" value={rate(now(data?.out))} legend={["out", "in"]}>
            <Spark
              title="Bytes"
              lines={[
                { name: "out", values: data?.out ?? [] },
                { name: "in", values: data?.in ?? [] },
              ]}
              show={rate}
            />
          </Tile>
          <Tile title="Errors" value={rates((data?.errors ?? []).reduce((n, l) => n + now(l.values), 0))} legend={data?.errors.map((l) => l.name)} none="none in this time">
            <Spark title="Connections that ended badly" lines={data?.errors.length ? data.errors : [{ name: "errors", values: (data?.opened ?? []).map(() => 0) }]} show={rates} area={false} />
          </Tile>
          <Tile title="Connect latency" value={latency(last(data?.p99 ?? []))} legend={["p99", "p50"]}>
            <Spark
              title="Time to connect to an endpoint"
              lines={[
                { name: "p99", values: data?.p99 ?? [] },
                { name: "p50", values: data?.p50 ?? [] },
              ]}
              show={latency}
            />
          </Tile>
        </div>
      )}
      <Missing nodes={data?.missing} />
    </section>
  );
}

// now is the mean of the last points: a single second jumps.
function now(values: (number | null)[] | undefined): number {
  const recent = (values ?? []).slice(-5).filter((v): v is number => v !== null);
  return recent.length ? recent.reduce((a, b) => a + b, 0) / recent.length : 0;
}

function Tile({ title, value, legend, none, children }: { title: string; value: string; legend?: string[]; none?: string; children: ComponentChildren }) {
  return (
    <div class="card tile">
      <h3>{title}</h3>
      <p class="value">{value}</p>
      <p class="legend">
        {legend?.length
          ? legend.map((l, i) => (
              <span key={l} class={`line-${i + 1} mark-${i + 1}`}>
                <span>{l}</span>
              </span>
            ))
          : (none ?? "per second")}
      </p>
      {children}
    </div>
  );
}
