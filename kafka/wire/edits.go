package wire

// Edits change a message while it streams through a Walker. Each may be nil.
type Edits struct {
	// Topic appends the name to be sent in place of one. All names of a
	// message grow by TopicGrowth bytes exactly, or shrink where it is
	// negative; an error ends the connection.
	Topic       func(dst, name []byte) ([]byte, error)
	TopicGrowth int
	// TopicID may replace an id where it stands.
	TopicID func(id *[16]byte) error
	// Node gives the address to be shown for a broker (KIP-951). ok false
	// leaves the node out.
	Node func(id int32, host string, port int32) (vhost string, vport int32, ok bool, err error)
}
