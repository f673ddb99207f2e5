// Kafka: the virtual clusters with their brokers, and what their clients ask for.
import { useState } from "preact/hooks";
import { count, latency, plural, rate, whole } from "../lib/format";
import { useEvery, useFetch, useLive } from "../lib/live";
import { Link, useQuery } from "../lib/router";
import { failureOf, segment } from "../lib/api";
import { measure, sum, windows, type Measured, type Series } from "../lib/telemetry";
import type { ClusterRate, VirtualBrokerStatus, VirtualClusterStatus } from "../lib/types";
import { Card, Command, Empty, Failed, Loading, Missing, Page, Panel, Segments, State, type Tone } from "../ui/parts";
import { last, Spark } from "../ui/spark";
import { Table, type Column } from "../ui/table";

export function Kafka() {
  const status = useLive("status");
  const traffic = useLive("traffic");
  const [query, set] = useQuery();
  const clusters = status.data?.virtualClusters ?? [];
  const chosen = clusters.find((c) => c.name === query.get("cluster")) ?? clusters[0];
  return (
    <Page title="Kafka" intro="Virtual clusters, and how long brokers and this proxy take for their requests.">
      {!status.data ? (
        status.error ? <Failed what="The status is not known" error={status.error} /> : <Loading lines={6} />
      ) : clusters.length === 0 ? (
        <Card title="No virtual cluster">
          <Empty title="No virtual cluster">Apply a PhysicalCluster and a VirtualCluster: clients then use its addresses. docs/kafka.md shows both.</Empty>
        </Card>
      ) : (
        <div class="stack">
          <Clusters list={clusters} rates={traffic.data?.virtualClusters ?? []} chosen={chosen!.name} choose={(c) => set({ cluster: c })} />
          <Requests key={chosen!.name} cluster={chosen!.name} />
        </div>
      )}
    </Page>
  );
}

function toneOf(c: VirtualClusterStatus): [Tone, string] {
  const brokers = (c.brokers ?? []).filter((b) => b.name !== "bootstrap");
  const bad = brokers.filter((b) => b.error).length;
  if (c.error) return ["error", c.error];
  if (bad > 0) return [bad === brokers.length ? "error" : "warning", `${bad} of ${plural(brokers.length, "broker")} ${bad === 1 ? "has" : "have"} an error`];
  return brokers.length > 0 ? ["ok", plural(brokers.length, "broker")] : ["idle", "no broker is known yet"];
}

function Clusters({ list, rates, chosen, choose }: { list: VirtualClusterStatus[]; rates: ClusterRate[]; chosen: string; choose: (name: string) => void }) {
  const [opened, open] = useState<string>();
  const of = new Map(rates.map((r) => [r.name, r]));
  const columns: Column<VirtualClusterStatus>[] = [
    { id: "name", title: "Virtual cluster", cell: (c) => c.name, sort: (c) => c.name },
    { id: "state", title: "State", cell: (c) => <State tone={toneOf(c)[0]}>{toneOf(c)[1]}</State>, sort: (c) => toneOf(c)[0], wide: true },
    { id: "physical", title: "Physical cluster", cell: (c) => c.physicalCluster, sort: (c) => c.physicalCluster, minor: true },
    { id: "open", title: "Open", cell: (c) => whole(c.connections), sort: (c) => c.connections, number: true },
    { id: "requests", title: "Requests/s", cell: (c) => count(of.get(c.name)?.requests), sort: (c) => of.get(c.name)?.requests ?? 0, number: true },
    { id: "errors", title: "Errors/s", cell: (c) => count(of.get(c.name)?.errors), sort: (c) => of.get(c.name)?.errors ?? 0, number: true },
    { id: "throttled", title: "Throttled/s", cell: (c) => count(of.get(c.name)?.throttled), sort: (c) => of.get(c.name)?.throttled ?? 0, number: true, minor: true },
    {
      id: "brokers",
      title: "",
      cell: (c) => (
        <button type="button" class="link" onClick={() => open(c.name)}>
          Brokers<span class="sr-only"> of {c.name}</span>
        </button>
      ),
    },
  ];
  const selected = list.find((c) => c.name === opened);
  return (
    <Card title="Virtual clusters" note={whole(list.length)} flush>
      <Table caption="Virtual clusters" columns={columns} rows={list} id={(c) => c.name} first="name" page={50} open={(c) => choose(c.name)} marked={(c) => list.length > 1 && c.name === chosen} />
      {selected && <Brokers of={selected} onClose={() => open(undefined)} />}
    </Card>
  );
}

function Brokers({ of: c, onClose }: { of: VirtualClusterStatus; onClose: () => void }) {
  const columns: Column<VirtualBrokerStatus>[] = [
    { id: "name", title: "Broker", cell: (b) => b.name, sort: (b) => b.name },
    { id: "endpoint", title: "For clients", cell: (b) => b.endpoint, code: true, sort: (b) => b.endpoint },
    { id: "address", title: "Behind it", cell: (b) => b.address || "–", code: true, sort: (b) => b.address },
    { id: "open", title: "Open", cell: (b) => whole(b.connections), number: true, sort: (b) => b.connections },
    { id: "error", title: "", cell: (b) => (b.error ? <State tone="error">{b.error}</State> : ""), wide: true },
  ];
  return (
    <Panel title={`Brokers of ${c.name}`} onClose={onClose}>
      {c.error && (
        <p class="breakable">
          <State tone="error">{c.error}</State>
        </p>
      )}
      <p>
        Filters: <span class="breakable">{(c.filters ?? []).join(", ") || "none"}</span>
      </p>
      {c.brokers?.length ? <Table caption="Brokers" columns={columns} rows={c.brokers} id={(b) => b.name} first="name" page={50} /> : <Empty title="No broker is known">They are found when the physical cluster answers.</Empty>}
      <p>
        <Link to={`/resources/VirtualCluster/${segment(c.name)}`}>Its resource and history</Link>
      </p>
    </Panel>
  );
}

const requests = "penstock_kafka_requests_total";
const errors = "penstock_kafka_errors_total";
const moved = "penstock_kafka_bytes_total";
const broker = "penstock_kafka_broker_duration_seconds";
const proxy = "penstock_kafka_proxy_duration_seconds";
const throttled = "penstock_kafka_throttled_total";
const denied = "penstock_kafka_denied_total";

interface ApiRow {
  api: string;
  requests: number;
  errors: number;
  in: number;
  out: number;
  broker: [number | null, number | null];
  proxy: [number | null, number | null];
}

// mean is the average of the values that there are.
function mean(s: Series | undefined): number {
  const values = (s?.values ?? []).filter((v): v is number => v !== null);
  return values.length > 0 ? values.reduce((a, b) => a + b, 0) / values.length : 0;
}

// recorded is measure, where metrics that no node has recorded yet are empty.
const recorded: typeof measure = (q, signal) =>
  measure(q, signal).catch((err: unknown) => {
    if (failureOf(err).message.includes("no such metric")) return { metrics: {}, missing: [] };
    throw err;
  });

function useRequests(cluster: string, window: string) {
  const w = windows[window === "2m" ? "15m" : window] ?? windows["15m"]!;
  const found = useFetch(
    async (signal) => {
      const where = { virtual_cluster: [cluster] };
      const [counts, times, direction, all, rest] = await Promise.all([
        recorded({ metrics: [requests, errors], by: ["api"], where, window: w }, signal),
        recorded({ metrics: [broker, proxy], by: ["api"], where, quantiles: [0.5, 0.99], window: { since: "2m", step: "1m" } }, signal),
        recorded({ metrics: [moved], by: ["api", "direction"], where, window: { since: "2m", step: "1m" } }, signal),
        recorded({ metrics: [broker, proxy], where, quantiles: [0.5, 0.99], window: w }, signal),
        recorded({ metrics: [throttled, denied], where, window: w }, signal),
      ]);
      return { rows: rowsOf(counts.metrics, times.metrics, direction.metrics[moved]), counts: counts.metrics, all: all.metrics, rest: rest.metrics, missing: counts.missing };
    },
    [cluster, window],
  );
  useEvery(10_000, found.reload);
  return found;
}

function rowsOf(counts: Record<string, Measured>, times: Record<string, Measured>, both?: Measured): ApiRow[] {
  const find = (m: Measured | undefined, ...labels: string[]) => m?.series.find((s) => labels.every((l, i) => s.labels[i] === l));
  const quantiles = (m: Measured | undefined, api: string): [number | null, number | null] => {
    const at = (q: number) => last(m?.quantiles[q]?.find((s) => s.labels[0] === api)?.values ?? []);
    return [at(0), at(1)];
  };
  const recent = (s: Series | undefined) => mean(s && { ...s, values: s.values.slice(-6) });
  return (counts[requests]?.series ?? []).map((s): ApiRow => {
    const api = s.labels[0] ?? "";
    return {
      api,
      requests: recent(s),
      errors: recent(find(counts[errors], api)),
      in: mean(find(both, api, "in")),
      out: mean(find(both, api, "out")),
      broker: quantiles(times[broker], api),
      proxy: quantiles(times[proxy], api),
    };
  });
}

function Requests({ cluster }: { cluster: string }) {
  const [query, set] = useQuery();
  const window = query.get("window") === "1h" ? "1h" : "15m";
  const found = useRequests(cluster, window);
  const d = found.data;
  const columns: Column<ApiRow>[] = [
    { id: "api", title: "API", cell: (r) => r.api, sort: (r) => r.api },
    { id: "requests", title: "Requests/s", cell: (r) => count(r.requests), sort: (r) => r.requests, number: true },
    { id: "errors", title: "Errors/s", cell: (r) => (r.errors > 0 ? <State tone="error">{count(r.errors)}</State> : "0"), sort: (r) => r.errors, number: true },
    { id: "b50", title: "Broker, half", cell: (r) => latency(r.broker[0]), sort: (r) => r.broker[0] ?? -1, number: true },
    { id: "b99", title: "99%", cell: (r) => latency(r.broker[1]), sort: (r) => r.broker[1] ?? -1, number: true },
    { id: "p50", title: "Proxy, half", cell: (r) => latency(r.proxy[0]), sort: (r) => r.proxy[0] ?? -1, number: true },
    { id: "p99", title: "99%", cell: (r) => latency(r.proxy[1]), sort: (r) => r.proxy[1] ?? -1, number: true },
    { id: "in", title: "In", cell: (r) => rate(r.in), sort: (r) => r.in, number: true, minor: true },
    { id: "out", title: "Out", cell: (r) => rate(r.out), sort: (r) => r.out, number: true, minor: true },
  ];
  const rates = (n: number) => `${count(n)}/s`;
  return (
    <>
      <section class="stack" aria-label={`Requests of ${cluster}`}>
        <div class="section-head">
          <h2>Requests of {cluster}</h2>
          <Segments
            label="Time shown"
            value={window}
            options={[
              ["15m", "15 minutes"],
              ["1h", "1 hour"],
            ]}
            onChange={(v) => set({ window: v === "15m" ? "" : v })}
          />
        </div>
        {d ? (
          <div class="tiles">
            <Tile title="Requests" value={rates(last(sum(d.counts[requests]?.series ?? [])) ?? 0)} line={sum(d.counts[requests]?.series ?? [])} show={rates} note="answered, or without an answer" />
            <Tile title="Errors" value={rates(last(sum(d.counts[errors]?.series ?? [])) ?? 0)} line={sum(d.counts[errors]?.series ?? [])} show={rates} note="responses with an error code" tone="error" />
            <Times title="Broker" m={d.all[broker]} note="until its response begins" />
            <Times title="Proxy" m={d.all[proxy]} note="the rest of the time" />
          </div>
        ) : found.error ? (
          <Failed what="The measurements are not known" error={found.error} retry={found.reload} />
        ) : (
          <Loading lines={3} />
        )}
      </section>
      {d && (
        <Card title="By API" note="of the last two minutes" flush>
          {d.rows.length > 0 ? <Table caption={`Requests of ${cluster} by API`} columns={columns} rows={d.rows} id={(r) => r.api} first="-requests" page={40} /> : <Empty title="No request in this time">They appear when a client uses the cluster's addresses.</Empty>}
          <div class="card-foot">
            <span>
              Throttled by brokers: {rates(last(sum(d.rest[throttled]?.series ?? [])) ?? 0)} · connections ended by a filter: {rates(last(sum(d.rest[denied]?.series ?? [])) ?? 0)}
            </span>
            <Missing nodes={d.missing} />
            <Command text="penstock top" />
          </div>
        </Card>
      )}
    </>
  );
}

function Tile({ title, value, line, show, note, tone }: { title: string; value: string; line: (number | null)[]; show: (v: number) => string; note: string; tone?: string }) {
  return (
    <div class="card tile">
      <h3>{title}</h3>
      <span class="value">{value}</span>
      <p class="legend">{note}</p>
      <Spark title={title} lines={[{ name: title, values: line, tone }]} show={show} />
    </div>
  );
}

function Times({ title, m, note }: { title: string; m?: Measured; note: string }) {
  const half = m?.quantiles[0]?.[0]?.values ?? [];
  const most = m?.quantiles[1]?.[0]?.values ?? [];
  return (
    <div class="card tile">
      <h3>{title}</h3>
      <span class="value">{latency(last(most))}</span>
      <p class="legend">
        <span class="line-1">
          <span>half within {latency(last(half))}</span>
        </span>
        <span class="line-2 mark-2">
          <span>99% {note}</span>
        </span>
      </p>
      <Spark
        title={`${title}, seconds`}
        lines={[
          { name: "half", values: half },
          { name: "99%", values: most },
        ]}
        show={latency}
      />
    </div>
  );
}

