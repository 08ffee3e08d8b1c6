package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/kernel/pattern"
)

// lengths writes or reads a file by calls of package pattern's lengths, several at once, with
// O_DIRECT, so that these are the lengths on the wire.
func lengths(do, name string) {
	flags, one := os.O_RDONLY, readPart
	switch do {
	case "write":
		flags, one = os.O_WRONLY|os.O_CREATE|os.O_TRUNC, writePart
	case "read":
	default:
		usage()
	}
	if err := eachLength(name, flags, one); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func eachLength(name string, flags int, do func(f *os.File, want []byte, offset int64) error) error {
	f, err := os.OpenFile(name, flags|unix.O_DIRECT, 0o644)
	if err != nil {
		return err
	}
	stream, all := pattern.Stream(), pattern.Lengths()
	const jobs = 4
	errs := make([]error, jobs)
	var wg sync.WaitGroup
	for job := range jobs {
		wg.Go(func() {
			at := 0
			for i, n := range all {
				if i%jobs == job {
					if err := do(f, stream[at:at+n], int64(at)); err != nil {
						errs[job] = fmt.Errorf("%s: %d bytes at offset %d: %w", name, n, at, err)
						return
					}
				}
				at += n
			}
		})
	}
	wg.Wait()
	if flags == os.O_RDONLY {
		if n, err := f.ReadAt(make([]byte, 100), int64(len(stream))); n != 0 || !errors.Is(err, io.EOF) {
			errs[0] = errors.Join(errs[0], fmt.Errorf("%s: %d bytes behind its end: %w", name, n, err))
		}
	} else {
		errs[0] = errors.Join(errs[0], f.Sync())
	}
	return errors.Join(append(errs, f.Close())...)
}

func writePart(f *os.File, want []byte, offset int64) error {
	_, err := f.WriteAt(want, offset)
	return err
}

func readPart(f *os.File, want []byte, offset int64) error {
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, offset); err != nil {
		return err
	}
	if d := pattern.Differ(got, want); d != "" {
		return errors.New("the bytes read " + d)
	}
	return nil
}
