// Permissions and limits: what is allowed, what was refused, and how full the budgets are.
import { get } from "../lib/api";
import { count, duration, whole } from "../lib/format";
import { useEvery, useFetch, useLive } from "../lib/live";
import { Link } from "../lib/router";
import { segment } from "../lib/api";
import type { BudgetUse, LimitUse, Limits, Permissions as Counted } from "../lib/types";
import { Bar, Card, Command, Empty, Failed, Loading, Missing, Page, State } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { Peer } from "../ui/text";
import { useResources, type Resource } from "./resources";

// useEach asks every node, since counters and budgets are each node's own.
function useEach<T>(path: string) {
  const { data: status } = useLive("status");
  const nodes = (status?.nodes ?? []).map((n) => n.name);
  const found = useFetch(
    async (signal) => {
      const answers: T[] = [];
      const missing: string[] = [];
      await Promise.all(
        nodes.map((node) =>
          get<T>(path, { node }, signal).then(
            (a) => void answers.push(a),
            (err: unknown) => void missing.push(`${node}: ${err instanceof Error ? err.message : String(err)}`),
          ),
        ),
      );
      return { answers, missing: missing.sort() };
    },
    [nodes.join(" ")],
  );
  useEvery(5000, found.reload);
  return nodes.length > 0 ? found : { ...found, data: undefined, error: undefined };
}

export function Permissions() {
  return (
    <Page title="Permissions and limits" intro="What TrafficPermissions deny and RateLimits hold back, counted since each node started.">
      <div class="stack">
        <Permitted />
        <Limited />
      </div>
    </Page>
  );
}

interface Row {
  name: string;
  spec?: Record<string, unknown>;
  denied: number;
  shadow: number;
  kafka: number;
}

function Permitted() {
  const found = useResources("TrafficPermission");
  const counts = useEach<Counted>("/v1/permissions");
  const rows = new Map<string, Row>();
  const row = (name: string) => rows.get(name) ?? rows.set(name, { name, denied: 0, shadow: 0, kafka: 0 }).get(name)!;
  for (const r of found.data ?? []) row(r.name).spec = r.spec;
  for (const a of counts.data?.answers ?? []) {
    for (const p of a.permissions ?? []) row(p.permission)[p.action === "shadowDeny" ? "shadow" : "denied"] += p.denied;
    for (const k of a.kafka ?? []) {
      row(k.permission)[k.shadow ? "shadow" : "denied"] += k.denied;
      row(k.permission).kafka += k.denied;
    }
  }
  const columns: Column<Row>[] = [
    { id: "name", title: "Permission", cell: (r) => (r.name ? <Link to={`/resources/TrafficPermission/${segment(r.name)}`}>{r.name}</Link> : <span class="muted">none allows it</span>), sort: (r) => r.name },
    { id: "about", title: "Destinations", cell: (r) => <Peer text={about(r.spec)} />, wide: true },
    { id: "denied", title: "Denied", cell: (r) => (r.denied > 0 ? <State tone="error">{count(r.denied)}</State> : "0"), sort: (r) => r.denied, number: true },
    { id: "shadow", title: "Would deny", cell: (r) => (r.shadow > 0 ? <State tone="warning">{count(r.shadow)}</State> : "0"), sort: (r) => r.shadow, number: true },
    { id: "kafka", title: "Of Kafka", cell: (r) => count(r.kafka), sort: (r) => r.kafka, number: true, minor: true },
  ];
  return (
    <Card title="Permissions" note={found.data && whole(found.data.length)} flush>
      {found.error && !found.data ? (
        <Failed what="Permissions are not known" error={found.error} retry={found.reload} />
      ) : !found.data ? (
        <Loading />
      ) : rows.size > 0 ? (
        <Table caption="Permissions" columns={columns} rows={[...rows.values()]} id={(r) => r.name} first="-denied" page={50} />
      ) : (
        <Empty title="No TrafficPermission">Everything is allowed. Apply a TrafficPermission to say who may reach a service; docs/permission.md has examples.</Empty>
      )}
      <div class="card-foot">
        <Missing nodes={counts.data?.missing} />
        <Command text="penstock get trafficpermissions" />
      </div>
    </Card>
  );
}

// about says what a permission does and for which destinations.
function about(spec: Resource["spec"]): string {
  if (!spec) return "";
  const { action, rules, to } = spec as { action?: string; rules?: { action: string }[]; to?: Record<string, unknown>[] };
  const acts = action ? [action] : [...new Set((rules ?? []).map((r) => r.action))];
  const where = (to ?? []).flatMap((d) => Object.entries(d).map(([k, v]) => `${k} ${Array.isArray(v) ? v.filter((x) => typeof x === "string").join(", ") || `(${v.length})` : typeof v === "object" ? "(…)" : String(v)}`));
  const text = `${acts.join(", ")}: ${where.join("; ") || "everything"}`;
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}

interface Use extends LimitUse {
  node: string;
}

function Limited() {
  const counts = useEach<Limits>("/v1/limits");
  const uses = (counts.data?.answers ?? []).flatMap((a) => (a.limits ?? []).map((l): Use => ({ ...l, node: a.node }))).sort((a, b) => a.limit.localeCompare(b.limit) || a.node.localeCompare(b.node));
  const names = [...new Set(uses.map((u) => u.limit))];
  const total = (u: Use[], field: "allowed" | "refused" | "queued" | "paced") => u.reduce((n, x) => n + (x.of ?? []).reduce((m, d) => m + d[field], 0), 0);
  const rows = names.map((name) => ({ name, uses: uses.filter((u) => u.limit === name) }));
  type Line = (typeof rows)[number];
  const columns: Column<Line>[] = [
    { id: "name", title: "Limit", cell: (r) => <Link to={`/resources/RateLimit/${segment(r.name)}`}>{r.name}</Link>, sort: (r) => r.name },
    { id: "by", title: "For each", cell: (r) => r.uses[0]!.by, sort: (r) => r.uses[0]!.by },
    { id: "of", title: "Of", cell: (r) => [...new Set(r.uses.flatMap((u) => (u.of ?? []).map((d) => d.of)))].join(", "), wide: true, minor: true },
    { id: "allowed", title: "Allowed", cell: (r) => count(total(r.uses, "allowed")), sort: (r) => total(r.uses, "allowed"), number: true },
    { id: "refused", title: "Refused", cell: (r) => (total(r.uses, "refused") > 0 ? <State tone="error">{count(total(r.uses, "refused"))}</State> : "0"), sort: (r) => total(r.uses, "refused"), number: true },
    { id: "waited", title: "Waited", cell: (r) => count(total(r.uses, "queued") + total(r.uses, "paced")), sort: (r) => total(r.uses, "queued") + total(r.uses, "paced"), number: true },
    { id: "keys", title: "Keys", cell: (r) => <Keys of={r.uses} />, number: true, minor: true },
  ];
  return (
    <>
      <Card title="Limits" note={counts.data && whole(names.length)} flush>
        {counts.error && !counts.data ? (
          <Failed what="Limits are not known" error={counts.error} retry={counts.reload} />
        ) : !counts.data ? (
          <Loading />
        ) : rows.length > 0 ? (
          <Table caption="Rate limits" columns={columns} rows={rows} id={(r) => r.name} first="-refused" page={50} />
        ) : (
          <Empty title="No RateLimit">Apply a RateLimit to bound connections, requests or bytes of each client; docs/limits.md has examples.</Empty>
        )}
        <div class="card-foot">
          <Missing nodes={counts.data?.missing} />
          <Command text="penstock get ratelimits" />
        </div>
      </Card>
      {uses.some((u) => u.fullest?.length) && <Fullest of={uses} />}
    </>
  );
}

function Keys({ of: uses }: { of: Use[] }) {
  const over = uses.reduce((n, u) => n + u.overflows, 0);
  const top = uses.reduce((a, b) => (b.keys > a.keys ? b : a));
  return over > 0 ? (
    <State tone="warning">
      {whole(top.keys)} of {whole(top.maxKeys)}, {count(over)} shared
    </State>
  ) : (
    <>
      {whole(top.keys)} of {whole(top.maxKeys)}
    </>
  );
}

type Budget = BudgetUse & { limit: string; node: string };

function Fullest({ of: uses }: { of: Use[] }) {
  const rows = uses.flatMap((u) => (u.fullest ?? []).map((b): Budget => ({ ...b, limit: u.limit, node: u.node })));
  const columns: Column<Budget>[] = [
    { id: "key", title: "Who", cell: (b) => (b.key ? <Peer text={b.key} /> : <span class="muted">without a name</span>), sort: (b) => b.key, code: true },
    { id: "limit", title: "Limit", cell: (b) => b.limit, sort: (b) => b.limit },
    { id: "of", title: "Of", cell: (b) => b.of, sort: (b) => b.of },
    { id: "node", title: "Node", cell: (b) => b.node, sort: (b) => b.node, minor: true },
    {
      id: "used",
      title: "Used",
      cell: (b) => (
        <>
          <Bar share={b.used / 100} tone={b.used > 100 ? "error" : b.used > 80 ? "warning" : "info"} /> {Math.round(b.used)}%
        </>
      ),
      sort: (b) => b.used,
      number: true,
    },
    { id: "wait", title: "Next waits", cell: (b) => (b.wait ? duration(b.wait) : "–"), sort: (b) => b.wait ?? 0, number: true, minor: true },
  ];
  return (
    <Card title="Fullest budgets" note="at most ten of each limit and node" flush>
      <Table caption="Budgets of which most is used" columns={columns} rows={rows} id={(b) => `${b.limit} ${b.node} ${b.of} ${b.key}`} first="-used" page={20} />
    </Card>
  );
}
