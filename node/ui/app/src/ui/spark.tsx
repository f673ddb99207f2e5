// Lines over the last minutes, as SVG. A table of the same numbers would say too much to a
// screen reader: the label has the last value and the range.
import { useId } from "preact/hooks";

export interface Line {
  name: string;
  values: (number | null)[];
  tone?: string; // a class: line-1, line-2, error
}

interface Props {
  title: string;
  lines: Line[];
  show: (value: number) => string;
  height?: number;
  area?: boolean;
}

const width = 240;

export function Spark({ title, lines, show, height = 56, area = true }: Props) {
  const id = useId();
  const all = lines.flatMap((l) => l.values.filter((v): v is number => v !== null));
  const top = Math.max(...all, 0) || 1;
  const y = (v: number) => height - 2 - (v / top) * (height - 6);
  const words = lines.map((l) => `${l.name} ${text(last(l.values), show)}`).join(", ");
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-labelledby={id}>
      <title id={id}>{`${title}: ${words}; at most ${show(all.length ? Math.max(...all) : 0)}`}</title>
      <line class="floor" x1="0" x2={width} y1={height - 1.5} y2={height - 1.5} />
      {lines.map((l, i) => {
        const step = l.values.length > 1 ? width / (l.values.length - 1) : width;
        const parts = segments(l.values).map((s) => s.map(([x, v]) => `${(x * step).toFixed(1)},${y(v).toFixed(1)}`));
        return (
          <g key={l.name} class={l.tone ?? `line-${i + 1}`}>
            {area && i === 0 && parts.map((p, k) => <polygon key={k} points={`${p[0]!.split(",")[0]},${height} ${p.join(" ")} ${p[p.length - 1]!.split(",")[0]},${height}`} />)}
            {parts.map((p, k) => (
              <polyline key={k} points={p.length > 1 ? p.join(" ") : `${p[0]} ${p[0]}`} />
            ))}
          </g>
        );
      })}
    </svg>
  );
}

// segments cuts a line where there is no value.
function segments(values: (number | null)[]): [number, number][][] {
  const all: [number, number][][] = [];
  let open = false;
  for (const [x, v] of values.entries()) {
    if (v === null) open = false;
    else {
      if (!open) all.push([]);
      all[all.length - 1]!.push([x, v]);
      open = true;
    }
  }
  return all;
}

export function last(values: (number | null)[]): number | null {
  for (let i = values.length - 1; i >= 0; i--) if (values[i] !== null) return values[i] ?? null;
  return null;
}

const text = (v: number | null, show: (value: number) => string) => (v === null ? "unknown" : show(v));
