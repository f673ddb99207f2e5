//go:build race

package integration

// raceEnabled reports whether the tests, and so the binary, are built with the
// race detector.
const raceEnabled = true
