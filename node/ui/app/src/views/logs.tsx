// Logs: the lines of all nodes, the last ones and those that come.
import { useEffect, useRef, useState } from "preact/hooks";
import { whole } from "../lib/format";
import { useEvents, useLive } from "../lib/live";
import type { LogEntry, LogsItem } from "../lib/types";
import { Filters, useFilters, useNames } from "../ui/filters";
import { Card, Choice, Command, Empty, Failed, Loading, Missing, Page, Segments, State } from "../ui/parts";
import { quote } from "./flow-decision";
import { LogTable } from "./logs-table";

const names = ["level", "text", "listener", "service", "reason", "connection", "node", "about", "since"];

// most is how many lines the page keeps; the oldest go first.
const most = 1000;

interface Kept {
  lines: LogEntry[]; // the newest first
  known: Set<string>;
  lost: number;
  dropped: number; // lines that came and that the page forgot
}

const none = (): Kept => ({ lines: [], known: new Set(), lost: 0, dropped: 0 });
const keyOf = (l: LogEntry) => `${l.at} ${l.node} ${l.message} ${(l.attrs ?? []).map((a) => `${a.key}=${a.value}`).join(" ")}`;

// add puts the lines of a part into those that are kept. A stream that is opened anew
// repeats lines, so known ones are left out.
function add(kept: Kept, item: LogsItem): Kept {
  const fresh = (item.entries ?? []).filter((l) => !kept.known.has(keyOf(l)));
  if (fresh.length === 0 && !item.lost) return kept;
  const all = [...fresh.reverse(), ...kept.lines];
  const lines = all.slice(0, most);
  return { lines, known: new Set(lines.map(keyOf)), lost: kept.lost + (item.lost ?? 0), dropped: kept.dropped + all.length - lines.length };
}

export function Logs() {
  const filters = useFilters(names);
  const known = useNames();
  const { about = "", ...settled } = filters.settled;
  const query: Record<string, string> = { ...settled, since: settled.since || "15m", limit: "500" };
  if (about) query[about] = "true";
  const text = JSON.stringify(query);
  const [follow, setFollow] = useState(true);
  const [shown, show] = useState<Kept>(none);
  const kept = useRef<Kept>(none());
  const [missing, setMissing] = useState<string[]>([]);
  useEffect(() => {
    kept.current = none();
    show(kept.current);
    setMissing([]);
  }, [text]);
  useEvents(
    "logs",
    (item) => {
      kept.current = add(kept.current, item);
      if (item.missing) setMissing(item.missing);
      if (follow) show(kept.current);
    },
    query,
  );
  const live = useLive("logs", query);
  useEffect(() => {
    if (follow) show(kept.current);
  }, [follow]);
  const waiting = kept.current.lines.length + kept.current.dropped - shown.lines.length - shown.dropped;
  return (
    <Page
      title="Logs"
      intro="The lines that nodes remember, of connections and their own, and those that come."
      actions={
        <button type="button" aria-pressed={!follow} onClick={() => setFollow(!follow)}>
          {follow ? "Pause" : waiting > 0 ? `Follow (${whole(waiting)} new)` : "Follow"}
        </button>
      }
    >
      <Card
        title="Lines"
        note={`the newest first${follow ? "" : ", paused"}`}
        flush
        actions={
          <Segments
            label="Lines shown"
            value={filters.now.about || "all"}
            options={[
              ["all", "All"],
              ["access", "Connections"],
              ["own", "Nodes"],
            ]}
            onChange={(v) => filters.set({ about: v === "all" ? "" : v })}
          />
        }
      >
        <Filters
          label="Filter lines"
          filters={filters}
          fields={[
            { name: "text", label: "Text", placeholder: "in the message or a value" },
            { name: "listener", label: "Listener", list: known.listeners },
            { name: "service", label: "Service", list: known.services },
            { name: "reason", label: "Reason", placeholder: "connect_refused" },
            { name: "connection", label: "Connection", placeholder: "ID or NODE/ID" },
            { name: "node", label: "Node", list: known.nodes },
          ]}
        >
          <Choice
            label="At least"
            value={filters.now.level ?? ""}
            options={[
              ["", "any level"],
              ["info", "info"],
              ["warn", "warn"],
              ["error", "error"],
            ]}
            onChange={(v) => filters.set({ level: v })}
          />
          <Choice
            label="Since"
            value={filters.now.since ?? ""}
            options={[
              ["", "15 minutes"],
              ["1m", "1 minute"],
              ["1h", "1 hour"],
              ["24h", "1 day"],
            ]}
            onChange={(v) => filters.set({ since: v })}
          />
        </Filters>
        {live.error ? (
          <Failed what="The logs are not known" error={live.error} />
        ) : shown.lines.length > 0 ? (
          <LogTable lines={shown.lines} caption="Lines of the logs, the newest first" />
        ) : live.data ? (
          <Empty title="No line matches">Nodes remember a part of their lines. --access-log says whether connections get one.</Empty>
        ) : (
          <Loading lines={8} />
        )}
        <div class="card-foot">
          {shown.dropped > 0 && <State tone="info">The last {whole(most)} lines; older ones are not shown</State>}
          {shown.lost > 0 && <State tone="warning">Nodes forgot {whole(shown.lost)} lines before they were read</State>}
          <Missing nodes={missing} />
          <Command text={command(settled, about)} />
        </div>
      </Card>
    </Page>
  );
}

function command(filter: Record<string, string>, about: string): string {
  const flags = Object.entries(filter).filter(([, v]) => v).map(([n, v]) => ` --${n} ${quote(v)}`);
  return `penstock logs${flags.join("")}${about ? ` --${about}` : ""} --follow`;
}
