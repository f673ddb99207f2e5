package wire

// Edits change a message while it streams through a Walker, or whole, by
// Rewrite. Each may be nil.
type Edits struct {
	// Topic appends the name to be sent in place of one. All names of a
	// message grow by TopicGrowth bytes exactly, or shrink where it is
	// negative; an error ends the connection.
	Topic       func(dst, name []byte) ([]byte, error)
	TopicGrowth int
	// TransactionalID appends the id to be sent in place of that of a Produce
	// request. It may grow as it likes, since it comes first.
	TransactionalID func(dst, id []byte) ([]byte, error)
	// TopicID may replace an id where it stands. It may be asked twice about
	// the same one.
	TopicID func(id *[16]byte) error
	// FetchSession is told the number of the session in a response to Fetch
	// (KIP-227), 0 for none; it stays as it is. It may be told twice.
	FetchSession func(number int32)
	// TopicSize is told how many bytes of the message follow the name or id of
	// a topic as its part: partitions with their records. Of the last topic
	// it is told at once, the end of the message included, of others when
	// they are over.
	TopicSize func(bytes int)
	// Node gives the address to be shown for a broker (KIP-951). ok false
	// leaves the node out.
	Node NodeFunc
}

// NodeFunc maps a broker's address as the broker tells it to what clients are
// to see. ok false: clients are not to see it. An error ends the connection.
type NodeFunc func(id int32, host string, port int32) (vhost string, vport int32, ok bool, err error)
