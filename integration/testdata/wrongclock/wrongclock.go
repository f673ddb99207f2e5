package main

import (
	"os"
	"strconv"
)

// wrongBy is how many seconds the wall clock is ahead.
var wrongBy int64

// install has the runtime ask clock for the time from now on.
func install()

var _ = func() (none struct{}) {
	text := os.Getenv("PENSTOCK_TEST_CLOCK")
	if text == "" {
		return none
	}
	by, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	wrongBy = by
	install()
	return none
}()
