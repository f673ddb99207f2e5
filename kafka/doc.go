// Package kafka proxies Kafka. Clients connect to virtual clusters; each stands
// for a physical cluster, under other addresses and behind a chain of filters.
//
//	model     PhysicalCluster and VirtualCluster as resources, their validation,
//	          and the compiled table: listener and server name -> virtual broker
//	wire      frames, headers and API versions; edits of messages as bytes
//	filter    the filter interface and the chain; one package for each filter
//	session   one client connection with its one broker connection
//	discover  finds the brokers of a physical cluster
//
// Package netio owns the sockets. This package decides which bytes they carry.
package kafka
