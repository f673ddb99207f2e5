// Draws a layout on a canvas, and moves from one to the next. Frames are asked for only
// while something moves.
import { boxWidth, type Box, type Layout, type Ribbon } from "./layout";

export interface Look {
  text: string;
  muted: string;
  surface: string;
  lines: string[];
  none: string;
  font: string;
}

interface Moving {
  ribbon: Ribbon;
  from: [number, number, number]; // y0, y1, height
  to: [number, number, number];
}
interface MovingBox {
  box: Box;
  from: [number, number];
  to: [number, number];
}

const duration = 420; // milliseconds

// readLook reads the colours of the theme in force.
export function readLook(element: Element): Look {
  const probe = document.createElement("i");
  element.append(probe);
  const colour = (name: string) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const look = {
    text: colour("--text"),
    muted: colour("--muted"),
    surface: colour("--surface"),
    lines: [1, 2, 3, 4, 5].map((i) => colour(`--line-${i}`)),
    none: colour("--line-strong"),
    font: getComputedStyle(element).fontFamily,
  };
  probe.remove();
  return look;
}

export class Picture {
  private boxes: MovingBox[] = [];
  private ribbons: Moving[] = [];
  private layout: Layout | undefined;
  private start = 0;
  private frame = 0;
  private texts = new Map<string, string>();
  private lit: string | undefined; // id of a ribbon or a box
  look: Look;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly show: (value: number) => string,
    private readonly margin: { left: number; right: number; top: number },
  ) {
    this.look = readLook(canvas.parentElement ?? canvas);
  }

  stop() {
    cancelAnimationFrame(this.frame);
  }

  // move shows another layout, at once if motion is not wanted.
  move(next: Layout, still: boolean) {
    const t = this.progress();
    const boxes = new Map(this.boxes.map((b) => [b.box.node.id, mix(b.from, b.to, t)]));
    const ribbons = new Map(this.ribbons.map((r) => [r.ribbon.link.id, mix(r.from, r.to, t)]));
    const leaving = this.ribbons.filter((r) => r.to[2] > 0 && !next.ribbons.has(r.ribbon.link.id));
    this.boxes = [...next.boxes.values()].map((box) => ({ box, from: (boxes.get(box.node.id) ?? [box.y + box.height / 2, 0]) as [number, number], to: [box.y, box.height] }));
    this.ribbons = [
      ...[...next.ribbons.values()].map((ribbon): Moving => {
        const to: Moving["to"] = [ribbon.y0, ribbon.y1, ribbon.height];
        return { ribbon, from: (ribbons.get(ribbon.link.id) ?? [to[0], to[1], 0]) as Moving["from"], to };
      }),
      ...leaving.map((r): Moving => {
        const now = ribbons.get(r.ribbon.link.id) as Moving["from"];
        return { ribbon: r.ribbon, from: now, to: [now[0], now[1], 0] };
      }),
    ];
    this.layout = next;
    this.start = still ? -Infinity : performance.now();
    this.again();
  }

  light(id: string | undefined) {
    if (id === this.lit) return;
    this.lit = id;
    this.again();
  }

  again() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      const t = this.progress();
      this.draw(t);
      if (t < 1) this.again();
    });
  }

  // at finds what is drawn at a point of the canvas, in CSS pixels.
  at(px: number, py: number): { box?: Box; ribbon?: Ribbon } | undefined {
    const x = px - this.margin.left;
    const y = py - this.margin.top;
    for (const { box } of this.boxes) {
      if (!box.node.through && x >= box.x - 2 && x <= box.x + boxWidth + 2 && y >= box.y - 2 && y <= box.y + box.height + 2) return { box };
    }
    let best: Ribbon | undefined;
    let distance = Infinity;
    for (const { ribbon: r, to } of this.ribbons) {
      if (to[2] === 0 || x < r.x0 || x > r.x1) continue;
      const off = Math.abs(y - middleAt(r, x));
      if (off <= r.height / 2 + 2 && off < distance) {
        best = r;
        distance = off;
      }
    }
    return best && { ribbon: best };
  }

  private progress(): number {
    const t = Math.min(1, (performance.now() - this.start) / duration);
    return 1 - (1 - t) ** 3;
  }

  private draw(t: number) {
    const c = this.canvas.getContext("2d");
    if (!c || !this.layout) return;
    const ratio = devicePixelRatio || 1;
    const { width, height } = this.canvas;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, width, height);
    c.setTransform(ratio, 0, 0, ratio, this.margin.left * ratio, this.margin.top * ratio);
    for (const r of this.ribbons) this.ribbon(c, r, t);
    for (const b of this.boxes) if (!b.box.node.through) this.box(c, b, t);
    c.globalAlpha = 1;
    for (const b of this.boxes) if (!b.box.node.through) this.label(c, b, t);
  }

  private colour(i: number) {
    return i < 0 ? this.look.none : this.look.lines[i % this.look.lines.length]!;
  }

  private ribbon(c: CanvasRenderingContext2D, m: Moving, t: number) {
    const { x0, x1, link } = m.ribbon;
    const [y0, y1, h] = mix(m.from, m.to, t) as Moving["from"];
    if (h < 0.05) return;
    const lit = this.lit !== undefined && (this.lit === link.id || this.lit === link.from || this.lit === link.to);
    const through = (x1 - x0) / 2 + x0;
    c.globalAlpha = lit ? 0.7 : this.lit ? 0.14 : 0.32;
    c.fillStyle = this.colour(link.colour);
    c.beginPath();
    c.moveTo(x0, y0 - h / 2);
    c.bezierCurveTo(through, y0 - h / 2, through, y1 - h / 2, x1, y1 - h / 2);
    c.lineTo(x1, y1 + h / 2);
    c.bezierCurveTo(through, y1 + h / 2, through, y0 + h / 2, x0, y0 + h / 2);
    c.fill();
    if (link.to && this.layout?.boxes.get(link.to)?.node.through) c.fillRect(x1, y1 - h / 2, boxWidth, h);
  }

  private box(c: CanvasRenderingContext2D, m: MovingBox, t: number) {
    const [y, h] = mix(m.from, m.to, t) as [number, number];
    c.globalAlpha = 1;
    c.fillStyle = this.colour(m.box.node.colour);
    c.beginPath();
    c.roundRect(m.box.x, y, boxWidth, Math.max(1, h), Math.min(3, h / 2));
    c.fill();
  }

  private label(c: CanvasRenderingContext2D, m: MovingBox, t: number) {
    const [y, h] = mix(m.from, m.to, t) as [number, number];
    const { node, x } = m.box;
    const last = this.layout?.boxes && x >= this.layout.width - boxWidth - 1;
    const first = x === 0;
    const room = last ? this.margin.right - 14 : first ? this.margin.left - 14 : 130;
    const size = h > 26 ? 13 : 12;
    c.font = `550 ${size}px ${this.look.font}`;
    c.textBaseline = "middle";
    c.textAlign = first ? "right" : "left";
    const at = first ? x - 7 : x + boxWidth + 7;
    const value = this.show(node.value);
    const both = h > 26;
    const middle = y + h / 2;
    this.outlined(c, this.fit(c, node.label, room, size), at, both ? middle - 8 : middle, this.look.text);
    c.font = `450 12px ${this.look.font}`;
    if (both) this.outlined(c, value, at, middle + 8, this.look.muted);
  }

  // outlined keeps text legible over ribbons.
  private outlined(c: CanvasRenderingContext2D, text: string, x: number, y: number, colour: string) {
    c.lineJoin = "round";
    c.lineWidth = 3.5;
    c.strokeStyle = this.look.surface;
    c.strokeText(text, x, y);
    c.fillStyle = colour;
    c.fillText(text, x, y);
  }

  // fit shortens a text to a width; what it found is kept, since measuring is slow.
  private fit(c: CanvasRenderingContext2D, text: string, room: number, size: number): string {
    const key = `${size}\u0000${room}\u0000${text}`;
    let found = this.texts.get(key);
    if (found === undefined) {
      found = text.length > 200 ? text.slice(0, 200) : text;
      if (c.measureText(found).width > room) {
        let low = 0;
        let high = found.length;
        while (low < high) {
          const half = Math.ceil((low + high) / 2);
          if (c.measureText(`${found.slice(0, half)}…`).width <= room) low = half;
          else high = half - 1;
        }
        found = `${found.slice(0, low)}…`;
      }
      if (this.texts.size > 2000) this.texts.clear();
      this.texts.set(key, found);
    }
    return found;
  }
}

function mix(from: number[], to: number[], t: number): number[] {
  return from.map((v, i) => v + (to[i]! - v) * t);
}

// middleAt is the middle of a ribbon at x, on the curve that draw makes.
function middleAt(r: Ribbon, x: number): number {
  const half = (r.x0 + r.x1) / 2;
  const cubic = (a: number, b: number, d: number, e: number, t: number) => a * (1 - t) ** 3 + 3 * b * (1 - t) ** 2 * t + 3 * d * (1 - t) * t ** 2 + e * t ** 3;
  let low = 0;
  let high = 1;
  for (let i = 0; i < 16; i++) {
    const t = (low + high) / 2;
    if (cubic(r.x0, half, half, r.x1, t) < x) low = t;
    else high = t;
  }
  return cubic(r.y0, r.y0, r.y1, r.y1, (low + high) / 2);
}
