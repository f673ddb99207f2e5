// A Store holds one value and tells who listens when it is replaced.
import { useEffect, useState } from "preact/hooks";

export interface Store<T> {
  get(): T;
  set(value: T): void;
  listen(heard: () => void): () => void;
}

export function store<T>(value: T): Store<T> {
  const heard = new Set<() => void>();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const h of [...heard]) h();
    },
    listen(h) {
      heard.add(h);
      return () => heard.delete(h);
    },
  };
}

export function useStore<T>(s: Store<T>): T {
  const [value, set] = useState(s.get());
  useEffect(() => {
    set(s.get());
    return s.listen(() => set(s.get()));
  }, [s]);
  return value;
}
