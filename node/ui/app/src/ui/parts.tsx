// The parts that every view is made of. Whatever comes from outside is given to them as
// text and becomes a text node.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { useClock } from "../lib/live";
import { ago } from "../lib/format";
import { Icon, type IconName } from "./icons";

// Page is one view. Its heading takes the focus when the view is opened.
export function Page({ title, intro, actions, children }: { title: string; intro?: ComponentChildren; actions?: ComponentChildren; children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${title} · Penstock`;
  }, [title]);
  return (
    <>
      <div class="page-head">
        <div>
          <h1 tabIndex={-1} id="page-title">
            {title}
          </h1>
          {intro && <p class="muted">{intro}</p>}
        </div>
        {actions && <div class="actions">{actions}</div>}
      </div>
      {children}
    </>
  );
}

export function Card({ title, note, actions, children, wide, flush }: { title: string; note?: ComponentChildren; actions?: ComponentChildren; children?: ComponentChildren; wide?: boolean; flush?: boolean }) {
  const id = useId();
  return (
    <section class={`card${wide ? " wide" : ""}${flush ? " flush" : ""}`} aria-labelledby={id}>
      <div class="card-head">
        <h2 id={id}>{title}</h2>
        {note && <span class="muted note">{note}</span>}
        {actions && <div class="actions">{actions}</div>}
      </div>
      {children}
    </section>
  );
}

export type Tone = "ok" | "warning" | "error" | "idle" | "info";

// State is a word with a mark of its own shape, since not everyone sees colours.
export function State({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return (
    <span class={`state ${tone}`}>
      <Icon name={tone as IconName} size={14} />
      <span>{children}</span>
    </span>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="strong">{title}</p>
      {children && <p class="muted">{children}</p>}
    </div>
  );
}

export function Failed({ what, error, retry }: { what: string; error: string; retry?: () => void }) {
  return (
    <div class="empty" role="alert">
      <State tone="error">{what}</State>
      <p class="muted breakable">{error}</p>
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Loading({ lines = 4 }: { lines?: number }) {
  return (
    <div class="loading" aria-busy="true">
      <span class="sr-only">Loading</span>
      {Array.from({ length: lines }, (_, i) => (
        <div key={i} class="bone" aria-hidden="true" />
      ))}
    </div>
  );
}

// Missing names the nodes whose part is not in what is shown.
export function Missing({ nodes }: { nodes: string[] | null | undefined }) {
  if (!nodes?.length) return null;
  return (
    <p class="missing">
      <State tone="warning">Without {nodes.length === 1 ? "one node" : `${nodes.length} nodes`}</State> <span class="breakable">{nodes.join("; ")}</span>
    </p>
  );
}

// Age says how old something is that is no longer renewed.
export function Age({ at }: { at: number }) {
  useClock();
  return <time dateTime={new Date(at).toISOString()}>{ago(at)}</time>;
}

// Command is a command line with a button that copies it.
export function Command({ text }: { text: string }) {
  const [said, say] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say("Copied");
    } catch {
      say("Select the text to copy it"); // without TLS browsers have no clipboard
    }
    setTimeout(() => say(""), 2000);
  };
  return (
    <span class="command">
      <code>{text}</code>
      <button type="button" class="quiet" onClick={copy} aria-label={`Copy ${text}`} title="Copy">
        <Icon name={said === "Copied" ? "check" : "copy"} />
      </button>
      <span class={said && said !== "Copied" ? "muted" : "sr-only"} role="status">
        {said}
      </span>
    </span>
  );
}

// Panel is a dialog: at the side, or in the middle for a decision. Esc closes it, and the
// focus goes back to where it was.
export function Panel({ title, onClose, children, middle }: { title: string; onClose: () => void; children?: ComponentChildren; middle?: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    return () => before?.focus?.({ preventScroll: true });
  }, []);
  return (
    <dialog
      ref={dialog}
      class={middle ? "panel middle" : "panel side"}
      aria-labelledby={id}
      onClose={onClose}
      onClick={(e) => e.target === dialog.current && dialog.current?.close()}
    >
      <div class="panel-body">
        <div class="panel-head">
          <h2 id={id}>{title}</h2>
          <button type="button" class="quiet" onClick={() => dialog.current?.close()} aria-label="Close">
            <Icon name="close" />
          </button>
        </div>
        {children}
      </div>
    </dialog>
  );
}

// Confirm asks before something is done that traffic notices.
export function Confirm({ title, children, act, word, danger, onClose }: { title: string; children?: ComponentChildren; act: () => Promise<unknown>; word: string; danger?: boolean; onClose: () => void }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const go = async () => {
    setBusy(true);
    setError("");
    try {
      await act();
      onClose();
    } catch (err) {
      setError(err instanceof Error ? err.message : String(err));
      setBusy(false);
    }
  };
  return (
    <Panel title={title} onClose={onClose} middle>
      {children}
      {error && (
        <p role="alert" class="breakable">
          <State tone="error">{error}</State>
        </p>
      )}
      <div class="actions end">
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="button" class={danger ? "danger" : "primary"} onClick={go} disabled={busy}>
          {busy ? "Working…" : word}
        </button>
      </div>
    </Panel>
  );
}

// Field is a labelled input in a filter bar.
export function Field({ label, value, onChange, placeholder, list, inputMode }: { label: string; value: string; onChange: (value: string) => void; placeholder?: string; list?: string[]; inputMode?: "numeric" | "text" }) {
  const id = useId();
  // A list of hundreds of names is rendered again only when it is another one.
  const names = list?.slice(0, 500).join("\n");
  const known = useMemo(
    () =>
      names !== undefined && (
        <datalist id={`${id}-list`}>
          {names.split("\n").map((v) => (
            <option key={v} value={v} />
          ))}
        </datalist>
      ),
    [names, id],
  );
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        type="search"
        value={value}
        placeholder={placeholder}
        list={list ? `${id}-list` : undefined}
        inputMode={inputMode}
        autoComplete="off"
        spellcheck={false}
        onInput={(e) => onChange(e.currentTarget.value)}
      />
      {known}
    </div>
  );
}

export function Choice({ label, value, options, onChange }: { label: string; value: string; options: [string, string][]; onChange: (value: string) => void }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(e) => onChange(e.currentTarget.value)}>
        {options.map(([v, text]) => (
          <option key={v} value={v}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}

// Segments choose one of a few; arrow keys move as in any group of radio buttons.
export function Segments({ label, value, options, onChange }: { label: string; value: string; options: [string, string][]; onChange: (value: string) => void }) {
  const name = useId();
  return (
    <fieldset class="segments">
      <legend class="sr-only">{label}</legend>
      {options.map(([v, text]) => (
        <label key={v} class={v === value ? "on" : ""}>
          <input type="radio" name={name} checked={v === value} onChange={() => onChange(v)} />
          <span>{text}</span>
        </label>
      ))}
    </fieldset>
  );
}

// Bar shows a share of a whole beside its number.
export function Bar({ share, tone = "info" }: { share: number; tone?: Tone }) {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return (
    <span class={`bar ${tone}`} aria-hidden="true">
      <span style={{ width }} />
    </span>
  );
}

// useSettled waits until a value has not changed for a while.
export function useSettled<T>(value: T, ms = 250): T {
  const [settled, set] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => set(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
