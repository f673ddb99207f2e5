// Numbers, sizes and times as the dashboard shows them. Digits are grouped by a thin space.

const units = ["", "k", "M", "G", "T", "P"];

// count shortens a number: 950, 1.2k, 34k, 5.6M.
export function count(n: number | null | undefined): string {
  if (n === null || n === undefined || !Number.isFinite(n)) return "–";
  const sign = n < 0 ? "−" : "";
  let value = Math.abs(n);
  if (value < 10 && value % 1 !== 0) return sign + value.toFixed(value < 0.1 ? 2 : 1);
  let unit = 0;
  while (Math.round(value) >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return sign + (unit > 0 && value < 9.95 ? value.toFixed(1) : String(Math.round(value))) + units[unit];
}

// whole shows every digit.
export const whole = (n: number) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, "\u2009");

export function bytes(n: number | null | undefined): string {
  if (n === null || n === undefined || !Number.isFinite(n)) return "–";
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let value = n;
  let unit = 0;
  while (Math.round(value) >= 1024 && unit < names.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit > 0 && value < 9.95 ? value.toFixed(1) : Math.round(value)} ${names[unit]}`;
}

export const rate = (n: number | null | undefined) => (n === null || n === undefined ? "–" : `${bytes(n)}/s`);
export const percent = (share: number) => `${share * 100 < 9.95 && share > 0 ? (share * 100).toFixed(1) : Math.round(share * 100)}%`;

const second = 1e9; // durations are nanoseconds
const steps: [number, string][] = [
  [86400 * second, "d"],
  [3600 * second, "h"],
  [60 * second, "m"],
  [second, "s"],
];

// duration shows the two largest units: 3d 4h, 2m 5s, 340 ms, 12 µs.
export function duration(ns: number | null | undefined): string {
  if (ns === null || ns === undefined || !Number.isFinite(ns)) return "–";
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${short(ns / 1e3)} µs`;
  if (ns < second) return `${short(ns / 1e6)} ms`;
  const at = steps.findIndex(([size]) => ns >= size);
  const [size, unit] = steps[at]!;
  const next = steps[at + 1];
  const first = Math.floor(ns / size);
  const rest = next ? Math.floor((ns % size) / next[0]) : 0;
  if (!next && ns < 10 * second) return `${(ns / second).toFixed(1)}s`;
  return rest && next ? `${first}${unit} ${rest}${next[1]}` : `${first}${unit}`;
}

const short = (n: number) => (n < 9.95 ? n.toFixed(1) : String(Math.round(n)));

// latency takes seconds.
export const latency = (seconds: number | null | undefined) => duration(seconds === null || seconds === undefined ? undefined : seconds * second);

// goDuration reads what Go prints, such as 1h2m3.5s, into nanoseconds; undefined: it is none.
export function goDuration(text: string): number | undefined {
  const sizes: Record<string, number> = { h: 3600e9, m: 60e9, s: 1e9, ms: 1e6, "µs": 1e3, us: 1e3, ns: 1 };
  let total = 0;
  let read = 0;
  for (const m of text.matchAll(/([\d.]+)(ms|µs|us|ns|h|m|s)/g)) {
    total += Number(m[1]) * sizes[m[2]!]!;
    read += m[0].length;
  }
  return read > 0 && read === text.length ? total : undefined;
}

export function clock(at: string | number | Date): string {
  const d = new Date(at);
  return Number.isNaN(d.getTime()) ? "–" : d.toLocaleTimeString(undefined, { hour12: false });
}

export function moment(at: string | number | Date): string {
  const d = new Date(at);
  if (Number.isNaN(d.getTime()) || d.getFullYear() < 1971) return "–";
  const date = `${d.getFullYear()}-${String(d.getMonth() + 1).padStart(2, "0")}-${String(d.getDate()).padStart(2, "0")}`;
  return `${date} ${clock(d)}`;
}

// ago says how long ago a moment was, by the clock of this machine.
export const ago = (at: string | number | Date) => `${duration(Math.max(0, Date.now() - new Date(at).getTime()) * 1e6)} ago`;

export const plural = (n: number, one: string, many = `${one}s`) => `${whole(n)} ${n === 1 ? one : many}`;
