// Overview: what is wrong now, then the traffic, the nodes, the listeners and the services.
import { useLive } from "../lib/live";
import type { Problem } from "../lib/types";
import { Card, Command, Failed, Loading, Missing, Page, State } from "../ui/parts";

export function Overview() {
  const problems = useLive("problems");
  return (
    <Page title="Overview">
      <Card title="What is wrong now" wide>
        {problems.data ? <Problems list={problems.data.problems ?? []} /> : problems.error ? <Failed what="Problems are not known" error={problems.error} /> : <Loading />}
        <Missing nodes={problems.data?.missing} />
      </Card>
    </Page>
  );
}

function Problems({ list }: { list: Problem[] }) {
  if (list.length === 0) {
    return (
      <p class="all-well">
        <State tone="ok">Nothing: all nodes, listeners and services work.</State>
      </p>
    );
  }
  return (
    <ul class="problems">
      {list.map((p) => (
        <li key={`${p.about} ${p.text}`}>
          <State tone={p.severity === "error" ? "error" : "warning"}>{p.severity === "error" ? "Error" : "Warning"}</State>
          <span class="about breakable">{p.about}</span>
          <span class="breakable">{p.text}</span>
          {p.command && <Command text={p.command} />}
        </li>
      ))}
    </ul>
  );
}

