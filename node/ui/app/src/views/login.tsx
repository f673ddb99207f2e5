// Login with a token. The token goes to the node once and is kept nowhere.
import { useEffect, useRef, useState } from "preact/hooks";
import { failureOf, post } from "../lib/api";
import { session, type Session } from "../lib/session";
import { Command, State } from "../ui/parts";
import { Logo } from "../ui/frame";

export function Login() {
  const input = useRef<HTMLInputElement>(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Log in · Penstock";
    input.current?.focus();
  }, []);
  const submit = async (e: Event) => {
    e.preventDefault();
    const token = input.current?.value.trim() ?? "";
    if (!token) {
      setError("Enter a token: it begins with pst1.");
      input.current?.focus();
      return;
    }
    setBusy(true);
    setError("");
    try {
      session.set(await post<Session>("/ui/login", { token }));
    } catch (err) {
      const f = failureOf(err);
      setError(f.unreachable ? "The node does not answer. Try again, or open the dashboard of another node." : f.message);
      setBusy(false);
      input.current?.select();
    }
  };
  return (
    <main class="alone login">
      <form class="card" method="post" onSubmit={submit} aria-labelledby="login-title">
        <Logo />
        <h1 id="login-title">Log in</h1>
        <div class="field">
          <label for="token">Token</label>
          <input id="token" ref={input} type="password" name="token" autoComplete="current-password" spellcheck={false} placeholder="pst1.…" aria-describedby="login-help" aria-invalid={error !== ""} />
        </div>
        <p role="alert" class="breakable">
          {error && <State tone="error">{error}</State>}
        </p>
        <button type="submit" class="primary" disabled={busy}>
          {busy ? "Logging in…" : "Log in"}
        </button>
        <div id="login-help" class="muted">
          <p>A token that only reads, for twelve hours, made on any node:</p>
          <Command text="penstock token create --role reader --ttl 12h" />
        </div>
      </form>
    </main>
  );
}
