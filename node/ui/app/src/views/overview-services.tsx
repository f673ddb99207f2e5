// The services with the health of their endpoints.
import { useMemo, useState } from "preact/hooks";
import { count, plural, rate, whole } from "../lib/format";
import { Link } from "../lib/router";
import { get, segment } from "../lib/api";
import { useEvery, useFetch } from "../lib/live";
import type { Endpoint, Endpoints as List, Flow, ServiceStatus } from "../lib/types";
import { Card, Command, Empty, Failed, Field, Loading, Panel, Segments, State, type Tone } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { healthTone } from "./explain";
import { quote } from "./flow-decision";
import { tagText } from "./split";

interface Row {
  service: ServiceStatus;
  usable: number;
  of: number;
  newRate: number;
  bytes: number;
}

export function Services({ list, flows }: { list: ServiceStatus[]; flows: Flow[] }) {
  const [filter, setFilter] = useState("");
  const [only, setOnly] = useState("all");
  const [opened, open] = useState<string>();
  const rows = useMemo(() => {
    const rates = new Map<string, { newRate: number; bytes: number }>();
    for (const f of flows) {
      const r = rates.get(f.service) ?? { newRate: 0, bytes: 0 };
      rates.set(f.service, { newRate: r.newRate + f.newRate, bytes: r.bytes + f.inRate + f.outRate });
    }
    return list.map((service): Row => {
      const [usable, of] = counts(service);
      return { service, usable, of, ...(rates.get(service.name) ?? { newRate: 0, bytes: 0 }) };
    });
  }, [list, flows]);
  const broken = rows.filter((r) => r.usable < r.of || r.of === 0);
  const shown = (only === "broken" ? broken : rows).filter((r) => r.service.name.toLowerCase().includes(filter.toLowerCase()));
  const columns: Column<Row>[] = [
    { id: "name", title: "Service", cell: (r) => r.service.name, sort: (r) => r.service.name },
    { id: "state", title: "Endpoints", cell: (r) => <State tone={tone(r)}>{r.service.state}</State>, sort: (r) => (r.of === 0 ? -1 : r.usable / r.of) },
    { id: "connections", title: "Open", cell: (r) => whole(r.service.connections), sort: (r) => r.service.connections, number: true },
    { id: "rate", title: "New/s", cell: (r) => count(r.newRate), sort: (r) => r.newRate, number: true },
    { id: "bytes", title: "Bytes", cell: (r) => rate(r.bytes), sort: (r) => r.bytes, number: true },
    { id: "waiting", title: "Waiting", cell: (r) => whole(r.service.waiting ?? 0), sort: (r) => r.service.waiting ?? 0, number: true, minor: true },
  ];
  const selected = list.find((s) => s.name === opened);
  return (
    <Card
      title="Services"
      note={plural(list.length, "service")}
      flush
      actions={
        list.length > 0 && (
          <Segments
            label="Services shown"
            value={only}
            options={[
              ["all", "All"],
              ["broken", `With problems (${whole(broken.length)})`],
            ]}
            onChange={setOnly}
          />
        )
      }
    >
      {list.length === 0 ? (
        <Empty title="No services">Apply a Service with its endpoints.</Empty>
      ) : (
        <>
          {list.length > 12 && (
            <div class="filters inset">
              <Field label="Name" value={filter} onChange={setFilter} placeholder="any part of it" />
            </div>
          )}
          {shown.length > 0 ? <Table caption="Services" columns={columns} rows={shown} id={(r) => r.service.name} first="name" page={50} open={(r) => open(r.service.name)} /> : <Empty title={only === "broken" ? "No service has a problem" : "No such service"} />}
        </>
      )}
      {selected && <Endpoints of={selected} onClose={() => open(undefined)} />}
    </Card>
  );
}

// counts reads "2/3 usable".
function counts(s: ServiceStatus): [number, number] {
  const m = /^(\d+)\/(\d+)/.exec(s.state);
  return m ? [Number(m[1]), Number(m[2])] : [0, s.endpoints?.length ?? 0];
}

const tone = (r: Row): Tone => (r.of === 0 ? "idle" : r.usable === r.of ? "ok" : r.usable > 0 ? "warning" : "error");

function Endpoints({ of: s, onClose }: { of: ServiceStatus; onClose: () => void }) {
  const found = useFetch(async (signal) => (await get<List>(`/v1/endpoints/${segment(s.name)}`, {}, signal)) ?? [], [s.name]);
  useEvery(3000, found.reload);
  const columns: Column<Endpoint>[] = [
    { id: "address", title: "Endpoint", cell: (e) => e.address, sort: (e) => e.address, code: true },
    { id: "health", title: "Health", cell: (e) => <State tone={healthTone(e.health)}>{e.health}</State>, sort: (e) => e.health },
    { id: "connections", title: "Open here", cell: (e) => whole(e.connections), sort: (e) => e.connections, number: true },
    { id: "tags", title: "Tags", cell: (e) => tagText(e.tags), code: true },
    { id: "why", title: "Note", cell: (e) => about(e), wide: true },
  ];
  return (
    <Panel title={s.name} onClose={onClose}>
      <p>
        {s.state}, {plural(s.connections, "connection")} open
        {s.waiting ? `, ${s.waiting} waiting` : ""}. <Link to={`/flow?service=${encodeURIComponent(s.name)}`}>Show its flow</Link>
      </p>
      {found.error ? (
        <Failed what="The endpoints are not known" error={found.error} retry={found.reload} />
      ) : !found.data ? (
        <Loading />
      ) : found.data.length > 0 ? (
        <Table caption="Endpoints" columns={columns} rows={found.data} id={(e) => `${e.address} ${e.resolved}`} page={50} />
      ) : (
        <Empty title="No endpoints" />
      )}
      <Command text={`penstock get endpoints ${quote(s.name)}`} />
    </Panel>
  );
}

function about(e: Endpoint): string {
  return [e.state !== "ready" ? e.state : "", e.weight !== 1 ? `weight ${e.weight}` : "", e.backup ? "backup" : "", e.zone ? `zone ${e.zone}` : "", e.load ?? ""].filter(Boolean).join(", ");
}
