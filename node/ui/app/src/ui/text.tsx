// Text that a peer has chosen: a server name, a user, a line of a log. It becomes a text
// node; what a reader could not see, or what would turn the text around, is written out.
import type { ComponentChildren } from "preact";

// hidden are control characters, those without a width, and those that change the direction.
const hidden = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

export function Peer({ text }: { text: string | undefined }) {
  if (!text) return <>–</>;
  const parts: ComponentChildren[] = [];
  let at = 0;
  for (const m of text.matchAll(hidden)) {
    parts.push(text.slice(at, m.index));
    parts.push(
      <span key={m.index} class="control">
        {written(m[0])}
      </span>,
    );
    at = m.index + m[0].length;
  }
  parts.push(text.slice(at));
  return <bdi>{parts}</bdi>;
}

const written = (c: string) => {
  const n = c.charCodeAt(0);
  return n === 10 ? "\\n" : n === 13 ? "\\r" : n === 9 ? "\\t" : n < 256 ? `\\x${n.toString(16).padStart(2, "0")}` : `\\u${n.toString(16).padStart(4, "0")}`;
};
