import { render } from "preact";
import { App } from "./app";
import { applyTheme, theme } from "./lib/theme";

applyTheme(theme.get());
const root = document.getElementById("app");
if (root) render(<App />, root);
