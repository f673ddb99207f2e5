// Routes under /ui by the history of the browser. What a view filters by is in the query
// of its address, so that a link shows the same to someone else.
import type { ComponentChildren, TargetedMouseEvent } from "preact";
import { store, useStore } from "./store";

export const base = "/ui";

export interface Place {
  path: string; // without base, "/" for the first view
  query: URLSearchParams;
}

const here = (): Place => {
  const path = location.pathname.startsWith(base) ? location.pathname.slice(base.length) : location.pathname;
  return { path: path.replace(/\/+$/, "") || "/", query: new URLSearchParams(location.search) };
};

export const place = store<Place>(here());
addEventListener("popstate", () => place.set(here()));

export const href = (to: string) => base + (to.startsWith("/") ? to : `/${to}`);

export function navigate(to: string, replace = false) {
  if (replace) history.replaceState(null, "", href(to));
  else history.pushState(null, "", href(to));
  place.set(here());
  if (!replace) scrollTo(0, 0);
}

export const usePlace = () => useStore(place);

// useQuery gives the query of the address and changes some of it; "" takes a name out.
export function useQuery(): [URLSearchParams, (change: Record<string, string>) => void] {
  const { path, query } = usePlace();
  const change = (c: Record<string, string>) => {
    const next = new URLSearchParams(place.get().query);
    for (const [name, value] of Object.entries(c)) {
      if (value) next.set(name, value);
      else next.delete(name);
    }
    const text = next.toString();
    navigate(text ? `${path}?${text}` : path, true);
  };
  return [query, change];
}

// match returns the parameters of a path such as /connections/:node/:id; null: it is another.
export function match(pattern: string, path: string): Record<string, string> | null {
  const want = pattern.split("/");
  const have = path.split("/");
  if (want.length !== have.length) return null;
  const params: Record<string, string> = {};
  for (const [i, part] of want.entries()) {
    const value = have[i] ?? "";
    if (part.startsWith(":")) {
      try {
        params[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return null;
      }
    } else if (part !== value) return null;
  }
  return params;
}

interface Anchor {
  to: string;
  class?: string;
  title?: string;
  onClick?: () => void;
  "aria-current"?: "page" | undefined;
  "aria-label"?: string;
  children?: ComponentChildren;
}

export function Link({ to, onClick, children, ...rest }: Anchor) {
  const go = (e: TargetedMouseEvent<HTMLAnchorElement>) => {
    onClick?.();
    if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
    e.preventDefault();
    navigate(to);
  };
  return (
    <a href={href(to)} onClick={go} {...rest}>
      {children}
    </a>
  );
}
