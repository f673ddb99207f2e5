// Resources: the kinds, and the resources of one.
import { get } from "../lib/api";
import { whole } from "../lib/format";
import { useEvents, useFetch } from "../lib/live";
import { navigate, useQuery } from "../lib/router";
import { segment } from "../lib/api";
import { kinds } from "../lib/types";
import { Card, Choice, Command, Empty, Failed, Field, Loading, Page } from "../ui/parts";
import { Table, type Column } from "../ui/table";

export interface Resource {
  kind: string;
  name: string;
  labels?: Record<string, string>;
  spec?: Record<string, unknown>;
}

export const pluralOf = (kind: string) => kinds.find(([name]) => name === kind)?.[1] ?? kind.toLowerCase();

// useResources reads all of a kind, and again when one changes.
export function useResources(kind: string) {
  const found = useFetch((signal) => get<Resource[]>(`/v1/${segment(pluralOf(kind))}`, { stale: true }, signal), [kind]);
  useEvents("changes", (c) => (!c.kind || c.kind === kind) && found.reload());
  return found;
}

export function Resources() {
  const [query, set] = useQuery();
  const kind = kinds.find(([name]) => name === query.get("kind"))?.[0] ?? kinds[0][0];
  const text = query.get("name") ?? "";
  const found = useResources(kind);
  const all = (found.data ?? []).filter((r) => r.kind === kind);
  const rows = all.filter((r) => r.name.toLowerCase().includes(text.toLowerCase()));
  const columns: Column<Resource>[] = [
    { id: "name", title: "Name", cell: (r) => r.name, sort: (r) => r.name },
    { id: "labels", title: "Labels", cell: (r) => Object.entries(r.labels ?? {}).map(([k, v]) => `${k}=${v}`).join(", ") || "–", code: true, minor: true },
    { id: "spec", title: "Spec", cell: (r) => summary(r.spec), wide: true },
  ];
  return (
    <Page title="Resources" intro="What the cluster is configured to do, with every change that it remembers.">
      <div class="grid">
        <div class="wide">
          <Card title={kind} note={found.data && whole(all.length)} flush>
            <div class="filters inset">
              <Choice label="Kind" value={kind} options={kinds.map(([name]) => [name, name])} onChange={(k) => set({ kind: k, name: "" })} />
              <Field label="Name" value={text} onChange={(v) => set({ name: v })} placeholder="any part of it" />
            </div>
            {found.error && !found.data ? (
              <Failed what="Resources are not known" error={found.error} retry={found.reload} />
            ) : !found.data || (found.loading && all.length === 0) ? (
              <Loading lines={5} />
            ) : rows.length > 0 ? (
              <Table key={kind} caption={`Resources of the kind ${kind}`} columns={columns} rows={rows} id={(r) => r.name} first="name" page={100} open={(r) => navigate(`/resources/${segment(r.kind)}/${segment(r.name)}`)} />
            ) : (
              <Empty title={all.length > 0 ? "No such name" : `No ${kind}`}>{all.length > 0 ? undefined : `penstock apply makes one; docs/resources.md has the fields of ${kind}.`}</Empty>
            )}
            <div class="card-foot">
              <Command text={`penstock get ${pluralOf(kind)}`} />
            </div>
          </Card>
        </div>
      </div>
    </Page>
  );
}

// summary is the beginning of a spec on one line.
function summary(spec: Record<string, unknown> | undefined): string {
  const text = Object.entries(spec ?? {})
    .map(([k, v]) => `${k}: ${typeof v === "object" ? (Array.isArray(v) ? `[${v.length}]` : "{…}") : String(v)}`)
    .join(", ");
  return text.length > 160 ? `${text.slice(0, 160)}…` : text;
}
