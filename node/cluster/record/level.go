package record

// A level says which resources a version of the program understands. A node
// that reads a resource which it does not understand must stop rather than skip
// it, so a resource is refused until every member has announced a sufficient
// level. Nodes of the first release announce none, which is 0.
const (
	// LevelKafka adds the kinds of Kafka, and listeners for it.
	LevelKafka = 1
	// LevelGroups adds log entries with several batches.
	LevelGroups = 1
	// LevelPolicies adds MeshHTTPRoutes and all that came with them.
	LevelPolicies = 2
	// LevelRequests adds http of Listeners and http.upgrades of Services.
	LevelRequests = 3
	// LevelProviders adds EndpointProviders, and endpointsFrom, endpointDrain and
	// discovery of Services.
	LevelProviders = 4
	// LevelIdentity adds TrafficPermissions, RateLimits, workload identities, and
	// the fields of other kinds that came with them.
	LevelIdentity = 5
	// LevelMySQL adds the protocol mysql, balancing.matchTag, and port, portTag and type
	// mysql of healthCheck.
	LevelMySQL = 6
	// LevelTelemetry adds Telemetry.
	LevelTelemetry = 7
	// OwnLevel is the level of this version. A change that brings a kind, a
	// field or a value which the previous release refuses adds a level.
	OwnLevel = LevelTelemetry
)
