// The frame around every view: navigation, who is logged in, and whether what is shown is
// live.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get, post } from "../lib/api";
import { clock, duration, plural } from "../lib/format";
import { link, retry, useClock, useEvery, useLive } from "../lib/live";
import { Link, usePlace } from "../lib/router";
import { may, session, type Session } from "../lib/session";
import { store, useStore } from "../lib/store";
import { applyTheme, theme, type Theme } from "../lib/theme";
import type { NodeStatus, Status } from "../lib/types";
import { views } from "../views";
import { Icon } from "./icons";
import { State } from "./parts";

// known are the nodes as they were last: where else the dashboard may be opened when this
// node is gone.
const known = store<NodeStatus[]>([]);

export function Logo() {
  return (
    <span class="logo">
      <svg width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
        <rect width="32" height="32" rx="7" />
        <path d="M5 9h8c6 0 6 7 14 7M5 16h22M5 23h8c6 0 6-7 14-7" fill="none" stroke-width="3" stroke-linecap="round" />
      </svg>
      Penstock
    </span>
  );
}

export function Frame({ session: s, children }: { session: Session; children: ComponentChildren }) {
  const { path } = usePlace();
  const [open, setOpen] = useState(false);
  const first = useRef(true);
  useEffect(() => {
    setOpen(false);
    if (first.current) first.current = false;
    else document.getElementById("page-title")?.focus({ preventScroll: true });
  }, [path]);
  useKnownNodes();
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to the content
      </a>
      <header class="top">
        <button type="button" class="quiet menu" aria-expanded={open} aria-controls="nav" onClick={() => setOpen(!open)} aria-label="Menu">
          <Icon name={open ? "close" : "menu"} />
        </button>
        <Link to="/" class="home">
          <Logo />
        </Link>
        <span class="grow" />
        <LinkState node={s.node} />
        <ThemeSwitch />
        <User session={s} />
      </header>
      <nav id="nav" class={open ? "open" : ""} aria-label="Views" onKeyDown={(e) => e.key === "Escape" && setOpen(false)}>
        <Nav session={s} path={path} />
      </nav>
      <main id="main" tabIndex={-1}>
        <Lost node={s.node} />
        {children}
      </main>
    </div>
  );
}

function Nav({ session: s, path }: { session: Session; path: string }) {
  const { data } = useLive("problems");
  const problems = data?.problems?.length ?? 0;
  const at = (to: string) => (to === "/" ? path === "/" : path === to || path.startsWith(`${to}/`));
  return (
    <ul>
      {views
        .filter((v) => v.name && (!v.role || may(s, v.role)))
        .map((v) => (
          <li key={v.path}>
            <Link to={v.path} aria-current={at(v.path) ? "page" : undefined}>
              {v.icon && <Icon name={v.icon} />}
              <span>{v.name}</span>
              {v.path === "/" && problems > 0 && (
                <span class="pill" title={plural(problems, "problem")}>
                  {problems}
                  <span class="sr-only">{problems === 1 ? " problem" : " problems"}</span>
                </span>
              )}
            </Link>
          </li>
        ))}
    </ul>
  );
}

// LinkState says in the top bar whether values are live.
function LinkState({ node }: { node: string }) {
  const l = useStore(link);
  const tone = l.state === "live" ? "ok" : l.state === "lost" ? "error" : "idle";
  return (
    <span class="link-state" role="status">
      <State tone={tone}>
        {l.state === "live" ? "Live" : l.state === "lost" ? "Not live" : "Connecting"}
        <span class="node-name"> · {node}</span>
      </State>
    </span>
  );
}

// Lost says that this node does not answer, how old the values are and where else to look.
function Lost({ node }: { node: string }) {
  const l = useStore(link);
  const now = useClock(l.state === "lost");
  const others = useStore(known).filter((n) => n.name !== node && n.http);
  if (l.state !== "lost" || now - l.since < 1000) return null;
  const wait = Math.max(0, Math.ceil(((l.retryAt ?? now) - now) / 1000));
  return (
    <div class="lost" data-stale={Math.round((now - l.since) / 1000)}>
      <div>
        <p role="alert">
          <State tone="error">
            No news from {node} since {clock(l.since)}
          </State>
        </p>
        <p>
          <span class="muted">
            The values below are {duration((now - l.since) * 1e6)} old: {l.why}.
          </span>
          {others.length > 0 && (
            <>
              {" "}
              Open another node:{" "}
              {others.map((n) => (
                <a key={n.id} class="other" href={elsewhere(n.http)} rel="noreferrer">
                  {n.name}
                </a>
              ))}
            </>
          )}
        </p>
      </div>
      <button type="button" onClick={retry}>
        Try now{wait > 0 ? ` (${wait} s)` : ""}
      </button>
    </div>
  );
}

// elsewhere is the same view at another node.
export const elsewhere = (http: string) => `${location.protocol}//${http}${location.pathname}${location.search}`;

function useKnownNodes() {
  const ask = () => void get<Status>("/v1/status").then((s) => s.nodes && known.set(s.nodes), () => undefined);
  useEffect(ask, []);
  useEvery(60_000, ask);
}

const themes: [Theme, string, "system" | "sun" | "moon"][] = [
  ["system", "as the system", "system"],
  ["light", "light", "sun"],
  ["dark", "dark", "moon"],
];

function ThemeSwitch() {
  const now = useStore(theme);
  const at = themes.findIndex(([t]) => t === now);
  const [, word, icon] = themes[at]!;
  const next = themes[(at + 1) % themes.length]!;
  return (
    <button type="button" class="quiet theme" onClick={() => applyTheme(next[0])} aria-label={`Theme: ${word}. Change to ${next[1]}`} title={`Theme: ${word}`}>
      <Icon name={icon} />
    </button>
  );
}

function User({ session: s }: { session: Session }) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const outside = (e: Event) => !box.current?.contains(e.target as Node) && setOpen(false);
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, [open]);
  const logout = () => post("/ui/logout").then(() => session.set(null), () => session.set(null));
  return (
    <div class="user" ref={box} onKeyDown={(e) => e.key === "Escape" && setOpen(false)}>
      <button type="button" class="quiet" aria-expanded={open} aria-controls="user-menu" onClick={() => setOpen(!open)}>
        <span class="who">{s.name}</span>
        <span class="role">{s.role}</span>
      </button>
      <div id="user-menu" class="menu-box" hidden={!open}>
        <p>
          <strong class="breakable">{s.name}</strong>
          <br />
          <span class="muted">
            Role {s.role}
            {s.dev ? ", without login (--dev)" : ""}
            <br />
            Node {s.node}, version {s.version}
          </span>
        </p>
        {!s.dev && (
          <button type="button" onClick={logout}>
            <Icon name="out" /> Log out
          </button>
        )}
      </div>
    </div>
  );
}
