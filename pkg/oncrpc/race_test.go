//go:build race

package oncrpc

const raceEnabled = true // allocates for itself
