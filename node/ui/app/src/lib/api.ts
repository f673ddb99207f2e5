// Requests to the node that served the page. A Failure says what went wrong in the words
// of the node, or that it did not answer.
import { session } from "./session";
import type { Fault } from "./types";

export class Failure extends Error {
  constructor(
    message: string,
    readonly status: number, // 0: the node did not answer
    readonly code = "",
    readonly faults: Fault[] = [],
  ) {
    super(message);
  }
  get unreachable() {
    return this.status === 0;
  }
}

type Query = Record<string, string | number | boolean | string[] | undefined>;

// address appends a query; what is undefined, false or empty is left out, true has no value.
export function address(path: string, query: Query = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) value.forEach((v) => params.append(name, v));
    else if (value === true) params.append(name, "");
    else if (value !== undefined && value !== false && value !== "") params.append(name, String(value));
  }
  const text = params.toString();
  return text ? `${path}?${text}` : path;
}

// segment makes a name safe as a part of a path.
export const segment = (name: string) => encodeURIComponent(name);

export const get = <T>(path: string, query?: Query, signal?: AbortSignal) => send<T>("GET", address(path, query), undefined, signal);
export const post = <T>(path: string, body?: unknown, query?: Query, signal?: AbortSignal) => send<T>("POST", address(path, query), body ?? {}, signal);
export const remove = <T>(path: string) => send<T>("DELETE", path);

async function send<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = {};
  const csrf = session.get()?.csrf;
  if (method !== "GET" && csrf) headers["X-Penstock-CSRF"] = csrf;
  let content: string | undefined;
  if (body !== undefined) {
    headers["Content-Type"] = typeof body === "string" ? "application/yaml" : "application/json";
    content = typeof body === "string" ? body : JSON.stringify(body);
  }
  let response: Response;
  try {
    response = await fetch(path, { method, headers, body: content, signal, credentials: "same-origin" });
  } catch (err) {
    if (signal?.aborted) throw err;
    throw new Failure("the node does not answer", 0);
  }
  if (!response.ok) throw refusal(response, await response.text().catch(() => ""));
  return (response.status === 204 ? undefined : await response.json()) as T;
}

// refusal reads why a node refuses. Without a session the login follows.
export function refusal(response: Response, text: string): Failure {
  let refused: { error?: string; code?: string; faults?: Fault[] } = {};
  try {
    refused = JSON.parse(text);
  } catch {
    refused = { error: text.trim().slice(0, 500) };
  }
  const failure = new Failure(refused.error || `${response.status} ${response.statusText}`, response.status, refused.code, refused.faults ?? []);
  if (response.status === 401 && session.get()) session.set(null);
  return failure;
}

export const failureOf = (err: unknown): Failure =>
  err instanceof Failure ? err : new Failure(err instanceof Error ? err.message : String(err), -1);
