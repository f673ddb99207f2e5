// The nodes: who leads, how far each is, what it holds and how evenly its loops work.
import { useState } from "preact/hooks";
import { bytes, count, duration, goDuration, rate, whole } from "../lib/format";
import { useEvery, useFetch } from "../lib/live";
import { measure, windows } from "../lib/telemetry";
import type { NodeStatus, Status, TopSample } from "../lib/types";
import { last } from "../ui/spark";
import { Bar, Card, State, type Tone } from "../ui/parts";
import { Table, type Column } from "../ui/table";

interface Use {
  memory?: number; // resident, bytes
  budget?: number;
  used?: number; // of the budget
  loops: number[]; // connections of each
}

const memory = "process_resident_memory_bytes";
const budget = "penstock_memory_budget_bytes";
const used = "penstock_memory_budget_used_bytes";
const loops = "penstock_loop_connections";

function useUse() {
  const found = useFetch(async (signal) => {
    const window = { since: "30s", step: "10s" };
    const [one, each] = await Promise.all([
      measure({ metrics: [memory, budget, used], by: ["node"], window }, signal),
      measure({ metrics: [loops], by: ["node", "loop"], window: windows["2m"]! }, signal),
    ]);
    const nodes = new Map<string, Use>();
    const of = (name: string) => nodes.get(name) ?? nodes.set(name, { loops: [] }).get(name)!;
    for (const [metric, field] of [[memory, "memory"], [budget, "budget"], [used, "used"]] as const) {
      for (const s of one.metrics[metric]?.series ?? []) of(s.labels[0] ?? "")[field] = last(s.values) ?? undefined;
    }
    for (const s of each.metrics[loops]?.series ?? []) of(s.labels[0] ?? "").loops.push(last(s.values) ?? 0);
    return nodes;
  }, []);
  useEvery(10_000, found.reload);
  const [kept, keep] = useState<Map<string, Use>>();
  if (found.data && found.data !== kept) keep(found.data);
  return found.data ?? kept;
}

export function Nodes({ status, traffic }: { status: Status; traffic?: TopSample }) {
  const use = useUse();
  const rates = new Map((traffic?.nodes ?? []).map((n) => [n.name, n]));
  const columns: Column<NodeStatus>[] = [
    { id: "name", title: "Node", cell: (n) => <Name of={n} leader={n.name === status.leader} />, sort: (n) => n.name },
    { id: "state", title: "State", cell: (n) => <State tone={nodeTone(n.state)}>{n.state}</State>, sort: (n) => n.state },
    { id: "lag", title: "Lag", cell: (n) => (n.state === "unreachable" ? "–" : whole(n.lag)), sort: (n) => n.lag, number: true },
    { id: "connections", title: "Open", cell: (n) => whole(n.connections), sort: (n) => n.connections, number: true },
    { id: "rate", title: "New/s", cell: (n) => count(rates.get(n.name)?.newRate), sort: (n) => rates.get(n.name)?.newRate ?? 0, number: true },
    { id: "in", title: "In", cell: (n) => rate(rates.get(n.name)?.inRate), sort: (n) => rates.get(n.name)?.inRate ?? 0, number: true, minor: true },
    { id: "out", title: "Out", cell: (n) => rate(rates.get(n.name)?.outRate), sort: (n) => rates.get(n.name)?.outRate ?? 0, number: true, minor: true },
    { id: "memory", title: "Memory", cell: (n) => <Memory use={use?.get(n.name)} />, sort: (n) => use?.get(n.name)?.memory ?? 0, number: true },
    { id: "loops", title: "Loops", cell: (n) => <Loops of={use?.get(n.name)?.loops ?? []} />, minor: true },
    { id: "uptime", title: "Up", cell: (n) => uptime(n.uptime), sort: (n) => goDuration(n.uptime) ?? 0, number: true },
    { id: "version", title: "Version", cell: (n) => n.version, sort: (n) => n.version, code: true, minor: true },
  ];
  return (
    <Card title="Nodes" note={`${status.nodes?.length ?? 0}`} flush>
      <Table caption="Nodes of the cluster" columns={columns} rows={status.nodes ?? []} id={(n) => n.id || n.name} first="name" />
    </Card>
  );
}

function Name({ of: n, leader }: { of: NodeStatus; leader: boolean }) {
  return (
    <span class="node">
      <span class="strong">{n.name}</span>
      <span class={leader ? "tag leader" : "tag"}>{leader ? "leader" : n.role}</span>
    </span>
  );
}

export function nodeTone(state: string): Tone {
  switch (state) {
    case "serving":
      return "ok";
    case "unreachable":
      return "error";
    case "draining":
    case "drained":
    case "stopping":
      return "warning";
  }
  return "info";
}

function Memory({ use }: { use?: Use }) {
  if (use?.memory === undefined) return <>–</>;
  const share = use.budget ? (use.used ?? 0) / use.budget : 0;
  return (
    <span class="memory" title={use.budget ? `${bytes(use.used)} of the budget of ${bytes(use.budget)} in use` : undefined}>
      {use.budget && <Bar share={share} tone={share > 0.9 ? "error" : share > 0.7 ? "warning" : "info"} />}
      {bytes(use.memory)}
      {use.budget && <span class="sr-only">, {Math.round(share * 100)}% of its budget in use</span>}
    </span>
  );
}

// Loops shows the connections of each event loop: they should be about equal.
function Loops({ of: list }: { of: number[] }) {
  if (list.length === 0) return <>–</>;
  const top = Math.max(1, ...list);
  const words = list.length > 8 ? `${list.length} loops, ${Math.min(...list)} to ${Math.max(...list)}` : list.join(" / ");
  return (
    <span class="loops" title={`Connections of each loop: ${words}`}>
      <span class="loop-bars" aria-hidden="true">
        {list.slice(0, 16).map((n, i) => (
          <i key={i} style={{ height: `${Math.max(8, (n / top) * 100)}%` }} />
        ))}
      </span>
      <span class="sr-only">Connections of each loop: </span>
      <span>{words}</span>
    </span>
  );
}

const uptime = (text: string) => {
  const ns = goDuration(text);
  return ns === undefined ? text || "–" : duration(ns);
};
