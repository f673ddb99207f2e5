// Rollouts: where each is, what its connections say about the new backend, and the
// commands that an operator has for it.
import { useEffect, useState } from "preact/hooks";
import { get, post, segment } from "../lib/api";
import { ago, duration, goDuration, moment, percent, plural, whole } from "../lib/format";
import { useEvents, useFetch, useLive } from "../lib/live";
import { Link } from "../lib/router";
import type { Rollout, RolloutResult } from "../lib/types";
import { Needs, useMay } from "../ui/filters";
import { Bar, Card, Command, Confirm, Empty, Failed, Loading, Missing, Page, State, type Tone } from "../ui/parts";
import { quote } from "./flow-decision";

export function Rollouts() {
  const live = useLive("progress");
  const list = live.data ?? (live.at ? [] : undefined);
  return (
    <Page title="Rollouts" intro="New versions that get a growing share of the connections, step by step.">
      {list ? (
        list.length > 0 ? (
          <div class="stack">
            {list.map((r) => (
              <One key={r.route} of={r} />
            ))}
            <Needs role="operator" what="Pausing, resuming and rolling back" />
          </div>
        ) : (
          <Card title="No rollout">
            <Empty title="No route has a rollout">
              Apply a MeshTCPRoute with spec.rollout: the weight of its backend then grows by the steps, and goes back to 0 when too many connects fail. docs/rollout.md has an example.
            </Empty>
          </Card>
        )
      ) : live.error ? (
        <Failed what="Rollouts are not known" error={live.error} />
      ) : (
        <Loading lines={6} />
      )}
    </Page>
  );
}

interface Plan {
  steps: { weight: number; for?: string }[];
  abort?: { failures?: number; connections?: number; window?: string; ejections?: number };
}

// usePlan reads the steps and the limits from the route.
function usePlan(route: string): Plan | undefined {
  const found = useFetch(async (signal) => {
    const r = await get<{ spec?: { rollout?: Plan } }>(`/v1/meshtcproutes/${segment(route)}`, { stale: true }, signal);
    return r.spec?.rollout;
  }, [route]);
  useEvents("changes", (c) => (!c.kind || (c.kind === "MeshTCPRoute" && c.name === route)) && found.reload());
  return found.data;
}

type Act = "pause" | "resume" | "rollback" | "restart";

const allowed: Record<Act, string[]> = { pause: ["running"], resume: ["paused"], rollback: ["running", "paused", "done"], restart: ["paused", "done", "aborted", "rolledBack"] };

const acts: Record<Act, [string, string]> = {
  pause: ["Pause", "The weight stays where it is, and the time of the step stops. It is still watched, and aborted if too many connects fail."],
  resume: ["Resume", "The step goes on where it was."],
  rollback: ["Roll back", "The new backend gets no new connections on any node. Those that are open stay."],
  restart: ["Restart", "The rollout starts again at its first step; earlier failures do not count."],
};

export const phaseTone = (phase: string): Tone => (phase === "running" ? "info" : phase === "done" ? "ok" : phase === "paused" ? "warning" : "error");
const phaseWord = (phase: string) => (phase === "rolledBack" ? "rolled back" : phase);

function One({ of: r }: { of: Rollout }) {
  const plan = usePlan(r.route);
  const [asked, ask] = useState<Act>();
  const [said, say] = useState("");
  const operator = useMay("operator");
  useEffect(() => say(""), [r.phase, r.step]);
  const act = async (a: Act) => {
    const done = await post<RolloutResult>(`/v1/progress/${segment(r.route)}`, { do: a });
    const late = done.reached.late?.length ? `; not yet on ${done.reached.late.map((l) => l.node).join(", ")}` : "";
    say(`${acts[a][0]}: done on ${plural(done.reached.nodes, "node")}${late}`);
  };
  const possible = (Object.keys(acts) as Act[]).filter((a) => allowed[a].includes(r.phase));
  return (
    <Card
      title={r.route}
      note={
        <>
          {r.destination} → {r.backend}
        </>
      }
      actions={
        operator &&
        possible.map((a) => (
          <button key={a} type="button" class={a === "rollback" ? "danger" : ""} onClick={() => ask(a)}>
            {acts[a][0]}
            <span class="sr-only"> {r.route}</span>
          </button>
        ))
      }
    >
      <p class="outcome">
        <State tone={phaseTone(r.phase)}>
          {phaseWord(r.phase)[0]!.toUpperCase() + phaseWord(r.phase).slice(1)}, step {r.step} of {r.steps}
        </State>
        <span class="weight">
          <Bar share={r.weight / 100} tone={phaseTone(r.phase)} /> {r.weight}% of new connections
        </span>
        {r.left ? <span class="muted">{duration(r.left)} left in this step</span> : null}
        {Date.parse(r.since) > 0 && (
          <time class="muted" dateTime={r.since} title={moment(r.since)}>
            began {ago(r.since)}
          </time>
        )}
      </p>
      {r.held && (
        <p class="held breakable">
          <State tone="warning">The next step waits: {r.held}</State>
        </p>
      )}
      {r.reason && (
        <p class="held breakable">
          <State tone={phaseTone(r.phase)}>{r.reason}</State>
        </p>
      )}
      <p role="status" class={said ? "said" : "sr-only"}>
        {said}
      </p>
      {plan && <Steps plan={plan} of={r} />}
      <Evidence of={r} abort={plan?.abort} />
      <div class="card-foot flat">
        <Missing nodes={r.silent} />
        <span>
          <Link to={`/resources/MeshTCPRoute/${segment(r.route)}`}>The route and its history</Link>
        </span>
        <Command text={`penstock rollout status ${quote(r.route)}`} />
      </div>
      {asked && (
        <Confirm title={`${acts[asked][0]} ${r.route}?`} word={acts[asked][0]} danger={asked === "rollback"} act={() => act(asked)} onClose={() => ask(undefined)}>
          <p>{acts[asked][1]}</p>
          <p class="muted">
            Now: {phaseWord(r.phase)}, step {r.step} of {r.steps}, {r.weight}% to {r.backend}.
          </p>
        </Confirm>
      )}
    </Card>
  );
}

function Steps({ plan, of: r }: { plan: Plan; of: Rollout }) {
  const over = r.phase === "done";
  const ended = r.phase === "aborted" || r.phase === "rolledBack";
  return (
    <ol class="rollout-steps" aria-label={`Steps of ${r.route}`}>
      {plan.steps.map((s, i) => {
        const state = over || i + 1 < r.step ? "past" : i + 1 > r.step ? "next" : ended ? "failed" : "now";
        return (
          <li key={i} class={state} aria-current={state === "now" ? "step" : undefined}>
            <span class="strong">{s.weight}%</span>
            <span class="muted">{s.for ? `for ${length(s.for)}` : "last"}</span>
            <span class="sr-only">{state === "past" ? "done" : state === "now" ? "now" : state === "failed" ? "ended here" : "to come"}</span>
          </li>
        );
      })}
    </ol>
  );
}

const length = (text: string) => {
  const ns = goDuration(text);
  return ns === undefined ? text : duration(ns);
};

// Evidence is what the nodes count about the new backend, beside what aborts the rollout.
function Evidence({ of: r, abort }: { of: Rollout; abort?: Plan["abort"] }) {
  if (r.phase !== "running" && r.phase !== "paused") return <p class="muted note">Its connections are not counted any more.</p>;
  const bad = r.failed + r.resets;
  const failures = abort?.failures ?? 5;
  const enough = abort?.connections ?? 20;
  const ejections = abort?.ejections ?? 30;
  const share = r.connects > 0 ? bad / r.connects : 0;
  const ejected = r.endpoints > 0 ? r.ejected / r.endpoints : 0;
  const toneOf = (part: number, limit: number): Tone => (limit >= 100 ? "idle" : part * 100 > limit ? "error" : part > 0 ? "warning" : "ok");
  return (
    <dl class="facts many evidence">
      <div>
        <dt>Connects in the last {duration(r.window)}</dt>
        <dd>
          {whole(r.connects)}
          {r.connects < enough && <span class="muted"> · judged from {whole(enough)} on</span>}
        </dd>
      </div>
      <div>
        <dt>Failed or reset</dt>
        <dd>
          <State tone={r.connects < enough ? "idle" : toneOf(share, failures)}>
            {percent(share)} ({whole(r.failed)} failed, {whole(r.resets)} reset)
          </State>
          <span class="muted"> · {failures >= 100 ? "never aborts" : `aborts above ${failures}%`}</span>
        </dd>
      </div>
      <div>
        <dt>Endpoints ejected</dt>
        <dd>
          <State tone={toneOf(ejected, ejections)}>
            {whole(r.ejected)} of {whole(r.endpoints)}
          </State>
          <span class="muted"> · {ejections >= 100 ? "never aborts" : `aborts above ${ejections}%`}</span>
        </dd>
      </div>
      <div>
        <dt>Counted by</dt>
        <dd>{plural(r.nodes, "node")}</dd>
      </div>
    </dl>
  );
}
