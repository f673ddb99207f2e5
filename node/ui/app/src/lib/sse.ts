// Server-sent events read by fetch instead of EventSource: the status of a refusal and the
// comments that keep a stream alive are seen, so that a node that has vanished without a
// FIN is noticed.

export interface Handlers {
  open?(): void;
  event(name: string, data: string): void;
}

// silence is how long a stream may say nothing, in milliseconds: nodes send a comment
// every 15 seconds.
const silence = 40_000;

// Refused is thrown where a node answers with a refusal instead of a stream.
export class Refused extends Error {
  constructor(
    readonly response: Response,
    readonly body: string,
  ) {
    super(String(response.status));
  }
}

// readEvents reads a stream until it ends, and throws what is wrong with it.
export async function readEvents(url: string, on: Handlers, signal: AbortSignal): Promise<void> {
  const stop = new AbortController();
  const abort = () => stop.abort();
  signal.addEventListener("abort", abort);
  let watchdog = setTimeout(abort, silence);
  try {
    const response = await fetch(url, { signal: stop.signal, headers: { Accept: "text/event-stream" }, credentials: "same-origin", cache: "no-store" });
    if (!response.ok || !response.body) throw new Refused(response, await response.text());
    on.open?.();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser(on.event);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(abort, silence);
      parse(value);
    }
  } finally {
    clearTimeout(watchdog);
    signal.removeEventListener("abort", abort);
    stop.abort();
  }
}

// parser takes the stream in pieces of any size.
export function parser(event: (name: string, data: string) => void): (piece: string) => void {
  let pieces: string[] = []; // of the line that is not complete
  let name = "";
  let data: string[] = [];
  const line = (text: string) => {
    if (text === "") {
      if (data.length > 0) event(name || "message", data.join("\n"));
      name = "";
      data = [];
      return;
    }
    const colon = text.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? "" : text.slice(text[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "event") name = value;
    else if (field === "data") data.push(value);
  };
  return (piece) => {
    let from = 0;
    for (let end = piece.indexOf("\n"); end >= 0; end = piece.indexOf("\n", from)) {
      pieces.push(piece.slice(from, end));
      const whole = pieces.join("");
      pieces = [];
      line(whole.endsWith("\r") ? whole.slice(0, -1) : whole);
      from = end + 1;
    }
    if (from < piece.length) pieces.push(piece.slice(from));
  };
}
