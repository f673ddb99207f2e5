// Connections: those that are open on all nodes, and those that have ended, by filter.
import { useState } from "preact/hooks";
import { bytes, clock, duration, whole } from "../lib/format";
import { useLive } from "../lib/live";
import { navigate } from "../lib/router";
import { segment } from "../lib/api";
import type { Connection } from "../lib/types";
import { FirstOf, Filters, Needs, useFilters, useKept, useMay, useNames } from "../ui/filters";
import { Card, Choice, Command, Empty, Failed, Loading, Missing, Page, Segments, State, type Tone } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { Peer } from "../ui/text";
import { CloseConnections, type ConnectionFilter } from "./connection-close";
import { quote } from "./flow-decision";

const filterNames = ["listener", "service", "endpoint", "client", "who", "node"];
const steps = ["200", "1000", "5000"];

export function Connections() {
  const filters = useFilters([...filterNames, "reason", "show", "sort", "limit"]);
  const names = useNames();
  const [closing, setClosing] = useState(false);
  const operator = useMay("operator");
  const [said, say] = useState("");
  const { show = "", sort = "", limit = "", reason = "", ...filter } = filters.settled;
  const ended = show === "ended" || show === "failures";
  const most = steps.includes(limit) ? limit : steps[0]!;
  const query: Record<string, string> = { ...filter, sort, limit: most, interval: "2s" };
  if (ended) Object.assign(query, { ended: "true", reason });
  if (show === "failures") query.failures = "true";
  const live = useKept(useLive("connections", query));
  const rows = live.data?.connections ?? [];
  const total = live.data?.total ?? 0;
  const filtered = filterNames.some((n) => filter[n]);
  const next = steps[steps.indexOf(most) + 1];
  return (
    <Page
      title="Connections"
      intro="What clients have open on all nodes, and how the last ones ended."
      actions={
        operator &&
        !ended &&
        filtered && (
          <button type="button" class="danger" disabled={total === 0 || live.waiting} onClick={() => setClosing(true)}>
            Close these…
          </button>
        )
      }
    >
      <Card
        title={ended ? (show === "failures" ? "Failures" : "Ended connections") : "Open connections"}
        note={live.data && whole(total)}
        flush
        actions={
          <Segments
            label="Connections shown"
            value={filters.now.show || "open"}
            options={[
              ["open", "Open"],
              ["ended", "Ended"],
              ["failures", "Failures"],
            ]}
            onChange={(v) => filters.set({ show: v === "open" ? "" : v, reason: "", sort: "" })}
          />
        }
      >
        <Filters
          label="Filter connections"
          filters={filters}
          names={[...filterNames, "reason"]}
          fields={[
            { name: "client", label: "Client", placeholder: "address or network" },
            { name: "who", label: "Who", placeholder: "server name, identity, user" },
            { name: "listener", label: "Listener", list: names.listeners },
            { name: "service", label: "Service", list: names.services },
            { name: "endpoint", label: "Endpoint", placeholder: "address" },
            { name: "node", label: "Node", list: names.nodes },
            ...(ended ? [{ name: "reason", label: "Reason", placeholder: "connect_refused" }] : []),
          ]}
        >
          <Choice
            label="First"
            value={filters.now.sort ?? ""}
            options={[
              ["", ended ? "latest" : "newest"],
              ["bytes", "most bytes"],
              ["age", ended ? "longest" : "oldest"],
              ...(ended ? [] : ([["idle", "longest idle"]] as [string, string][])),
            ]}
            onChange={(v) => filters.set({ sort: v })}
          />
        </Filters>
        <p role="status" class={said ? "said" : "sr-only"}>
          {said}
        </p>
        {live.error ? (
          <Failed what="Connections are not known" error={live.error} />
        ) : !live.data ? (
          <Loading lines={6} />
        ) : rows.length === 0 ? (
          <None ended={ended} filtered={filtered || reason !== ""} />
        ) : (
          <Table caption={ended ? "Connections that have ended" : "Open connections"} columns={columns(ended, rows.length === total)} rows={rows} id={(c) => `${c.node} ${c.id}`} page={200} open={(c) => navigate(address(c))} />
        )}
        <FirstOf shown={rows.length} of={total} order={orders[sort] ?? "newest"}>
          {next && (
            <button type="button" onClick={() => filters.set({ limit: next })}>
              Show {whole(Number(next))}
            </button>
          )}
        </FirstOf>
        <div class="card-foot">
          <Missing nodes={live.data?.missing} />
          <Command text={command(filter, ended, show, reason)} />
          {!ended && <Needs role="operator" what="Closing connections" />}
        </div>
      </Card>
      {closing && <CloseConnections filter={filter as ConnectionFilter} total={total} onClose={() => setClosing(false)} done={say} />}
    </Page>
  );
}

const orders: Record<string, string> = { bytes: "largest", age: "longest", idle: "most idle" };

export const address = (c: Connection) => `/connections/${segment(c.node ?? "")}/${c.id}`;

function None({ ended, filtered }: { ended: boolean; filtered: boolean }) {
  if (filtered) return <Empty title="No connection matches">Client is an IP address or a network such as 10.1.0.0/16; the other filters match whole names.</Empty>;
  return ended ? (
    <Empty title="Nothing has ended yet">Each node remembers its last 4096 failures and the last 4096 connections that ended as they should.</Empty>
  ) : (
    <Empty title="No connection is open">They appear here when a client connects to a listener.</Empty>
  );
}

// who is the name that a client goes by.
export const who = (c: Connection) => c.identity || c.user || c.clientID || c.sni || "";

export function ending(reason: string): Tone {
  return ["client_fin", "upstream_fin", "drained", "idle_timeout", "max_age"].includes(reason) ? "idle" : "error";
}

// columns sort in the browser only if it has all rows.
function columns(ended: boolean, complete: boolean): Column<Connection>[] {
  const all: (Column<Connection> | false)[] = [
    { id: "client", title: "Client", cell: (c) => c.client, sort: (c) => c.client, code: true },
    { id: "who", title: "Who", cell: (c) => <Peer text={who(c)} />, sort: who, wide: true },
    { id: "listener", title: "Listener", cell: (c) => c.listener, sort: (c) => c.listener, minor: true },
    { id: "service", title: "Service", cell: (c) => c.service || "–", sort: (c) => c.service ?? "" },
    { id: "endpoint", title: "Endpoint", cell: (c) => c.endpoint || (ended ? "–" : c.phase), sort: (c) => c.endpoint ?? "", code: true, minor: true },
    ended && { id: "reason", title: "Ended", cell: (c) => <State tone={ending(c.reason ?? "")}>{c.reason}</State>, sort: (c) => c.reason ?? "" },
    { id: "in", title: "In", cell: (c) => bytes(c.bytesIn), sort: (c) => c.bytesIn, number: true },
    { id: "out", title: "Out", cell: (c) => bytes(c.bytesOut), sort: (c) => c.bytesOut, number: true },
    { id: "age", title: ended ? "Lasted" : "Open for", cell: (c) => duration(c.age), sort: (c) => c.age, number: true },
    ended
      ? { id: "at", title: "At", cell: (c) => clock(c.ended ?? ""), sort: (c) => c.ended ?? "", number: true, minor: true }
      : { id: "idle", title: "Idle", cell: (c) => duration(c.idle), sort: (c) => c.idle, number: true, minor: true },
    { id: "node", title: "Node", cell: (c) => c.node, sort: (c) => c.node ?? "", minor: true },
  ];
  return all.filter((c) => c !== false).map((c) => (complete ? c : { ...c, sort: undefined }));
}

function command(filter: Record<string, string>, ended: boolean, show: string, reason: string): string {
  const flags = Object.entries(filter).filter(([, v]) => v).map(([n, v]) => ` --${n} ${quote(v)}`);
  return `penstock connections${flags.join("")}${show === "failures" ? " --failures" : ended && !reason ? " --ended" : ""}${reason ? ` --reason ${quote(reason)}` : ""}`;
}
