package model

import (
	"sync/atomic"

	"penstock/kafka/filter"
)

// testFilter is a filter that does nothing but remember what it was made with
// and whether it was closed.
type testFilter struct {
	name   string
	env    filter.Env
	closed atomic.Int32
}

func provision(name string, env filter.Env) (filter.Filter, error) {
	return &testFilter{name: name, env: env}, nil
}

func (f *testFilter) Versions(_ int16, have filter.Range) filter.Range { return have }
func (f *testFilter) Open(filter.Info) filter.Conn                     { return nil }
func (f *testFilter) Close()                                           { f.closed.Add(1) }
func (f *testFilter) Wants(filter.Direction, int16, int16) filter.Interest {
	return filter.Nothing
}
