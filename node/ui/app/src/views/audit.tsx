// Audit: who did what in the cluster, and what was refused or denied. For admins.
import { moment, whole } from "../lib/format";
import { useLive } from "../lib/live";
import { useQuery } from "../lib/router";
import { session } from "../lib/session";
import { useStore } from "../lib/store";
import type { AuditEntry } from "../lib/types";
import { useKept, useMay } from "../ui/filters";
import { Card, Choice, Command, Empty, Failed, Field, Loading, Missing, Page, State, type Tone } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { Peer } from "../ui/text";

const outcomes: Record<string, Tone> = { done: "ok", refused: "error", denied: "error", unknown: "warning" };

export function Audit() {
  const admin = useMay("admin");
  const s = useStore(session);
  return (
    <Page title="Audit" intro="Who did what, from where, and what was refused. Traffic that a permission denied is included.">
      {admin ? (
        <Entries />
      ) : (
        <Card title="Only for admins">
          <Empty title="The audit log needs the role admin">
            You have the role {s?.role}. An admin can make a token for you: penstock token create --role admin.
          </Empty>
        </Card>
      )}
    </Page>
  );
}

function Entries() {
  const [query, set] = useQuery();
  const since = query.get("since") ?? "";
  const text = query.get("text") ?? "";
  const outcome = query.get("outcome") ?? "";
  const live = useKept(useLive("audit", since ? { since, interval: "2s" } : {}));
  const all = [...(live.data?.entries ?? [])].reverse();
  const has = (e: AuditEntry) => [e.who, e.from, e.act, e.what, e.node, e.error ?? "", e.rule ?? "", e.request ?? ""].some((t) => t.toLowerCase().includes(text.toLowerCase()));
  const rows = all.filter((e) => (!outcome || e.outcome === outcome) && (!text || has(e)));
  return (
    <Card title="Entries" note={live.data && `${whole(rows.length)}${rows.length < all.length ? ` of ${whole(all.length)}` : ""}, the newest first`} flush>
      <div class="filters inset">
        <Choice
          label="Since"
          value={since}
          options={[
            ["", "1 hour"],
            ["24h", "1 day"],
            ["168h", "7 days"],
          ]}
          onChange={(v) => set({ since: v })}
        />
        <Choice label="Outcome" value={outcome} options={[["", "any"], ...Object.keys(outcomes).map((o): [string, string] => [o, o])]} onChange={(v) => set({ outcome: v })} />
        <Field label="Text" value={text} onChange={(v) => set({ text: v })} placeholder="who, from, what" />
      </div>
      {live.error ? (
        <Failed what="The audit log is not known" error={live.error} />
      ) : !live.data ? (
        <Loading lines={6} />
      ) : rows.length > 0 ? (
        <Table caption="Entries of the audit log, the newest first" columns={columns} rows={rows} id={(e) => `${e.at} ${e.node} ${e.act} ${e.who} ${e.what} ${e.from}`} page={100} />
      ) : (
        <Empty title={all.length > 0 ? "No entry matches" : "Nothing happened in this time"}>Changes, logins and what permissions denied get an entry.</Empty>
      )}
      <div class="card-foot">
        {all.length >= 200 && <State tone="info">The newest {whole(all.length)}; the command has all</State>}
        <Missing nodes={live.data?.missing} />
        <Command text={`penstock audit --since ${since || "1h"}`} />
      </div>
    </Card>
  );
}

const columns: Column<AuditEntry>[] = [
  { id: "at", title: "When", cell: (e) => <When of={e} /> },
  { id: "who", title: "Who", cell: (e) => <Who of={e} /> },
  { id: "from", title: "From", cell: (e) => <Peer text={e.from} />, code: true, minor: true },
  { id: "act", title: "Act", cell: (e) => e.act, code: true },
  { id: "what", title: "What", cell: (e) => <What of={e} />, wide: true },
  { id: "outcome", title: "Outcome", cell: (e) => <State tone={outcomes[e.outcome] ?? "idle"}>{e.outcome}</State> },
  { id: "node", title: "Node", cell: (e) => e.node, minor: true },
];

function When({ of: e }: { of: AuditEntry }) {
  return (
    <time dateTime={e.at} title={e.first && e.count > 1 ? `since ${moment(e.first)}` : undefined}>
      {moment(e.at)}
      {e.count > 1 && <span class="tag">{whole(e.count)} times</span>}
    </time>
  );
}

function Who({ of: e }: { of: AuditEntry }) {
  return (
    <>
      {e.who ? <Peer text={e.who} /> : <span class="muted">unknown</span>}
      {e.role && <span class="muted"> {e.role}</span>}
    </>
  );
}

function What({ of: e }: { of: AuditEntry }) {
  const more = [e.request, e.rule && `by ${e.rule}`, e.error].filter(Boolean).join("; ");
  return (
    <>
      <Peer text={e.what} />
      {more && (
        <span class="muted">
          {" "}
          <Peer text={more} />
        </span>
      )}
    </>
  );
}
