//go:build !race

package binding_test

const raceEnabled = false
