// The session of this browser. undefined: not asked yet; null: there is none.
import { store } from "./store";

export interface Session {
  name: string;
  role: string;
  csrf: string;
  node: string;
  version: string;
  dev?: boolean;
}

export const session = store<Session | null | undefined>(undefined);

const order = ["reader", "operator", "admin"];

// may reports whether the session's role includes another.
export function may(s: Session | null | undefined, least: string): boolean {
  return !!s && order.indexOf(s.role) >= order.indexOf(least) && order.includes(s.role);
}
