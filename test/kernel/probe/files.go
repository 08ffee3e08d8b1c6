package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/kernel/pattern"
)

var (
	fileFlags = flag.NewFlagSet("files", flag.ExitOnError)
	direct    = fileFlags.Bool("direct", false, "use O_DIRECT, so that reads and writes go over the wire as they are")
	round     = fileFlags.Int("round", 0, "which content")
	jobs      = fileFlags.Int("jobs", 4, "how many files at once")
	most      = fileFlags.Int("max", 1<<30, "leave out longer files")
	step      = fileFlags.Int("step", 1, "take only every so manyth file")
)

// files writes or reads all files, and exits with 1 on a wrong one.
func files(args []string) {
	_ = fileFlags.Parse(args) // exits on an error
	do := map[string]func(string, pattern.File) error{"write": writeFile, "read": readFile}[fileFlags.Arg(0)]
	if do == nil || fileFlags.NArg() != 2 {
		usage()
	}
	var count, bytes, wrong atomic.Int64
	queue := make(chan pattern.File)
	var wg sync.WaitGroup
	for range *jobs {
		wg.Go(func() {
			for f := range queue {
				if err := do(filepath.Join(fileFlags.Arg(1), f.Name()), f); err != nil {
					fmt.Println(err)
					wrong.Add(1)
				}
				count.Add(1)
				bytes.Add(int64(f.Length))
			}
		})
	}
	for i, f := range pattern.Files() {
		if i%*step == 0 && f.Length <= *most {
			queue <- f
		}
	}
	close(queue)
	wg.Wait()
	fmt.Printf("%s: %d files, %d bytes, %d wrong\n", fileFlags.Arg(0), count.Load(), bytes.Load(), wrong.Load())
	if wrong.Load() > 0 {
		os.Exit(1)
	}
}

func mode(flags int) int {
	if *direct {
		flags |= unix.O_DIRECT
	}
	return flags
}

// writeFile writes the data by one call, and leaves a hole before them, or the bytes as they were.
func writeFile(name string, f pattern.File) (err error) {
	file, err := os.OpenFile(name, mode(os.O_WRONLY|os.O_CREATE), 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.WriteAt(f.Data(*round), int64(f.Offset)); err != nil {
		return err
	}
	return file.Sync()
}

// readFile reads the data by one call, so that its offset and length are those of the READs. Then
// it checks the bytes before them, and the end of the file.
func readFile(name string, f pattern.File) error {
	file, err := os.OpenFile(name, mode(os.O_RDONLY), 0)
	if err != nil {
		return err
	}
	defer file.Close()
	want := f.Content(*round)
	got := make([]byte, len(want)+9)
	if len(want) > 0 {
		if n, err := file.ReadAt(got[f.Offset:len(want)], int64(f.Offset)); err != nil {
			return fmt.Errorf("%s: %d of %d bytes at offset %d: %w", name, n, f.Length, f.Offset, err)
		}
		if _, err := file.ReadAt(got[:f.Offset], 0); err != nil {
			return fmt.Errorf("%s: the %d bytes before the data: %w", name, f.Offset, err)
		}
	}
	if n, err := file.ReadAt(got[len(want):], int64(len(want))); n != 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %d bytes behind its end (%w)", name, n, err)
	}
	if d := pattern.Differ(got[:len(want)], want); d != "" {
		return fmt.Errorf("%s %s", name, d)
	}
	return nil
}
