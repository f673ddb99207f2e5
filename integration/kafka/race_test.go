//go:build race

package kafka

// raceEnabled reports whether the tests, and so the binary, are built with the
// race detector.
const raceEnabled = true
