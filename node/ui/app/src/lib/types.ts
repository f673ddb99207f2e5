// Generated from the types of node/api by TestDashboardTypesAreTheNodes. Do not edit.
//
// A list or a map may be null. Durations are nanoseconds, times RFC 3339, bytes base64.

export interface ApplyResult {
  index: number;
  changes: Change[] | null;
  warnings?: Fault[];
  reached: Reached;
}

export interface AuditEntry {
  at: string;
  first?: string;
  count: number;
  node: string;
  who: string;
  role?: string;
  token?: string;
  from: string;
  via?: string;
  act: string;
  what: string;
  request?: string;
  rule?: string;
  outcome: string;
  error?: string;
}

export interface AuditItem {
  entries: AuditEntry[] | null;
  more?: boolean;
  missing?: string[];
}

export interface BackendState {
  service: string;
  tags?: string;
  weight: number;
  share: number;
  skipped?: string;
  closed?: string;
  next: boolean;
}

export interface BudgetUse {
  key: string;
  of: string;
  used: number;
  wait?: number;
}

export interface Change {
  kind: string;
  name: string;
  action: string;
  before?: string;
  after?: string;
}

export interface CloseConnectionsRequest {
  node?: string;
  listener?: string;
  service?: string;
  endpoint?: string;
  client?: string;
  who?: string;
  id?: number;
  reason?: string;
  over?: number;
}

export interface ClosedConnections {
  closing: number;
  missing?: string[];
}

export interface ClusterRate {
  name: string;
  requests: number;
  errors: number;
  throttled: number;
}

export interface Connection {
  id: number;
  node?: string;
  listener: string;
  client: string;
  sni?: string;
  tls?: string;
  identity?: string;
  user?: string;
  clientID?: string;
  destination?: string;
  service?: string;
  route?: string;
  subset?: string;
  endpoint?: string;
  attempts?: number;
  phase: string;
  bytesIn: number;
  bytesOut: number;
  age: number;
  idle: number;
  reason?: string;
  error?: string;
  ended?: string;
}

export interface Connections {
  connections: Connection[] | null;
  total: number;
  missing?: string[];
}

export interface Counted {
  nodes: number;
  of: number;
  missing?: string[];
}

export interface DeleteResult {
  index: number;
  kind: string;
  name: string;
  warnings?: Fault[];
  reached: Reached;
}

export interface DimensionUse {
  of: string;
  allowed: number;
  refused: number;
  queued: number;
  paced: number;
}

export interface DrainRequest {
  node?: string;
  undo?: boolean;
  over?: number;
}

export interface DrainResult {
  node: string;
  connections: number;
  over: number;
}

export interface Effective {
  destination: string;
  missing?: boolean;
  policies: number;
  sources: EffectiveSource[] | null;
  requests?: EffectiveSource[];
  noRequests?: string;
}

export interface EffectiveBackend {
  service: string;
  tags?: Record<string, string>;
  weight: number;
  share: number;
  skipped?: string;
  closed?: string;
}

export interface EffectiveCursor {
  destination?: string;
  sources?: number;
}

export interface EffectiveLoser {
  policy: string;
  source: string;
  why: string;
}

export interface EffectivePolicy {
  policy: string;
  source: string;
}

export interface EffectiveResult {
  node: string;
  destinations: Effective[] | null;
  more?: EffectiveCursor;
}

export interface EffectiveRule {
  requests: string[] | null;
  does?: string[];
  backends?: EffectiveBackend[];
  reason?: string;
}

export interface EffectiveSource {
  source: string;
  policy?: string;
  backends: EffectiveBackend[] | null;
  rules?: EffectiveRule[];
  moreRules?: number;
  rollout?: RolloutProgress;
  reason?: string;
  never?: string;
  losers?: EffectiveLoser[];
  moreLosers?: number;
  except?: EffectivePolicy[];
  moreExcept?: number;
}

export interface Endpoint {
  service: string;
  address: string;
  resolved?: string;
  source: string;
  alsoFrom?: string[];
  since?: string;
  state: string;
  health: string;
  weight: number;
  priority: number;
  backup?: boolean;
  levelShare: number;
  zone?: string;
  tags?: Record<string, string>;
  connections: number;
  load?: string;
  bound?: number;
}

export interface EndpointState {
  address: string;
  at?: string;
  tags?: string;
  weight: number;
  source?: string;
  alsoFrom?: string[];
  since?: string;
  health: string;
  ejected?: string;
  active: number;
  grown: number;
  load?: string;
  priority?: number;
  backup?: boolean;
  levelShare?: number;
  near: boolean;
  eligible: boolean;
  why?: string;
  used: boolean;
  error?: string;
  errorAt?: string;
}

export interface EndpointStatus {
  address: string;
  resolved?: string;
  health: string;
  connections: number;
  used: boolean;
  load?: string;
  reason?: string;
  error?: string;
  errorAt?: string;
}

export interface Error {
  code: string;
  message: string;
  details?: string[];
  faults?: Fault[];
}

export interface ExplainRequest {
  node?: string;
  listener: string;
  sni?: string;
  alpn?: string[];
  user?: string;
  client?: string;
  tags?: Record<string, string>;
  request?: HTTPRequest;
  kafka?: KafkaRequest;
}

export interface Explanation {
  steps: Step[] | null;
  destination?: string;
  service?: string;
  endpoint?: string;
  reason?: string;
  route?: string;
  rule?: number;
  status?: number;
  location?: string;
}

export interface Fault {
  key: string;
  path: string;
  message: string;
  value?: string;
  document?: number;
  line?: number;
}

export interface Flow {
  listener: string;
  service: string;
  connections: number;
  newRate: number;
  inRate: number;
  outRate: number;
  total: number;
  bytesIn: number;
  bytesOut: number;
}

export interface FlowResult {
  at: string;
  streams: Stream[] | null;
  more?: number;
  missing?: string[];
}

export interface Group {
  labels?: string[];
  values?: number[];
  counts?: number[];
  sums?: number[];
}

export interface HTTPRequest {
  method?: string;
  path?: string;
  host?: string;
  headers?: Record<string, string>;
}

export interface HistoryResult {
  kind: string;
  name: string;
  revisions: Revision[] | null;
}

export interface KafkaPermissionUse {
  virtualCluster: string;
  api: string;
  permission: string;
  shadow?: boolean;
  denied: number;
}

export interface KafkaRequest {
  principal?: string;
  clientID?: string;
  operation?: string;
  topic?: string;
  group?: string;
  transactionalID?: string;
}

export interface Late {
  node: string;
  why: string;
}

export interface LimitUse {
  limit: string;
  by: string;
  keys: number;
  maxKeys: number;
  overflows: number;
  of: DimensionUse[] | null;
  fullest?: BudgetUse[];
}

export interface Limits {
  node: string;
  limits: LimitUse[] | null;
}

export interface ListenerStatus {
  node?: string;
  name: string;
  address: string;
  state: string;
  connections: number;
  total: number;
  error?: string;
}

export interface LogAttr {
  key: string;
  value: string;
}

export interface LogEntry {
  at: string;
  node: string;
  level: string;
  message: string;
  attrs?: LogAttr[];
}

export interface LogsItem {
  entries: LogEntry[] | null;
  more?: boolean;
  missing?: string[];
  lost?: number;
}

export interface Member {
  name: string;
  id: string;
  role: string;
  state: string;
  address: string;
  version: string;
  connections: number;
}

export interface NodeSample {
  name: string;
  connections: number;
  newRate: number;
  inRate: number;
  outRate: number;
  error?: string;
}

export interface NodeStatus {
  name: string;
  id: string;
  role: string;
  state: string;
  appliedIndex: number;
  lag: number;
  resources: number;
  connections: number;
  address: string;
  http: string;
  uptime: string;
  version: string;
}

export interface PermissionUse {
  permission: string;
  action: string;
  denied: number;
}

export interface Permissions {
  node: string;
  permissions: PermissionUse[] | null;
  kafka?: KafkaPermissionUse[];
}

export interface PolicyState {
  name: string;
  source: string;
  matches: boolean;
  wins: boolean;
  why?: string;
}

export interface Problem {
  severity: string;
  about: string;
  text: string;
  command?: string;
}

export interface Problems {
  at?: string;
  problems: Problem[] | null;
  more?: number;
  missing?: string[];
}

export interface ProviderQuery {
  service: string;
  port?: string;
  endpoints: number;
  unused?: number;
  fault?: string;
  answered?: string;
  changed?: string;
  stale?: boolean;
  error?: string;
  failures?: number;
  warning?: string;
  heldSince?: string;
  expired?: boolean;
}

export interface ProviderStatus {
  node: string;
  name: string;
  state: string;
  error?: string;
  services?: ProviderQuery[];
}

export interface ProxiesStatus {
  node: string;
  connected: number;
  refusing?: number;
  behind?: number;
  problems?: Proxy[];
}

export interface Proxy {
  node: string;
  service?: string;
  identity?: string;
  address: string;
  since: string;
  id?: string;
  agent?: string;
  zone?: string;
  announced?: string;
  streams: number;
  types?: ProxyType[];
}

export interface ProxyType {
  type: string;
  delta?: boolean;
  all?: boolean;
  names?: number;
  sent?: string;
  accepted?: string;
  behind?: string;
  rejected?: string;
  rejectedAt?: string;
  refusing?: boolean;
}

export interface Reached {
  nodes: number;
  late?: Late[];
}

export interface Recorded {
  name: string;
  kind: string;
  labels?: string[];
  series: number;
  step: number;
}

export interface Revision {
  version: number;
  at: string;
  who: string;
  what: string;
  deleted?: boolean;
  yaml?: string;
}

export interface Rollout {
  route: string;
  destination: string;
  backend: string;
  phase: string;
  step: number;
  steps: number;
  weight: number;
  since: string;
  reason?: string;
  left?: number;
  held?: string;
  connects: number;
  failed: number;
  resets: number;
  window: number;
  endpoints: number;
  ejected: number;
  nodes: number;
  silent?: string[];
}

export interface RolloutProgress {
  step: number;
  steps: number;
  weight: number;
  phase: string;
}

export interface RolloutResult {
  index: number;
  rollout: Rollout;
  reached: Reached;
}

export interface ServiceStatus {
  name: string;
  state: string;
  connections: number;
  waiting?: number;
  endpoints: EndpointStatus[] | null;
}

export interface Session {
  node: string;
  id: number;
  client?: string;
  user: string;
  listener: string;
  service: string;
  endpoint: string;
  age: number;
  state: string;
  cause?: string;
  since?: string;
  why?: string;
  moves: number;
  failure?: string;
  failedAt?: string;
}

export interface Sessions {
  sessions: Session[] | null;
  total: number;
  missing?: string[];
}

export interface SimulateResult {
  node: string;
  words: string[] | null;
  counted?: Counted;
  warnings?: Fault[];
  simulation?: Simulation;
}

export interface SimulatedOutcome {
  destination?: string;
  service?: string;
  subset?: string;
  endpoint?: string;
  reason?: string;
  route?: string;
  status?: number;
  location?: string;
  before: number;
  after: number;
}

export interface SimulatedRun {
  listener?: string;
  serverName?: string;
  alpn?: string;
  user?: string;
  destination?: string;
  source?: string;
  request?: string;
  outcomes: SimulatedOutcome[] | null;
  moreOutcomes?: number;
}

export interface Simulation {
  connections: number;
  plays: SimulatedRun[] | null;
  morePlays?: number;
}

export interface Status {
  leader: string;
  alone?: string;
  nodes: NodeStatus[] | null;
  listeners: ListenerStatus[] | null;
  services: ServiceStatus[] | null;
  virtualClusters?: VirtualClusterStatus[];
  rollouts?: Rollout[];
  notAccepted?: string[];
  warnings?: string[];
  providers?: ProviderStatus[];
  proxies?: ProxiesStatus[];
}

export interface Step {
  name: string;
  looked: string;
  result: string;
  tags?: Tag[];
  policies?: PolicyState[];
  rules?: EffectiveRule[];
  backends?: BackendState[];
  endpoints?: EndpointState[];
}

export interface Stream {
  listener: string;
  route?: string;
  destination: string;
  service: string;
  subset?: string;
  endpoint?: string;
  connections: number;
  inRate: number;
  outRate: number;
}

export interface Tag {
  name: string;
  value: string;
  from: string;
}

export interface TelemetryFrame {
  metric: string;
  kind: string;
  buckets?: number[];
  step: number;
  points: number;
  groups: Group[] | null;
  quantiles?: TelemetryQuantile[];
}

export interface TelemetryNode {
  name: string;
  error?: string;
}

export interface TelemetryQuantile {
  quantile: number;
  groups: ((number | null)[])[] | null;
}

export interface TelemetryResult {
  at: string;
  frames?: TelemetryFrame[];
  metrics?: Recorded[];
  nodes: TelemetryNode[] | null;
}

export interface TopSample {
  node: string;
  nodes?: NodeSample[];
  at: string;
  interval: number;
  connections: number;
  flows: Flow[] | null;
  latest?: Connection[];
  virtualClusters?: ClusterRate[];
}

export interface TopologyEdge {
  from: TopologyNode;
  to: TopologyNode;
  hosts?: string[];
  moreHosts?: number;
  policy?: string;
  source?: string;
  requests?: string[];
  weight?: number;
  share?: number;
  skipped?: string;
  closed?: string;
}

export interface TopologyListener {
  name: string;
  address: string;
  protocol: string;
}

export interface TopologyNode {
  kind: string;
  name: string;
  tags?: Record<string, string>;
}

export interface TopologyResult {
  node: string;
  listeners: TopologyListener[] | null;
  services: TopologyService[] | null;
  edges: TopologyEdge[] | null;
  truncated?: boolean;
}

export interface TopologyService {
  name: string;
  protocol: string;
  endpoints: number;
  usable: number;
  sources?: string[];
  policies?: string[];
}

export interface Trace {
  connection: Connection;
  events: TraceEvent[] | null;
  decision?: Explanation;
  logs?: LogEntry[];
}

export interface TraceEvent {
  name: string;
  at: string;
  after: number;
  text?: string;
}

export interface Version {
  version: string;
  go: string;
}

export interface VirtualBrokerStatus {
  name: string;
  endpoint: string;
  address: string;
  connections: number;
  error?: string;
}

export interface VirtualClusterStatus {
  name: string;
  physicalCluster: string;
  filters: string[] | null;
  error?: string;
  brokers: VirtualBrokerStatus[] | null;
  connections: number;
}

export type Endpoints = Endpoint[] | null;

export type Members = Member[] | null;

export type Rollouts = Rollout[] | null;

export const kinds = [
  ["Listener", "listeners"],
  ["Service", "services"],
  ["MeshTCPRoute", "meshtcproutes"],
  ["MeshHTTPRoute", "meshhttproutes"],
  ["Certificate", "certificates"],
  ["Host", "hosts"],
  ["TrafficPermission", "trafficpermissions"],
  ["Mesh", "meshes"],
  ["EndpointProvider", "endpointproviders"],
  ["RateLimit", "ratelimits"],
  ["WorkloadIdentity", "workloadidentities"],
  ["TrustBundle", "trustbundles"],
  ["Telemetry", "telemetries"],
  ["Gateway", "gateways"],
  ["TCPRoute", "tcproutes"],
  ["TLSRoute", "tlsroutes"],
  ["ReferenceGrant", "referencegrants"],
  ["PhysicalCluster", "physicalclusters"],
  ["VirtualCluster", "virtualclusters"],
  ["Rollout", "rollouts"],
] as const;
