package wire

// Edits change a message while it streams through a Walker, or whole, by
// Rewrite. Each may be nil.
type Edits struct {
	// Topic appends the replacement of a topic's name. Every name of a message
	// must grow by exactly TopicGrowth bytes, or shrink if it is negative. An
	// error ends the connection.
	Topic       func(dst, name []byte) ([]byte, error)
	TopicGrowth int
	// TransactionalID appends the replacement of the transactional id of a Produce
	// request. It may have any length, since it comes first.
	TransactionalID func(dst, id []byte) ([]byte, error)
	// TopicID may replace an id in place. It may be called twice for one id.
	TopicID func(id *[16]byte) error
	// FetchSession receives the session id in a response to Fetch (KIP-227), 0 for
	// none; the id stays as it is. It may be called twice.
	FetchSession func(number int32)
	// TopicSize receives the number of bytes behind the name or id of a topic that
	// belong to it: partitions with their records. It is called at the end of the
	// topic, except for the last topic: there it is called at once, and the end of
	// the message counts as well.
	TopicSize func(bytes int)
	// Node returns the address to show for a broker (KIP-951). If ok is false, the
	// node is left out.
	Node NodeFunc
}

// NodeFunc maps a broker's own address to the one that clients see. If ok is
// false, clients must not see the broker. An error ends the connection.
type NodeFunc func(id int32, host string, port int32) (vhost string, vport int32, ok bool, err error)
