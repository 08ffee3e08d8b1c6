package doctor

import (
	"slices"
	"testing"
	"testing/fstest"
)

func TestReadCounters(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }
	const at = "class/infiniband/mlx5_0/ports/2/hw_counters/"
	got := readCounters(fstest.MapFS{
		at + "out_of_sequence":                file("17"),
		at + "rnr_nak_retry_err":              file("0"),
		at + "lifespan":                       file("10"),
		at + "broken":                         file("none"),
		"class/infiniband/siw0/ports/1/state": file("4: ACTIVE"),
	})
	want := []PortCounter{{"mlx5_0", "2", "out_of_sequence", 17}, {"mlx5_0", "2", "rnr_nak_retry_err", 0}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
