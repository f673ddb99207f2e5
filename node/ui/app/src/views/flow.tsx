// Flow: the way that traffic takes now, as a picture or the same as a table. A ribbon or a
// row leads to the decision behind it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Node } from "../flow/graph";
import type { Metric, Options } from "../flow/graph";
import type { Answer, Ask } from "../flow/worker";
import { count, plural, rate, whole } from "../lib/format";
import { useQuery } from "../lib/router";
import type { Stream } from "../lib/types";
import { Card, Choice, Empty, Failed, Field, Loading, Missing, Page, Segments, State, useSettled } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { Decision } from "./flow-decision";
import { FlowPicture } from "./flow-picture";

declare const FLOW_WORKER: string; // the address of the worker's script

const most = 16; // nodes in a column

export function Flow() {
  const [query, setQuery] = useQuery();
  const [opened, open] = useState<Stream | null>(null);
  const [preview, setPreview] = useState<Options["preview"]>(null);
  const metric: Metric = query.get("by") === "bytes" ? "bytes" : "connections";
  const listener = useSettled(query.get("listener") ?? "");
  const service = useSettled(query.get("service") ?? "");
  const node = query.get("node") ?? "";
  const table = query.get("as") === "table";
  const options = useMemo<Options>(() => ({ metric, listener, service, most, preview }), [metric, listener, service, preview]);
  const answer = useFlow(node, table, options);
  const show = (n: number) => (metric === "connections" ? count(n) : rate(n));
  const pick = (n: Node) => {
    if (n.others > 0) setQuery({ as: "table" });
    else if (n.column === "listener") setQuery({ listener: n.label === listener ? "" : n.label });
    else if (n.column === "service") setQuery({ service: n.label === service ? "" : n.label });
  };
  return (
    <Page title="Flow" intro="From listeners to endpoints, as connections are now. Open a ribbon for the decision behind it.">
      <div class="filters">
        <Field label="Listener" value={query.get("listener") ?? ""} onChange={(v) => setQuery({ listener: v })} list={answer?.listeners} placeholder="all" />
        <Field label="Service" value={query.get("service") ?? ""} onChange={(v) => setQuery({ service: v })} list={answer?.services} placeholder="all" />
        <Choice
          label="Width"
          value={metric}
          options={[
            ["connections", "Connections"],
            ["bytes", "Bytes per second"],
          ]}
          onChange={(v) => setQuery({ by: v === "bytes" ? v : "" })}
        />
        <Segments
          label="Show as"
          value={table ? "table" : "picture"}
          options={[
            ["picture", "Picture"],
            ["table", "Table"],
          ]}
          onChange={(v) => setQuery({ as: v === "table" ? v : "" })}
        />
      </div>
      {answer?.error && (
        <p class="missing">
          <State tone="warning">Not live: {answer.error}</State>
        </p>
      )}
      {!answer ? (
        <Loading lines={8} />
      ) : answer.count === 0 && answer.error && !answer.at ? (
        <Failed what="The flow is not known" error={answer.error} />
      ) : answer.count === 0 ? (
        <Empty title="No connections">{listener || service ? "None that the filters select is open now." : "No client is connected to any listener now."}</Empty>
      ) : table ? (
        <Streams answer={answer} open={open} />
      ) : (
        <FlowPicture graph={answer.graph} show={show} metric={metric} open={open} pick={pick} preview={!!preview} />
      )}
      {answer && (
        <p class="muted note">
          {plural(answer.count, "stream")}
          {answer.more > 0 && `, ${whole(answer.more)} with fewer connections left out`}
        </p>
      )}
      <Missing nodes={answer?.missing} />
      {opened && (
        <Decision
          key={`${opened.listener} ${opened.service} ${opened.subset} ${opened.endpoint}`}
          stream={opened}
          preview={setPreview}
          onClose={() => {
            open(null);
            setPreview(null);
          }}
        />
      )}
    </Page>
  );
}

// useFlow runs the worker while the view is open.
function useFlow(node: string, table: boolean, options: Options): Answer | undefined {
  const [answer, set] = useState<Answer>();
  const worker = useRef<Worker>(undefined);
  useEffect(() => {
    const w = new Worker(FLOW_WORKER, { type: "module" });
    worker.current = w;
    w.addEventListener("message", (e: MessageEvent<Answer>) => set(e.data));
    return () => w.terminate();
  }, []);
  useEffect(() => worker.current?.postMessage({ node, table, options } satisfies Ask), [node, table, options]);
  return answer;
}

function Streams({ answer, open }: { answer: Answer; open: (s: Stream) => void }) {
  const columns: Column<Stream>[] = [
    { id: "listener", title: "Listener", cell: (s) => s.listener, sort: (s) => s.listener },
    { id: "route", title: "Route", cell: (s) => s.route || "–", sort: (s) => s.route ?? "" },
    { id: "service", title: "Service", cell: (s) => s.service, sort: (s) => s.service },
    { id: "subset", title: "Subset", cell: (s) => s.subset || "–", sort: (s) => s.subset ?? "" },
    { id: "endpoint", title: "Endpoint", cell: (s) => s.endpoint || "connecting", sort: (s) => s.endpoint ?? "", code: true },
    { id: "connections", title: "Connections", cell: (s) => whole(s.connections), sort: (s) => s.connections, number: true },
    { id: "in", title: "In", cell: (s) => rate(s.inRate), sort: (s) => s.inRate, number: true },
    { id: "out", title: "Out", cell: (s) => rate(s.outRate), sort: (s) => s.outRate, number: true },
  ];
  return (
    <Card title="Streams" note={answer.count > answer.rows.length ? `the largest ${whole(answer.rows.length)} of ${whole(answer.count)}` : undefined} flush>
      <Table caption="Streams of traffic" columns={columns} rows={answer.rows} id={(s) => `${s.listener} ${s.route} ${s.destination} ${s.service} ${s.subset} ${s.endpoint}`} first="-connections" open={open} />
    </Card>
  );
}
