// The side panel of a stream: its decision step by step, and the split that it comes from.
import { useEffect, useState } from "preact/hooks";
import { get, post, segment } from "../lib/api";
import { rate, whole } from "../lib/format";
import type { Options } from "../flow/graph";
import { useFetch } from "../lib/live";
import type { ExplainRequest, Explanation, Stream, TopologyResult } from "../lib/types";
import { Command, Failed, Field, Loading, Panel, useSettled } from "../ui/parts";
import { Explained } from "./explain";
import { Split } from "./split";

export function Decision({ stream: s, onClose, preview }: { stream: Stream; onClose: () => void; preview: (p: Options["preview"]) => void }) {
  const [sni, setSNI] = useState<string>();
  const [client, setClient] = useState("");
  // A server name that leads there, so that the decision is about such a connection.
  useEffect(() => {
    const stop = new AbortController();
    get<TopologyResult>(`/v1/topology/${segment(s.destination)}`, { stale: true }, stop.signal).then(
      (t) => {
        const edge = t.edges?.find((e) => e.from.kind === "listener" && e.from.name === s.listener && e.to.name === s.destination);
        setSNI(edge?.hosts?.[0]?.replace(/^\*\./, "any.") ?? "");
      },
      () => !stop.signal.aborted && setSNI(""),
    );
    return () => stop.abort();
  }, [s.destination, s.listener]);
  const name = useSettled(sni);
  const from = useSettled(client);
  const request: ExplainRequest = { listener: s.listener, sni: name || undefined, client: from || undefined };
  const found = useFetch((signal) => (name === undefined ? new Promise<Explanation>(() => undefined) : post<Explanation>("/v1/explain", request, {}, signal)), [s.listener, name, from]);
  const command = `penstock explain --listener ${quote(s.listener)}${name ? ` --sni ${quote(name)}` : ""}`;
  const route = s.route?.startsWith("MeshTCPRoute/") ? s.route.slice("MeshTCPRoute/".length) : "";
  return (
    <Panel title={`${s.listener} → ${s.service}`} onClose={onClose}>
      <dl class="facts">
        <div>
          <dt>Endpoint</dt>
          <dd class="code breakable">{s.endpoint || "not connected yet"}</dd>
        </div>
        {s.subset && (
          <div>
            <dt>Subset</dt>
            <dd class="code breakable">{s.subset}</dd>
          </div>
        )}
        <div>
          <dt>Open</dt>
          <dd>{whole(s.connections)} connections</dd>
        </div>
        <div>
          <dt>Rate</dt>
          <dd>
            {rate(s.inRate)} in, {rate(s.outRate)} out
          </dd>
        </div>
      </dl>
      {route && <Split route={route} destination={s.destination} preview={preview} />}
      <section aria-labelledby="decision">
        <h3 id="decision" class="section">
          The decision for the next such connection
        </h3>
        <div class="filters">
          <Field label="Server name" value={sni ?? ""} onChange={setSNI} placeholder="none" />
          <Field label="Client address" value={client} onChange={setClient} placeholder="any" />
        </div>
        {found.error ? <Failed what="No explanation" error={found.error} retry={found.reload} /> : found.data ? <Explained of={found.data} /> : <Loading lines={6} />}
        <Command text={command} />
      </section>
    </Panel>
  );
}

// quote makes a word of a shell of a name.
export const quote = (text: string) => (/^[\w.,:/@*+-]+$/.test(text) && !text.includes("*") ? text : `'${text.replaceAll("'", "'\\''")}'`);
