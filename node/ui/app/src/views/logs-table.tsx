// Lines of the logs.
import type { LogEntry } from "../lib/types";
import { clock, moment } from "../lib/format";
import { Link } from "../lib/router";
import { segment } from "../lib/api";
import { State, type Tone } from "../ui/parts";
import { Peer } from "../ui/text";

const tones: Record<string, Tone> = { error: "error", warn: "warning", info: "info", debug: "idle" };

export function LogTable({ lines, caption }: { lines: LogEntry[]; caption: string }) {
  return (
    <div class="scroll logs" role="region" aria-label={caption} tabIndex={0}>
      <table>
        <caption class="sr-only">{caption}</caption>
        <thead>
          <tr>
            <th scope="col">Time</th>
            <th scope="col">Level</th>
            <th scope="col" class="minor">
              Node
            </th>
            <th scope="col" class="grow">
              Message
            </th>
          </tr>
        </thead>
        <tbody>
          {lines.map((l, i) => (
            <tr key={lineKey(l, i)}>
              <td class="code" title={moment(l.at)}>
                {clock(l.at)}
              </td>
              <td>
                <State tone={tones[l.level] ?? "idle"}>{l.level}</State>
              </td>
              <td class="minor">{l.node}</td>
              <td class="grow">
                <span class="message">
                  <Peer text={l.message} />
                </span>
                <Attrs of={l} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const lineKey = (l: LogEntry, i: number) => `${l.at} ${l.node} ${i}`;

function Attrs({ of: l }: { of: LogEntry }) {
  return (
    <>
      {(l.attrs ?? []).map((a, i) => (
        <span key={i} class="attr">
          <span class="key">{a.key}</span>=
          {(a.key === "connection" || (a.key === "id" && l.message.startsWith("connection"))) && /^\d+$/.test(a.value) ? (
            <Link to={`/connections/${segment(l.node)}/${a.value}`}>{a.value}</Link>
          ) : (
            <Peer text={a.value || '""'} />
          )}
        </span>
      ))}
    </>
  );
}
