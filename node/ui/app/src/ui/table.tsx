// A table that sorts by its headings. Long ones show their first rows until more are asked
// for, so that 10,000 endpoints cost no more than what is seen.
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { whole } from "../lib/format";
import { Icon } from "./icons";

export interface Column<T> {
  id: string;
  title: string;
  cell: (row: T) => ComponentChildren;
  // sort gives what rows are ordered by; without it they are not by this column.
  sort?: (row: T) => string | number;
  number?: boolean; // aligned right, with digits of one width
  code?: boolean; // an address or a name for machines
  wide?: boolean; // takes the room that is left
  minor?: boolean; // left out on a phone
}

interface Props<T> {
  caption: string; // for screen readers
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  // first is the column that rows are sorted by at first, "-" before it for the largest first;
  // without it the rows keep their order.
  first?: string;
  page?: number;
  open?: (row: T) => void; // what a click on a row does; the first cell becomes the button
  marked?: (row: T) => boolean;
}

export function Table<T>({ caption, columns, rows, id, first = "", page = 100, open, marked }: Props<T>) {
  const [order, setOrder] = useState(first);
  const [shown, setShown] = useState(page);
  const down = order.startsWith("-");
  const by = down ? order.slice(1) : order;
  const sorted = useMemo(() => {
    const sort = columns.find((c) => c.id === by)?.sort;
    if (!sort) return rows;
    const turn = down ? -1 : 1;
    return rows
      .map((row) => [sort(row), row] as const)
      .sort(([a], [b]) => turn * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true })))
      .map(([, row]) => row);
  }, [rows, by, down]);
  const kind = (c: Column<T>) => [c.number && "number", c.code && "code", c.wide && "grow", c.minor && "minor"].filter(Boolean).join(" ");
  return (
    <>
      <div class="scroll" role="group" aria-label={caption} tabIndex={0}>
        <table>
          <caption class="sr-only">{caption}</caption>
          <thead>
            <tr>
              {columns.map((c) => (
                <th key={c.id} scope="col" class={kind(c)} aria-sort={by !== c.id ? undefined : down ? "descending" : "ascending"}>
                  {c.sort ? (
                    <button type="button" class="sorter" onClick={() => setOrder(by === c.id ? (down ? c.id : `-${c.id}`) : c.number ? `-${c.id}` : c.id)}>
                      {c.title}
                      <span aria-hidden="true">{by !== c.id ? "" : down ? " ↓" : " ↑"}</span>
                    </button>
                  ) : (
                    c.title || <span class="sr-only">{c.id}</span>
                  )}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {sorted.slice(0, shown).map((row) => (
              <tr key={id(row)} class={`${open ? "opens" : ""}${marked?.(row) ? " marked" : ""}`} onClick={open && ((e) => !(e.target as Element).closest("a,button,input") && open(row))}>
                {columns.map((c, i) => (
                  <td key={c.id} class={kind(c)}>
                    {open && i === 0 ? (
                      <button type="button" class="link" onClick={() => open(row)}>
                        {c.cell(row)}
                      </button>
                    ) : (
                      c.cell(row)
                    )}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {sorted.length > shown && (
        <div class="more">
          <span class="muted">
            {whole(shown)} of {whole(sorted.length)}
          </span>
          <button type="button" onClick={() => setShown(shown + Math.max(page, 100))}>
            Show more <Icon name="right" size={12} />
          </button>
        </div>
      )}
    </>
  );
}
