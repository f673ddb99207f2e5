//go:build race

package integration

// raceEnabled: the binary is built with the race detector when the tests are.
const raceEnabled = true
