//go:build race

// Package race reports whether the race detector is on. It allocates memory of its own, so tests
// that count allocations are off then.
package race

// Enabled reports whether the binary is built with the race detector.
const Enabled = true
