// The split of a MeshTCPRoute: sliders preview other weights in the picture and in a
// simulation, and are applied after a look at the difference.
import { useEffect, useState } from "preact/hooks";
import { backendKey, type Options } from "../flow/graph";
import { failureOf, get, post, segment, type Failure } from "../lib/api";
import { percent, plural } from "../lib/format";
import { useFetch } from "../lib/live";
import { may, session } from "../lib/session";
import { useStore } from "../lib/store";
import type { ApplyResult, SimulateResult } from "../lib/types";
import { Bar, Failed, Loading, Panel, State, useSettled } from "../ui/parts";
import { Diff } from "../ui/diff";
import { Table } from "../ui/table";

interface BackendRef {
  kind?: string;
  name: string;
  weight?: number;
  tags?: Record<string, string>;
}
interface Rule {
  default?: { backendRefs?: BackendRef[] };
}
interface Route {
  kind: string;
  name: string;
  spec: { to?: { targetRef?: { name?: string }; rules?: Rule[] }[]; rollout?: unknown };
}

interface Props {
  route: string;
  destination: string;
  preview: (p: Options["preview"]) => void;
}

const full = 100; // what weights add up to, unless the route has a finer sum

export function Split({ route, destination, preview }: Props) {
  const s = useStore(session);
  const found = useFetch((signal) => get<Route>(`/v1/meshtcproutes/${segment(route)}`, {}, signal), [route]);
  const refs = found.data && backendsOf(found.data, destination);
  const [weights, setWeights] = useState<number[]>();
  const [review, setReview] = useState(false);
  const [done, setDone] = useState("");
  useEffect(() => {
    if (refs) setWeights(whole(refs.map((r) => r.weight ?? 1)));
  }, [found.data]);
  const asked = useSettled(weights, 300);
  const changed = !!refs && !!weights && !same(weights, whole(refs.map((r) => r.weight ?? 1)));
  useEffect(() => {
    if (!refs || !weights || !changed) {
      preview(null);
      return;
    }
    const total = weights.reduce((a, b) => a + b, 0) || 1;
    preview({ route: `MeshTCPRoute/${route}`, destination, shares: Object.fromEntries(refs.map((r, i) => [backendKey(r.name, tagText(r.tags)), weights[i]! / total])) });
  }, [weights, changed]);
  if (found.error) return <Failed what={`The split of ${route} is not known`} error={found.error} retry={found.reload} />;
  if (!found.data || !weights) return <Loading lines={2} />;
  if (!refs || refs.length < 2) return null;
  const total = weights.reduce((a, b) => a + b, 0) || 1;
  const admin = may(s, "admin");
  const rollout = found.data.spec.rollout !== undefined;
  const next = changed ? withWeights(found.data, destination, weights) : undefined;
  return (
    <section class="split" aria-labelledby="split-title">
      <h3 id="split-title" class="section">
        Split of <span class="code">{route}</span>
      </h3>
      {rollout && <p class="muted">A rollout moves these weights by steps.</p>}
      {refs.map((r, i) => (
        <div class="slider" key={i}>
          <label for={`weight-${i}`}>
            <span class="breakable">{backendName(r)}</span>
            <output for={`weight-${i}`}>{percent(weights[i]! / total)}</output>
          </label>
          <input id={`weight-${i}`} type="range" min={0} max={total} step={1} value={weights[i]} disabled={rollout} aria-valuetext={percent(weights[i]! / total)} onInput={(e) => (setDone(""), setWeights(share(weights, i, Number(e.currentTarget.value))))} />
        </div>
      ))}
      {next && asked && same(asked, weights) && <Effect route={next} destination={destination} />}
      <div class="actions end">
        {changed && (
          <button type="button" onClick={() => found.data && refs && setWeights(whole(refs.map((r) => r.weight ?? 1)))}>
            Reset
          </button>
        )}
        <button type="button" class="primary" disabled={!changed || !admin} onClick={() => setReview(true)}>
          Review the change
        </button>
      </div>
      {!admin && <p class="muted note">Only a token of an admin may apply other weights.</p>}
      <p role="status">{done && <State tone="ok">{done}</State>}</p>
      {review && next && (
        <Review
          route={next}
          onClose={() => setReview(false)}
          applied={(r) => {
            setReview(false);
            setDone(`Applied on ${plural(r.reached.nodes, "node")}${r.reached.late?.length ? `, ${r.reached.late.map((l) => l.node).join(", ")} will follow` : ""}.`);
            found.reload();
          }}
        />
      )}
    </section>
  );
}

// Effect is what a simulation on the node says.
function Effect({ route, destination }: { route: Route; destination: string }) {
  const result = useFetch((signal) => post<SimulateResult>("/v1/simulate", { documents: [route], connections: 1000, destination }, {}, signal), [JSON.stringify(route)]);
  if (result.error) return <Failed what="No simulation" error={result.error} />;
  if (!result.data) return <Loading lines={3} />;
  const run = result.data.simulation?.plays?.[0];
  const n = result.data.simulation?.connections ?? 1000;
  return (
    <div class="effect" aria-live="polite">
      {result.data.words?.map((w) => (
        <p key={w} class="breakable">
          {w}
        </p>
      ))}
      {run?.outcomes && (
        <Table
          caption={`Of ${n} simulated connections`}
          rows={run.outcomes}
          id={(o) => `${o.service} ${o.subset} ${o.endpoint} ${o.reason}`}
          page={12}
          columns={[
            { id: "to", title: `Of ${n} connections`, cell: (o) => o.reason || `${o.service ?? ""} ${o.subset ? `{${o.subset}}` : ""}`, wide: true },
            { id: "endpoint", title: "Endpoint", cell: (o) => o.endpoint || "–", code: true, minor: true },
            { id: "before", title: "Now", cell: (o) => o.before, number: true },
            { id: "after", title: "Then", cell: (o) => o.after, number: true },
            { id: "bar", title: "Share", cell: (o) => <Bar share={o.after / Math.max(1, n)} />, minor: true },
          ]}
        />
      )}
      {result.data.warnings?.map((w) => (
        <p key={w.path + w.message} class="breakable">
          <State tone="warning">
            {w.path}: {w.message}
          </State>
        </p>
      ))}
    </div>
  );
}

// Review shows what apply would change, and applies it.
function Review({ route, onClose, applied }: { route: Route; onClose: () => void; applied: (r: ApplyResult) => void }) {
  const diff = useFetch((signal) => post<ApplyResult>("/v1/diff", route, {}, signal), []);
  const [failure, setFailure] = useState<Failure>();
  const [busy, setBusy] = useState(false);
  const apply = async () => {
    setBusy(true);
    setFailure(undefined);
    try {
      applied(await post<ApplyResult>("/v1/apply", route));
    } catch (err) {
      setFailure(failureOf(err));
      setBusy(false);
    }
  };
  return (
    <Panel title={`Apply MeshTCPRoute/${route.name}`} onClose={onClose} middle>
      {diff.error ? (
        <Failed what="The difference is not known" error={diff.error} retry={diff.reload} />
      ) : !diff.data ? (
        <Loading />
      ) : (
        diff.data.changes?.map((c) => <Diff key={c.name} before={c.before ?? ""} after={c.after ?? ""} />)
      )}
      {diff.data?.warnings?.map((w) => (
        <p key={w.path + w.message} class="breakable">
          <State tone="warning">
            {w.path}: {w.message}
          </State>
        </p>
      ))}
      {failure && (
        <div role="alert" class="breakable">
          <State tone="error">{failure.message}</State>
          {failure.faults.map((f) => (
            <p key={f.path}>
              {f.path}: {f.message}
            </p>
          ))}
        </div>
      )}
      <div class="actions end">
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="primary" disabled={busy || !diff.data} onClick={apply}>
          {busy ? "Applying…" : "Apply"}
        </button>
      </div>
    </Panel>
  );
}

// backendsOf finds the backends for a destination, of a route with one rule for it.
function backendsOf(route: Route, destination: string): BackendRef[] | undefined {
  return target(route, destination)?.default?.backendRefs;
}

function target(route: Route, destination: string): Rule | undefined {
  const to = route.spec.to ?? [];
  const found = to.find((t) => t.targetRef?.name === destination) ?? (to.length === 1 ? to[0] : undefined);
  return found?.rules?.length === 1 ? found.rules[0] : undefined;
}

function withWeights(route: Route, destination: string, weights: number[]): Route {
  const copy = structuredClone(route);
  target(copy, destination)?.default?.backendRefs?.forEach((r, i) => (r.weight = weights[i]));
  return copy;
}

// whole scales weights to whole numbers that add up to full, or keeps them if they add up
// to more.
function whole(weights: number[]): number[] {
  const total = weights.reduce((a, b) => a + b, 0);
  if (total >= full || total === 0) return weights;
  const scaled = weights.map((w) => Math.round((w / total) * full));
  scaled[0]! += full - scaled.reduce((a, b) => a + b, 0);
  return scaled;
}

// share gives one backend a weight; the others share the rest as they did.
function share(weights: number[], at: number, value: number): number[] {
  const total = weights.reduce((a, b) => a + b, 0);
  const rest = total - value;
  const others = total - weights[at]!;
  const next = weights.map((w, i) => (i === at ? value : others > 0 ? Math.floor((w / others) * rest) : Math.floor(rest / (weights.length - 1))));
  const missing = total - next.reduce((a, b) => a + b, 0);
  const to = next.findIndex((_, i) => i !== at && (others === 0 || weights[i]! > 0));
  if (to >= 0) next[to]! += missing;
  return next;
}

const same = (a: number[], b: number[]) => a.length === b.length && a.every((v, i) => v === b[i]);

export const tagText = (tags?: Record<string, string>) =>
  Object.entries(tags ?? {})
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([k, v]) => `${k}=${v}`)
    .join(",");

const backendName = (r: BackendRef) => (r.tags ? `${r.name} {${tagText(r.tags)}}` : r.name);
