package blocking

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSpinRests: polling gets rarer while it fails, and happens each time while it succeeds.
func TestSpinRests(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	s := spinner{most: time.Nanosecond}
	// rests are how many reads followed each that spun.
	rests := func(n int) (got []int) {
		for len(got) < n {
			if s.rest == 0 {
				got = append(got, 0)
			} else {
				got[len(got)-1]++
			}
			s.await(fd, -1)
		}
		return got[:n-1]
	}
	if got, want := rests(9), []int{1, 2, 4, 8, 16, 32, 64, 64}; !slices.Equal(got, want) {
		t.Errorf("nothing comes: reads that did not spin %v, want %v", got, want)
	}
	s.rest = 0
	if _, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	s.most = time.Minute
	for range 3 {
		if s.await(fd, -1); s.rest != 0 {
			t.Fatal("what was found at once made the next read rest")
		}
	}
	var b [8]byte
	_, _ = unix.Read(fd, b[:])
	s.most = time.Nanosecond
	if got, want := rests(3), []int{1, 2}; !slices.Equal(got, want) {
		t.Errorf("nothing comes any more: reads that did not spin %v, want %v", got, want)
	}
}
