// One resource: as it is, every revision, what changed between two, and the way back.
import { useState } from "preact/hooks";
import { get, post, segment } from "../lib/api";
import { moment, plural } from "../lib/format";
import { useEvents, useFetch } from "../lib/live";
import { Link, useQuery } from "../lib/router";
import type { ApplyResult, HistoryResult, Revision } from "../lib/types";
import { Diff } from "../ui/diff";
import { Needs, useMay } from "../ui/filters";
import { Card, Choice, Command, Confirm, Empty, Failed, Loading, Page, Segments, State } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { Peer } from "../ui/text";
import { quote } from "./flow-decision";
import { pluralOf } from "./resources";

export function Resource({ kind = "", name = "" }: Record<string, string>) {
  const path = `${segment(pluralOf(kind))}/${segment(name)}`;
  const history = useFetch((signal) => get<HistoryResult>(`/v1/history/${path}`, { stale: true }, signal), [kind, name]);
  const current = useFetch((signal) => get<unknown>(`/v1/${path}`, { stale: true }, signal), [kind, name]);
  useEvents("changes", (c) => (!c.kind || (c.kind === kind && c.name === name)) && (history.reload(), current.reload()));
  const list = history.data?.revisions ?? [];
  const [said, say] = useState("");
  return (
    <Page
      title={name}
      intro={
        <>
          <Link to={`/resources?kind=${encodeURIComponent(kind)}`}>{kind}</Link>
          {list[0]?.deleted ? ", deleted" : ""}
        </>
      }
    >
      <p role="status" class={said ? "said" : "sr-only"}>
        {said}
      </p>
      <div class="stack">
        <Content kind={kind} latest={list[0]} json={current.data} error={current.error} loading={current.loading || history.loading} />
        {history.data ? <History kind={kind} name={name} list={list} say={say} reload={() => (history.reload(), current.reload())} /> : history.error ? <Failed what="The history is not known" error={history.error} retry={history.reload} /> : <Loading lines={5} />}
      </div>
    </Page>
  );
}

function Content({ kind, latest, json, error, loading }: { kind: string; latest?: Revision; json: unknown; error?: string; loading: boolean }) {
  const [format, setFormat] = useState("yaml");
  const yaml = latest && !latest.deleted ? latest.yaml : undefined;
  const as = yaml ? format : "json";
  const text = as === "yaml" ? yaml! : json ? JSON.stringify(json, null, 2) : "";
  return (
    <Card
      title="As it is"
      note={latest && !latest.deleted ? `version ${latest.version}` : undefined}
      actions={
        yaml && (
          <Segments
            label="Format"
            value={format}
            options={[
              ["yaml", "YAML"],
              ["json", "JSON"],
            ]}
            onChange={setFormat}
          />
        )
      }
    >
      {text ? (
        <pre class="document" tabIndex={0} role="region" aria-label={`${kind} as ${as.toUpperCase()}`}>
          <code>{text}</code>
        </pre>
      ) : loading ? (
        <Loading lines={6} />
      ) : latest?.deleted ? (
        <Empty title="It is deleted">Its history below can restore it.</Empty>
      ) : (
        <Failed what="It is not known" error={error ?? "there is no such resource"} />
      )}
    </Card>
  );
}

function History({ kind, name, list, say, reload }: { kind: string; name: string; list: Revision[]; say: (text: string) => void; reload: () => void }) {
  const [query, set] = useQuery();
  const admin = useMay("admin");
  const [asked, ask] = useState<Revision>();
  const latest = list[0];
  if (!latest) return <Card title="History"><Empty title="No revision is remembered">Every change by penstock apply, rollback or delete makes one.</Empty></Card>;
  const of = (text: string | null) => list.find((r) => String(r.version) === text);
  const to = of(query.get("to")) ?? latest;
  const from = of(query.get("from")) ?? list[list.indexOf(to) + 1];
  const options = list.map((r): [string, string] => [String(r.version), `${r.version}, ${moment(r.at)}${r.deleted ? ", deleted" : ""}`]);
  const columns: Column<Revision>[] = [
    { id: "version", title: "Version", cell: (r) => r.version, number: true },
    { id: "at", title: "When", cell: (r) => moment(r.at) },
    { id: "who", title: "Who", cell: (r) => <Peer text={r.who} /> },
    { id: "what", title: "What", cell: (r) => (r.deleted ? <State tone="warning">{r.what}</State> : r.what), wide: true },
    {
      id: "act",
      title: "",
      cell: (r) => (
        <span class="row-acts">
          <button type="button" class="link" onClick={() => set({ to: String(r.version), from: "" })}>
            Changes<span class="sr-only"> of version {r.version}</span>
          </button>
          {admin && r !== latest && !r.deleted && (
            <button type="button" class="link" onClick={() => ask(r)}>
              Restore…<span class="sr-only"> version {r.version}</span>
            </button>
          )}
        </span>
      ),
    },
  ];
  const restore = async (r: Revision) => {
    const done = await post<ApplyResult>(`/v1/rollback/${segment(pluralOf(kind))}/${segment(name)}`, { version: r.version });
    const late = done.reached.late?.length ? `; not yet on ${done.reached.late.map((l) => l.node).join(", ")}` : "";
    say(`Version ${r.version} is restored and in force on ${plural(done.reached.nodes, "node")}${late}`);
    set({ to: "", from: "" });
    reload();
  };
  return (
    <>
      <Card title="History" note={plural(list.length, "revision")} flush>
        <Table caption={`Revisions of ${name}, the newest first`} columns={columns} rows={list} id={(r) => String(r.version)} page={20} marked={(r) => r === to} />
        <div class="card-foot">
          <Command text={`penstock history ${quote(kind.toLowerCase())} ${quote(name)}`} />
          <Needs role="admin" what="Restoring a version" />
        </div>
      </Card>
      <Card title="Changes" note={from ? `from version ${from.version} to ${to.version}` : `version ${to.version} is the first that is remembered`}>
        <div class="filters">
          <Choice label="From" value={from ? String(from.version) : ""} options={from ? options : [["", "nothing"], ...options]} onChange={(v) => set({ from: v, to: String(to.version) })} />
          <Choice label="To" value={String(to.version)} options={options} onChange={(v) => set({ to: v, from: from ? String(from.version) : "" })} />
        </div>
        <Diff before={textOf(from)} after={textOf(to)} />
      </Card>
      {asked && (
        <Confirm title={`Restore version ${asked.version} of ${name}?`} word="Restore" danger act={() => restore(asked)} onClose={() => ask(undefined)}>
          <p>It is applied as a new version and takes effect on all nodes at once. What changes:</p>
          <Diff before={textOf(latest)} after={textOf(asked)} />
        </Confirm>
      )}
    </>
  );
}

const textOf = (r: Revision | undefined) => (r && !r.deleted ? (r.yaml ?? "") : "");
