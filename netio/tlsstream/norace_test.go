//go:build !race

package tlsstream

const raceDetector = false
