// Package kafka proxies Kafka: clients see virtual clusters, each of which
// stands for a physical one, whole, under other addresses and seen through
// filters.
//
//	model     what users write (PhysicalCluster, VirtualCluster), its faults,
//	          and the compiled table: listener and server name -> virtual broker
//	wire      frames and headers, which versions are flexible, incremental
//	          walks and edits in place: bytes in, bytes out
//	filter    what a filter is, and the chain; one package for each filter
//	session   one client connection with its one upstream connection
//	discover  which brokers a physical cluster has
//
// It decides nothing about sockets: netio carries the bytes, a session says
// which.
package kafka
