// Filters of a view, kept in its address, and the parts that views with filters share.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { whole } from "../lib/format";
import { useLive, type Live } from "../lib/live";
import { useQuery } from "../lib/router";
import { may, session } from "../lib/session";
import { useStore } from "../lib/store";
import { Field, State, useSettled } from "./parts";

export interface FilterField {
  name: string; // in the address, and of the node's parameter
  label: string;
  placeholder?: string;
  list?: string[];
}

// useFilters gives what the address filters by: at once, for the inputs, and once it has
// not changed for a moment, for requests.
export function useFilters(names: string[]): { now: Record<string, string>; settled: Record<string, string>; set: (change: Record<string, string>) => void } {
  const [query, set] = useQuery();
  const now = Object.fromEntries(names.map((n) => [n, query.get(n) ?? ""]));
  const text = useSettled(JSON.stringify(now), 350);
  return { now, settled: JSON.parse(text) as Record<string, string>, set };
}

export function Filters({ label, fields, filters, names, children }: { label: string; fields: FilterField[]; filters: ReturnType<typeof useFilters>; names?: string[]; children?: ComponentChildren }) {
  return (
    <form class="filters inset" role="search" aria-label={label} onSubmit={(e) => e.preventDefault()}>
      {children}
      {fields.map((f) => (
        <Field key={f.name} label={f.label} value={filters.now[f.name] ?? ""} placeholder={f.placeholder} list={f.list} onChange={(v) => filters.set({ [f.name]: v })} />
      ))}
      {(names ?? Object.keys(filters.now)).some((n) => filters.now[n]) && (
        <button type="button" class="quiet" onClick={() => filters.set(Object.fromEntries((names ?? Object.keys(filters.now)).map((n) => [n, ""])))}>
          Clear
        </button>
      )}
    </form>
  );
}

// useNames are the names that inputs suggest.
export function useNames() {
  const { data } = useLive("status");
  const of = (list: { name: string }[] | null | undefined) => [...new Set((list ?? []).map((l) => l.name))].sort();
  return { nodes: of(data?.nodes), listeners: of(data?.listeners), services: [...of(data?.services), ...of(data?.virtualClusters)] };
}

// useKept keeps the last value while the next one, of another query, is on its way.
export function useKept<T>(live: Live<T>): Live<T> & { waiting: boolean } {
  const [kept, keep] = useState<Live<T>>(live);
  useEffect(() => {
    if (live.data !== undefined) keep(live);
  }, [live]);
  return { ...live, data: live.data ?? kept.data, at: live.at ?? kept.at, waiting: live.data === undefined && !live.error };
}

export const useMay = (role: string) => may(useStore(session), role);

// Needs says which role something needs that this session may not do.
export function Needs({ role, what }: { role: string; what: string }) {
  const s = useStore(session);
  if (may(s, role)) return null;
  return (
    <p class="muted note">
      {what} needs the role {role}; you have the role {s?.role ?? "none"}.
    </p>
  );
}

// FirstOf says that a list is not complete.
export function FirstOf({ shown, of, order, children }: { shown: number; of: number; order: string; children?: ComponentChildren }) {
  if (shown >= of) return null;
  return (
    <p class="first-of">
      <State tone="info">
        The {order} {whole(shown)} of {whole(of)}
      </State>
      {children}
    </p>
  );
}
