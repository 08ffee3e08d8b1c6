package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock locks a file by an open file description lock, as servers of NFS do. With hold it makes
// /run/locked and keeps the lock until the process is killed.
func lock(name string, hold bool) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err == nil {
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	if errors.Is(err, unix.EAGAIN) {
		fmt.Println("denied")
		os.Exit(1)
	}
	if err == nil && hold {
		if err = os.WriteFile("/run/locked", nil, 0o644); err == nil {
			_ = unix.Pause()
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
