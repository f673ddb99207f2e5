// Package envoy tests the discovery server with the clients that it is for: real
// Envoys, which setup.sh installs, and gRPC's own xDS client. Both start from what
// penstock xds bootstrap writes.
package envoy
