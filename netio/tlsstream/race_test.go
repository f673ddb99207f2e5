//go:build race

package tlsstream

const raceDetector = true
