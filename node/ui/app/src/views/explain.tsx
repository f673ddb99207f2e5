// The steps of a decision, as the node takes it.
import type { Explanation, Step } from "../lib/types";
import { State } from "../ui/parts";
import { Table } from "../ui/table";
import { percent } from "../lib/format";

export function Explained({ of: e }: { of: Explanation }) {
  return (
    <>
      <p class="outcome">
        {e.reason ? (
          <State tone="error">Closed: {e.reason}</State>
        ) : (
          <State tone="ok">
            <span class="breakable">
              {[e.service || e.destination, e.endpoint].filter(Boolean).join(" → ") || "Routed"}
              {e.status ? ` ${e.status}` : ""}
              {e.location ? ` ${e.location}` : ""}
            </span>
          </State>
        )}
      </p>
      <ol class="steps">
        {(e.steps ?? []).map((s, i) => (
          <li key={i}>
            <h3>{s.name}</h3>
            {s.looked && <p class="muted breakable">{s.looked}</p>}
            <p class="breakable">{s.result}</p>
            <Details step={s} />
          </li>
        ))}
      </ol>
    </>
  );
}

function Details({ step: s }: { step: Step }) {
  return (
    <>
      {s.tags && s.tags.length > 0 && (
        <Table
          caption="Tags of the source"
          rows={s.tags}
          id={(t) => t.name}
          columns={[
            { id: "name", title: "Tag", cell: (t) => t.name, code: true },
            { id: "value", title: "Value", cell: (t) => t.value, code: true },
            { id: "from", title: "From", cell: (t) => t.from, wide: true },
          ]}
        />
      )}
      {s.policies && s.policies.length > 0 && (
        <Table
          caption="Policies, in order of precedence"
          rows={s.policies}
          id={(p) => p.name}
          marked={(p) => p.wins}
          columns={[
            { id: "name", title: "Policy", cell: (p) => p.name },
            { id: "source", title: "For sources", cell: (p) => p.source, code: true },
            { id: "wins", title: "Outcome", cell: (p) => (p.wins ? <State tone="ok">wins</State> : p.matches ? p.why || "matches" : "does not match"), wide: true },
          ]}
        />
      )}
      {s.backends && s.backends.length > 0 && (
        <Table
          caption="Backends of the policy"
          rows={s.backends}
          id={(b) => `${b.service} ${b.tags}`}
          marked={(b) => b.next}
          columns={[
            { id: "service", title: "Backend", cell: (b) => b.service },
            { id: "tags", title: "Tags", cell: (b) => b.tags || "–", code: true },
            { id: "weight", title: "Weight", cell: (b) => b.weight, number: true },
            { id: "share", title: "Share", cell: (b) => percent(b.share), number: true },
            { id: "note", title: "Note", cell: (b) => b.skipped || b.closed || (b.next ? "next" : ""), wide: true },
          ]}
        />
      )}
      {s.endpoints && s.endpoints.length > 0 && (
        <Table
          caption="Endpoints"
          rows={s.endpoints}
          id={(p) => p.address}
          page={20}
          columns={[
            { id: "address", title: "Endpoint", cell: (p) => p.address, code: true },
            { id: "health", title: "Health", cell: (p) => <State tone={healthTone(p.health)}>{p.health}</State> },
            { id: "active", title: "Open", cell: (p) => p.active, number: true },
            { id: "why", title: "Note", cell: (p) => p.why || (p.used ? "in use" : "not used"), wide: true },
          ]}
        />
      )}
    </>
  );
}

export function healthTone(health: string) {
  switch (health) {
    case "healthy":
      return "ok" as const;
    case "unhealthy":
    case "unresolved":
      return "error" as const;
    case "ejected":
    case "paused":
      return "warning" as const;
  }
  return "idle" as const;
}
