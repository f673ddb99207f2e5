package filter

// mergeEdits makes one Edits of several that are applied one after the other.
func mergeEdits(all []*Edits) *Edits {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	merged := *all[0]
	for _, e := range all[1:] {
		merged.Topic = chainNames(merged.Topic, e.Topic)
		merged.TopicGrowth += e.TopicGrowth
		merged.TransactionalID = chainNames(merged.TransactionalID, e.TransactionalID)
		merged.TopicID = chainIDs(merged.TopicID, e.TopicID)
		merged.FetchSession = chainSessions(merged.FetchSession, e.FetchSession)
		merged.TopicSize = chainSizes(merged.TopicSize, e.TopicSize)
		merged.Node = chainNodes(merged.Node, e.Node)
	}
	return &merged
}

func chainNames(first, second func(dst, name []byte) ([]byte, error)) func(dst, name []byte) ([]byte, error) {
	if first == nil || second == nil {
		return firstNonNil(first, second)
	}
	var between []byte
	return func(dst, name []byte) (_ []byte, err error) {
		if between, err = first(between[:0], name); err != nil {
			return nil, err
		}
		return second(dst, between)
	}
}

func firstNonNil(a, b func(dst, name []byte) ([]byte, error)) func(dst, name []byte) ([]byte, error) {
	if a == nil {
		return b
	}
	return a
}

func chainIDs(first, second func(*[16]byte) error) func(*[16]byte) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(id *[16]byte) error {
		if err := first(id); err != nil {
			return err
		}
		return second(id)
	}
}

func chainSessions(first, second func(int32)) func(int32) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(number int32) {
		first(number)
		second(number)
	}
}

func chainSizes(first, second func(int)) func(int) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(bytes int) { first(bytes); second(bytes) }
}

type nodeFunc = func(id int32, host string, port int32) (string, int32, bool, error)

func chainNodes(first, second nodeFunc) nodeFunc {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(id int32, host string, port int32) (string, int32, bool, error) {
		host, port, ok, err := first(id, host, port)
		if err != nil || !ok {
			return "", 0, false, err
		}
		return second(id, host, port)
	}
}
