// One connection: what happened to it, why it went where it went, and its lines of the log.
import { useState } from "preact/hooks";
import { get, segment } from "../lib/api";
import { bytes, clock, duration, moment } from "../lib/format";
import { useEvery, useFetch } from "../lib/live";
import { Link } from "../lib/router";
import type { Connection as Row, Trace, TraceEvent } from "../lib/types";
import { useMay } from "../ui/filters";
import { Card, Command, Empty, Failed, Loading, Page, State } from "../ui/parts";
import { Peer } from "../ui/text";
import { CloseConnections } from "./connection-close";
import { ending, who } from "./connections";
import { Explained } from "./explain";
import { quote } from "./flow-decision";
import { LogTable } from "./logs-table";

export function Connection({ node = "", id = "" }: Record<string, string>) {
  const found = useFetch((signal) => get<Trace>(`/v1/connections/${segment(node)}/${segment(id)}`, {}, signal), [node, id]);
  const t = found.data;
  const open = !!t && !t.connection.reason;
  useEvery(2000, () => open && !found.loading && found.reload());
  const [closing, setClosing] = useState(false);
  const [said, say] = useState("");
  const operator = useMay("operator");
  return (
    <Page
      title={`Connection ${id}`}
      intro={
        <>
          <Link to="/connections">Connections</Link> · on node {node}
        </>
      }
      actions={
        open &&
        operator && (
          <button type="button" class="danger" onClick={() => setClosing(true)}>
            Close…
          </button>
        )
      }
    >
      <p role="status" class={said ? "said" : "sr-only"}>
        {said}
      </p>
      {t ? (
        <div class="grid">
          <Card title="What it is" wide>
            <Facts of={t.connection} />
          </Card>
          <Card title="Timeline">
            <Timeline events={t.events ?? []} />
          </Card>
          <Card title="The decision" note="what the node decides now about such a connection">
            {t.decision ? <Explained of={t.decision} /> : <Empty title="Nothing is known of it">The client has not said enough for a decision, or the node has forgotten it.</Empty>}
          </Card>
          <Card title="Log lines" wide flush>
            {t.logs?.length ? <LogTable lines={t.logs} caption="Lines of the log about this connection" /> : <Empty title="No line of the log is about it">An access log writes one when the connection ends; a node remembers its last lines.</Empty>}
          </Card>
          <div class="wide">
            <Command text={`penstock trace ${quote(`${node}/${id}`)}`} />
          </div>
        </div>
      ) : found.error ? (
        <Failed what="This connection is not known" error={found.error} retry={found.reload} />
      ) : (
        <Loading lines={8} />
      )}
      {closing && <CloseConnections one filter={{ node, id: Number(id) }} total={1} onClose={() => (setClosing(false), found.reload())} done={say} />}
    </Page>
  );
}

function Facts({ of: c }: { of: Row }) {
  const facts: [string, string | undefined, boolean?][] = [
    ["Client", c.client, true],
    ["Listener", c.listener],
    ["Service", c.service],
    ["Endpoint", c.endpoint, true],
    ["Server name", c.sni, true],
    ["TLS", c.tls],
    ["Identity", c.identity, true],
    ["User", c.user],
    ["Client ID", c.clientID],
    ["In", bytes(c.bytesIn)],
    ["Out", bytes(c.bytesOut)],
    [c.reason ? "Lasted" : "Open for", duration(c.age)],
    [c.reason ? "" : "Idle for", duration(c.idle)],
  ];
  return (
    <>
      <p class="outcome">
        {c.reason ? (
          <State tone={ending(c.reason)}>
            Ended {c.ended ? moment(c.ended) : ""}: {c.reason}
            {c.error && (
              <span class="breakable">
                {", "}
                <Peer text={c.error} />
              </span>
            )}
          </State>
        ) : (
          <State tone="ok">
            Open, {c.phase}
            {who(c) && ", "}
            {who(c) && <Peer text={who(c)} />}
          </State>
        )}
      </p>
      <dl class="facts many">
        {facts.map(([name, value, code]) =>
          name && value ? (
            <div key={name}>
              <dt>{name}</dt>
              <dd class={`breakable${code ? " code" : ""}`}>
                <Peer text={value} />
              </dd>
            </div>
          ) : null,
        )}
      </dl>
    </>
  );
}

const words: Record<string, string> = {
  accepted: "Accepted",
  identified: "Understood what the client wants",
  decided: "Decided where it goes",
  connecting: "Began to connect",
  connected: "Connected to the endpoint",
  firstByteIn: "First byte from the client",
  firstByteOut: "First byte from the endpoint",
  closed: "Closed",
};

function Timeline({ events }: { events: TraceEvent[] }) {
  if (events.length === 0) return <Empty title="No event is remembered" />;
  return (
    <ol class="timeline">
      {events.map((e, i) => (
        <li key={i}>
          <span class="after" title={`${moment(e.at)}`}>
            {i === 0 ? clock(e.at) : `+${duration(e.after)}`}
          </span>
          <span>
            <span class="strong">{words[e.name] ?? e.name}</span>
            {e.text && (
              <span class="muted breakable">
                {" "}
                <Peer text={e.text} />
              </span>
            )}
          </span>
        </li>
      ))}
    </ol>
  );
}
