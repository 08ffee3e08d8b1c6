//go:build race

package nfs3_test

const raceEnabled = true
