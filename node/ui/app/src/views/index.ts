// The views, in the order of the navigation. One with a parameter in its path is reached
// from another view and has no entry of its own.
import type { FunctionComponent } from "preact";
import type { IconName } from "../ui/icons";
import { Audit } from "./audit";
import { Connection } from "./connection";
import { Connections } from "./connections";
import { Flow } from "./flow";
import { Kafka } from "./kafka";
import { Logs } from "./logs";
import { Overview } from "./overview";
import { Permissions } from "./permissions";
import { Resource } from "./resource";
import { Resources } from "./resources";
import { Rollouts } from "./rollouts";

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
  { path: "/connections", view: Connections, name: "Connections", icon: "connections" },
  { path: "/connections/:node/:id", view: Connection },
  { path: "/rollouts", view: Rollouts, name: "Rollouts", icon: "rollouts" },
  { path: "/kafka", view: Kafka, name: "Kafka", icon: "kafka" },
  { path: "/permissions", view: Permissions, name: "Permissions", icon: "permissions" },
  { path: "/logs", view: Logs, name: "Logs", icon: "logs" },
  { path: "/resources", view: Resources, name: "Resources", icon: "history" },
  { path: "/resources/:kind/:name", view: Resource },
  { path: "/audit", view: Audit, name: "Audit", icon: "audit", role: "admin" },
];
