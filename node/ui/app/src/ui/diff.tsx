// The lines that a change takes out and puts in, with some around them.
interface Row {
  mark: " " | "+" | "-" | "…";
  text: string;
}

const around = 3;

// maxCells bounds the work of the comparison; above it all lines count as changed.
const maxCells = 4_000_000;

export function Diff({ before, after }: { before: string; after: string }) {
  const rows = shorten(compare(lines(before), lines(after)));
  if (rows.every((r) => r.mark === " ")) return <p class="muted">Nothing changes.</p>;
  return (
    <div class="scroll diff" role="group" aria-label="Differences" tabIndex={0}>
      <table>
        <caption class="sr-only">Lines that are removed and added</caption>
        <tbody>
          {rows.map((r, i) => (
            <tr key={i} class={r.mark === "+" ? "added" : r.mark === "-" ? "removed" : ""}>
              <td class="mark">
                <span aria-hidden="true">{r.mark}</span>
                <span class="sr-only">{r.mark === "+" ? "added" : r.mark === "-" ? "removed" : ""}</span>
              </td>
              <td>
                <code>{r.text}</code>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const lines = (text: string) => (text === "" ? [] : text.replace(/\n$/, "").split("\n"));

// compare finds the longest common lines.
function compare(a: string[], b: string[]): Row[] {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const x = a.slice(start, a.length - end);
  const y = b.slice(start, b.length - end);
  const same = (text: string): Row => ({ mark: " ", text });
  return [...a.slice(0, start).map(same), ...middle(x, y), ...a.slice(a.length - end).map(same)];
}

function middle(x: string[], y: string[]): Row[] {
  const out = (text: string): Row => ({ mark: "-", text });
  const put = (text: string): Row => ({ mark: "+", text });
  if (x.length * y.length > maxCells) return [...x.map(out), ...y.map(put)];
  const width = y.length + 1;
  const best = new Uint32Array((x.length + 1) * width);
  for (let i = x.length - 1; i >= 0; i--) {
    for (let j = y.length - 1; j >= 0; j--) {
      best[i * width + j] = x[i] === y[j] ? best[(i + 1) * width + j + 1]! + 1 : Math.max(best[(i + 1) * width + j]!, best[i * width + j + 1]!);
    }
  }
  const rows: Row[] = [];
  let i = 0;
  let j = 0;
  while (i < x.length && j < y.length) {
    if (x[i] === y[j]) {
      rows.push({ mark: " ", text: x[i++]! });
      j++;
    } else if (best[(i + 1) * width + j]! >= best[i * width + j + 1]!) rows.push(out(x[i++]!));
    else rows.push(put(y[j++]!));
  }
  return [...rows, ...x.slice(i).map(out), ...y.slice(j).map(put)];
}

// shorten leaves out what is far from any change.
function shorten(rows: Row[]): Row[] {
  const keep = new Set<number>();
  rows.forEach((r, i) => {
    if (r.mark !== " ") for (let k = i - around; k <= i + around; k++) keep.add(k);
  });
  const short: Row[] = [];
  rows.forEach((r, i) => {
    if (keep.has(i)) short.push(r);
    else if (short[short.length - 1]?.mark !== "…") short.push({ mark: "…", text: "" });
  });
  return keep.size === 0 ? rows : short;
}
