package trace

// Keys of attributes of spans and of log records, so that one query finds both. Those
// without "penstock." are of OpenTelemetry's semantic conventions.
const (
	KeyListener    = "penstock.listener"
	KeyService     = "penstock.service"
	KeyEndpoint    = "penstock.endpoint"
	KeyConnection  = "penstock.connection.id" // on its node
	KeyReason      = "penstock.reason"        // why it ended: docs/reasons.md
	KeyIdentity    = "penstock.client.identity"
	KeyRoute       = "penstock.route"
	KeySubset      = "penstock.subset"      // tags of the endpoints that the route chose
	KeyDestination = "penstock.destination" // the service that the listener names
	KeyRule        = "penstock.rule"        // index of the route's rule
	KeyAttempts    = "penstock.attempts"
	KeyConnect     = "penstock.connect.duration" // seconds
	KeyDuration    = "penstock.duration"         // seconds
	KeyBytesIn     = "penstock.bytes.in"         // from the client
	KeyBytesOut    = "penstock.bytes.out"        // from the endpoint
	KeyRequests    = "penstock.requests"
	KeyHop         = "penstock.hop" // of a mesh
	KeyVia         = "penstock.via"
	KeyPermission  = "penstock.permission"
	KeyShadow      = "penstock.permission.shadow"

	KeyClientAddress = "client.address"
	KeyClientPort    = "client.port"
	KeySNI           = "tls.client.server_name"
	KeyTLS           = "tls.protocol.version"
	KeyMethod        = "http.request.method"
	KeyHost          = "server.address"
	KeyPath          = "url.path"
	KeyStatus        = "http.response.status_code"
	KeyError         = "error.message"

	KeyKafkaClientID  = "messaging.client.id"
	KeyKafkaSoftware  = "penstock.kafka.software"
	KeyKafkaPrincipal = "penstock.kafka.principal"
)

// The events of a connection's span, which are those of node/api's Trace too.
const (
	EventAccepted   = "accepted"
	EventIdentified = "identified"
	EventDecided    = "decided"
	EventConnecting = "connecting"
	EventConnected  = "connected"
	EventFirstIn    = "firstByteIn"
	EventFirstOut   = "firstByteOut"
	EventClosed     = "closed"
)
