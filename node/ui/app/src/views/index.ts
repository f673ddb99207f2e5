// The views, in the order of the navigation. One with a parameter in its path is reached
// from another view and has no entry of its own.
import type { FunctionComponent } from "preact";
import type { IconName } from "../ui/icons";
import { Flow } from "./flow";
import { Overview } from "./overview";

export interface ViewEntry {
  path: string;
  // A view takes the parameters of its path, all of them strings.
  view: FunctionComponent<Record<string, string>>;
  name?: string; // in the navigation
  icon?: IconName;
  role?: string; // the least role; without it any
}

export const views: ViewEntry[] = [
  { path: "/", view: Overview, name: "Overview", icon: "overview" },
  { path: "/flow", view: Flow, name: "Flow", icon: "flow" },
];
