// The picture of the flow. It is drawn on a canvas; the table beside it says the same to a
// screen reader and to the keyboard.
import { useEffect, useRef, useState } from "preact/hooks";
import { Picture, readLook } from "../flow/draw";
import { columns, type Column, type Graph, type Link, type Metric, type Node } from "../flow/graph";
import { layout, type Layout } from "../flow/layout";
import { onLook } from "../lib/theme";
import type { Stream } from "../lib/types";

const margin = { left: 118, right: 176, top: 10 };
const minWidth = 620; // below it the picture scrolls in its own box
const titles: Record<Column, string> = { listener: "Listeners", route: "Routes", service: "Services", subset: "Subsets", endpoint: "Endpoints" };

interface Props {
  graph: Graph;
  metric: Metric;
  show: (value: number) => string;
  open: (s: Stream) => void;
  pick: (n: Node) => void;
  preview: boolean;
}

interface Tip {
  x: number;
  y: number;
  lines: string[];
}

export function FlowPicture({ graph, show, metric, open, pick, preview }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const picture = useRef<Picture>(undefined);
  const placed = useRef<Layout>(undefined);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [tip, setTip] = useState<Tip | null>(null);

  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const measure = () => setSize({ width: Math.max(minWidth, Math.floor(el.clientWidth)), height: Math.max(320, Math.min(640, Math.floor(innerHeight - 290))) });
    const watch = new ResizeObserver(measure);
    watch.observe(el);
    return () => watch.disconnect();
  }, []);

  useEffect(() => {
    if (!canvas.current) return;
    const p = new Picture(canvas.current, show, margin);
    picture.current = p;
    const off = onLook(() =>
      // The theme's colours are in force with the next frame.
      requestAnimationFrame(() => {
        p.look = readLook(canvas.current?.parentElement ?? document.body);
        p.again();
      }),
    );
    return () => {
      p.stop();
      off();
    };
  }, [metric]);

  useEffect(() => {
    const c = canvas.current;
    if (!c || !picture.current || size.width === 0) return;
    const ratio = devicePixelRatio || 1;
    if (c.width !== Math.round(size.width * ratio) || c.height !== Math.round(size.height * ratio)) {
      c.width = Math.round(size.width * ratio);
      c.height = Math.round(size.height * ratio);
      c.style.width = `${size.width}px`;
      c.style.height = `${size.height}px`;
    }
    const resized = placed.current?.width !== size.width - margin.left - margin.right;
    const started = performance.now();
    placed.current = layout(graph, size.width - margin.left - margin.right, size.height - margin.top * 2, placed.current);
    performance.measure("flow-layout", { start: started, end: performance.now() });
    picture.current.move(placed.current, resized || matchMedia("(prefers-reduced-motion: reduce)").matches);
  }, [graph, size, metric]);

  const at = (e: MouseEvent) => {
    const r = canvas.current!.getBoundingClientRect();
    return { found: picture.current?.at(e.clientX - r.left, e.clientY - r.top), x: e.clientX - r.left, y: e.clientY - r.top };
  };
  const move = (e: MouseEvent) => {
    const { found, x, y } = at(e);
    picture.current?.light(found?.box?.node.id ?? found?.ribbon?.link.id);
    canvas.current!.style.cursor = found ? "pointer" : "";
    setTip(found ? { x, y, lines: found.box ? aboutNode(found.box.node, show) : aboutLink(found.ribbon!.link, graph, show) } : null);
  };
  const leave = () => {
    picture.current?.light(undefined);
    setTip(null);
  };
  const click = (e: MouseEvent) => {
    const { found } = at(e);
    leave();
    if (found?.box) pick(found.box.node);
    else if (found?.ribbon) open(found.ribbon.link.stream);
  };
  const shown = columns.filter((c) => graph.shown.includes(c));
  const unit = metric === "connections" ? "connections" : "traffic";
  return (
    <figure class="card flow" data-preview={preview}>
      <div class="scroll" ref={box} role="group" aria-label="Picture of the flow" tabIndex={0}>
        <div class="flow-inner" style={{ width: `${size.width}px` }}>
          <div class="flow-columns" aria-hidden="true" style={{ paddingLeft: `${margin.left}px`, paddingRight: `${margin.right}px` }}>
            {shown.map((c) => (
              <span key={c}>{titles[c]}</span>
            ))}
          </div>
          <div class="flow-canvas">
            <canvas ref={canvas} role="img" aria-label={summary(graph, unit, show)} onMouseMove={move} onMouseLeave={leave} onClick={click} />
            {tip && (
              <div class="tip" style={{ left: `${Math.min(tip.x + 14, size.width - 250)}px`, top: `${tip.y + 14}px` }}>
                {tip.lines.map((l, i) => (
                  <div key={i} class={i === 0 ? "strong breakable" : "breakable"}>
                    {l}
                  </div>
                ))}
              </div>
            )}
          </div>
        </div>
      </div>
      <figcaption class="muted note">
        {preview ? "Preview: the ribbons have the sizes that the weights below would give." : "A click on a ribbon explains it, on a listener or service filters by it. The same is in the table."}
      </figcaption>
    </figure>
  );
}

function aboutNode(n: Node, show: (v: number) => string): string[] {
  return [n.label, `${titles[n.column].slice(0, -1)}: ${show(n.value)}`];
}

function aboutLink(l: Link, g: Graph, show: (v: number) => string): string[] {
  const s = l.stream;
  const share = l.value / Math.max(1e-9, g.total);
  const way = [s.listener, s.route, s.service, s.subset].filter(Boolean).join(" → ");
  const lines = [`${show(l.value)} · ${(share * 100).toFixed(1)}% of what is shown`];
  if (l.streams === 1) return [...lines, `${way} → ${s.endpoint || "connecting"}`];
  return [...lines, `${l.streams} streams, the largest:`, `${way} → ${s.endpoint || "connecting"}`];
}

function summary(g: Graph, unit: string, show: (v: number) => string): string {
  const parts = g.shown.map((c) => {
    const list = g.nodes.filter((n) => n.column === c && !n.through).sort((a, b) => b.value - a.value);
    return `${titles[c].toLowerCase()}: ${list.slice(0, 5).map((n) => `${n.label} ${show(n.value)}`).join(", ")}${list.length > 5 ? ` and ${list.length - 5} more` : ""}`;
  });
  return `Flow of ${unit}. ${parts.join("; ")}. The table has all of them.`;
}
