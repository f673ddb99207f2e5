// Overview: what is wrong now, then the traffic, the nodes, the listeners and the services.
import { useMemo } from "preact/hooks";
import { count, whole } from "../lib/format";
import { useLive } from "../lib/live";
import { Link } from "../lib/router";
import type { ListenerStatus, Problem, Status, TopSample } from "../lib/types";
import { Card, Command, Empty, Failed, Loading, Missing, Page, State } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { Nodes } from "./overview-nodes";
import { Services } from "./overview-services";
import { Traffic } from "./overview-traffic";

export function Overview() {
  const problems = useLive("problems");
  const status = useLive("status");
  const traffic = useLive("traffic");
  return (
    <Page title="Overview" intro={status.data && <Summary status={status.data} traffic={traffic.data} />}>
      <div class="stack">
        <Card title="What is wrong now">
          {problems.data ? <Problems list={problems.data.problems ?? []} /> : problems.error ? <Failed what="Problems are not known" error={problems.error} /> : <Loading lines={2} />}
          <Missing nodes={problems.data?.missing} />
        </Card>
        <Traffic />
        {status.data ? (
          <>
            <Nodes status={status.data} traffic={traffic.data} />
            <Listeners list={status.data.listeners ?? []} />
            <Services list={status.data.services ?? []} flows={traffic.data?.flows ?? []} />
          </>
        ) : status.error ? (
          <Failed what="The status is not known" error={status.error} />
        ) : (
          <Loading lines={8} />
        )}
      </div>
    </Page>
  );
}

function Summary({ status: s, traffic: t }: { status: Status; traffic?: TopSample }) {
  const up = (s.nodes ?? []).filter((n) => n.state === "serving").length;
  return (
    <>
      {up} of {s.nodes?.length ?? 0} nodes serve
      {s.leader ? `, ${s.leader} leads` : ", without a leader"}
      {t && ` · ${count(t.connections)} connections open`}
      {s.alone && <span class="alone-note"> · {s.alone}</span>}
    </>
  );
}

function Problems({ list }: { list: Problem[] }) {
  if (list.length === 0) {
    return (
      <p class="all-well">
        <State tone="ok">Nothing: all nodes, listeners and services work.</State>
      </p>
    );
  }
  return (
    <ul class="problems">
      {list.map((p) => (
        <li key={`${p.about} ${p.text}`}>
          <State tone={p.severity === "error" ? "error" : "warning"}>{p.severity === "error" ? "Error" : "Warning"}</State>
          <span class="about breakable">{p.about}</span>
          <span class="breakable">{p.text}</span>
          {p.command && <Command text={p.command} />}
        </li>
      ))}
    </ul>
  );
}

interface Group {
  name: string;
  address: string;
  up: number;
  of: number;
  connections: number;
  total: number;
  errors: string[];
}

// together makes one row of a listener's state on all nodes.
function together(list: ListenerStatus[]): Group[] {
  const groups = new Map<string, Group & { addresses: Set<string> }>();
  for (const l of list) {
    let g = groups.get(l.name);
    if (!g) groups.set(l.name, (g = { name: l.name, address: "", up: 0, of: 0, connections: 0, total: 0, errors: [], addresses: new Set() }));
    g.of++;
    if (l.state === "listening") g.up++;
    g.connections += l.connections;
    g.total += l.total;
    g.addresses.add(l.address);
    if (l.error) g.errors.push(l.node ? `${l.node}: ${l.error}` : l.error);
  }
  return [...groups.values()].map((g) => ({ ...g, address: addresses([...g.addresses]) }));
}

// addresses shortens those that differ by the node alone to their port.
function addresses(all: string[]): string {
  const ports = new Set(all.map((a) => a.slice(a.lastIndexOf(":"))));
  return all.length === 1 ? all[0]! : ports.size === 1 ? [...ports][0]! : all.join(", ");
}

function Listeners({ list }: { list: ListenerStatus[] }) {
  const rows = useMemo(() => together(list), [list]);
  const columns: Column<Group>[] = [
    { id: "name", title: "Listener", cell: (g) => <Link to={`/flow?listener=${encodeURIComponent(g.name)}`}>{g.name}</Link>, sort: (g) => g.name },
    { id: "state", title: "State", cell: (g) => <State tone={g.up === g.of ? "ok" : g.up > 0 ? "warning" : "error"}>{g.up === g.of ? "listening" : g.of === 1 ? "failed" : `${g.up} of ${g.of} listen`}</State>, sort: (g) => g.up / g.of },
    { id: "address", title: "Address", cell: (g) => g.address, code: true, sort: (g) => g.address },
    { id: "connections", title: "Open", cell: (g) => whole(g.connections), sort: (g) => g.connections, number: true },
    { id: "total", title: "Accepted", cell: (g) => count(g.total), sort: (g) => g.total, number: true, minor: true },
    { id: "error", title: "Note", cell: (g) => g.errors.join("; "), wide: true },
  ];
  return (
    <Card title="Listeners" note={rows.length > 0 ? whole(rows.length) : undefined} flush>
      {rows.length > 0 ? <Table caption="Listeners" columns={columns} rows={rows} id={(g) => g.name} first="name" page={20} /> : <Empty title="No listeners">Apply a Listener, and clients can connect.</Empty>}
    </Card>
  );
}
