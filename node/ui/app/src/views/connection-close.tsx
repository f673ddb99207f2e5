// Closing connections, after a question: one, or those of a filter, at once or over a while.
import { useState } from "preact/hooks";
import { post } from "../lib/api";
import { plural } from "../lib/format";
import type { CloseConnectionsRequest, ClosedConnections } from "../lib/types";
import { Choice, Confirm } from "../ui/parts";
import { Peer } from "../ui/text";

export type ConnectionFilter = Pick<CloseConnectionsRequest, "node" | "listener" | "service" | "endpoint" | "client" | "who" | "id">;

const windows: [string, string][] = [
  ["0", "at once"],
  ["10", "over 10 seconds"],
  ["60", "over a minute"],
  ["300", "over 5 minutes"],
  ["1800", "over 30 minutes"],
];

const labels: [keyof ConnectionFilter, string][] = [
  ["client", "client"],
  ["who", "who"],
  ["listener", "listener"],
  ["service", "service"],
  ["endpoint", "endpoint"],
  ["node", "node"],
];

export function CloseConnections({ filter, total, one, onClose, done }: { filter: ConnectionFilter; total: number; one?: boolean; onClose: () => void; done: (said: string) => void }) {
  const [over, setOver] = useState(one ? "0" : "60");
  const act = async () => {
    const body: CloseConnectionsRequest = { over: Number(over) * 1e9 };
    for (const [name, value] of Object.entries(filter)) if (value) Object.assign(body, { [name]: value });
    const r = await post<ClosedConnections>("/v1/connections/close", body);
    const missing = r.missing?.length ? `; no answer: ${r.missing.join("; ")}` : "";
    done(r.closing === 0 ? `Nothing to close: it has ended already${missing}` : `Closing ${plural(r.closing, "connection")} ${windows.find(([v]) => v === over)![1]}${missing}`);
  };
  const drain = over !== "0";
  return (
    <Confirm title={one ? "Close this connection?" : `Close ${plural(total, "connection")}?`} word={one ? "Close it" : drain ? "Drain" : "Close all"} danger act={act} onClose={onClose}>
      <p>{one ? "The client sees its connection end. It may connect again at once." : "The clients of all open connections of this filter see them end, new ones since then included. They may connect again at once."}</p>
      <dl class="facts">
        {labels.map(([name, label]) =>
          filter[name] ? (
            <div key={name}>
              <dt>{label}</dt>
              <dd class="breakable">
                <Peer text={String(filter[name])} />
              </dd>
            </div>
          ) : null,
        )}
      </dl>
      <Choice label="When" value={over} options={windows} onChange={setOver} />
      <p class="muted note">Where a protocol has a moment that is safe, as between two requests of HTTP or Kafka, the connection ends there.</p>
    </Confirm>
  );
}
