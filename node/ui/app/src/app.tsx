// The application: a session first, then the frame with the view of the address.
import { useEffect, useState } from "preact/hooks";
import { Failure, failureOf, get } from "./lib/api";
import { match, usePlace } from "./lib/router";
import { session, type Session } from "./lib/session";
import { useStore } from "./lib/store";
import { Frame } from "./ui/frame";
import { Empty, Failed, Loading, Page } from "./ui/parts";
import { Link } from "./lib/router";
import { Login } from "./views/login";
import { views } from "./views";

export function App() {
  const s = useStore(session);
  const [error, setError] = useState("");
  const ask = () => {
    setError("");
    get<Session>("/ui/session").then(
      (found) => session.set(found),
      (err: unknown) => {
        const f: Failure = failureOf(err);
        if (f.status === 401) session.set(null);
        else setError(f.message);
      },
    );
  };
  useEffect(ask, []);
  if (error) {
    return (
      <main class="alone">
        <h1 class="sr-only">Penstock</h1>
        <Failed what="The dashboard cannot start" error={error} retry={ask} />
      </main>
    );
  }
  if (s === undefined) {
    return (
      <main class="alone">
        <h1 class="sr-only">Penstock</h1>
        <Loading lines={3} />
      </main>
    );
  }
  if (s === null) return <Login />;
  return (
    <Frame session={s}>
      <View />
    </Frame>
  );
}

function View() {
  const { path } = usePlace();
  for (const v of views) {
    const params = match(v.path, path);
    if (params) return <v.view key={path} {...params} />;
  }
  return (
    <Page title="Not found">
      <Empty title="There is no such page">
        <Link to="/">Overview</Link>
      </Empty>
    </Page>
  );
}
