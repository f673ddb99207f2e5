// The theme: that of the system, unless the user has chosen one.
import { store } from "./store";

export type Theme = "system" | "light" | "dark";

const key = "penstock-theme";
const saved = (): Theme => {
  try {
    const t = localStorage.getItem(key);
    return t === "light" || t === "dark" ? t : "system";
  } catch {
    return "system"; // storage is off
  }
};

export const theme = store<Theme>(saved());

export function applyTheme(t: Theme) {
  const root = document.documentElement;
  if (t === "system") delete root.dataset.theme;
  else root.dataset.theme = t;
  try {
    if (t === "system") localStorage.removeItem(key);
    else localStorage.setItem(key, t);
  } catch {
    // Without storage the choice lasts until the page is left.
  }
  theme.set(t);
}

// onLook calls back when colours change, for what is drawn by script.
export function onLook(changed: () => void): () => void {
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", changed);
  const off = theme.listen(changed);
  return () => {
    media.removeEventListener("change", changed);
    off();
  };
}
