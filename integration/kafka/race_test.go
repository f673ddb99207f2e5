//go:build race

package kafka

// raceEnabled: the binary is built with the race detector when the tests are.
const raceEnabled = true
