package vfs

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Cred is the caller's identity.
type Cred struct {
	UID, GID uint32
	Groups   []uint32 // supplementary groups
}

// Capabilities, as bits of the effective set.
const (
	capDACOverride   = 1 << unix.CAP_DAC_OVERRIDE
	capDACReadSearch = 1 << unix.CAP_DAC_READ_SEARCH
	capSetGID        = 1 << unix.CAP_SETGID
	capSetUID        = 1 << unix.CAP_SETUID
	capSysResource   = 1 << unix.CAP_SYS_RESOURCE
	// capsOfRoot are the capabilities that a thread loses when its fsuid changes from 0
	// (capabilities(7)). Other threads lose none.
	capsOfRoot = capDACOverride | capDACReadSearch | 1<<unix.CAP_CHOWN | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | 1<<unix.CAP_MKNOD
)

// identities applies callers' identities to threads. setfsuid(2), setfsgid(2) and setgroups(2)
// change the calling thread alone; only the C library extends the last one to the process.
type identities struct {
	self     Cred // the process itself
	able     bool // the process may act as others
	reason   string
	override bool // the process has CAP_DAC_OVERRIDE
	resource bool // the process has CAP_SYS_RESOURCE
	// checked: not every uid and gid is mapped in the process's user namespace, so each change is
	// verified.
	checked bool
}

func (d *identities) probe(selfOnly bool) {
	d.self = Cred{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	if groups, err := os.Getgroups(); err == nil {
		for _, g := range groups {
			d.self.Groups = append(d.self.Groups, uint32(g))
		}
	}
	caps := effectiveCaps()
	d.override = caps&capDACOverride != 0
	d.resource = caps&capSysResource != 0
	d.checked = !mapsAll("/proc/self/uid_map") || !mapsAll("/proc/self/gid_map")
	switch {
	case selfOnly:
		d.reason = "that was asked for"
	case caps&capSetUID == 0 || caps&capSetGID == 0:
		d.reason = "the process lacks CAP_SETUID or CAP_SETGID, with which it could act as its callers"
	default:
		d.reason = d.try()
		d.able = d.reason == ""
	}
}

// try takes on the identity of nobody, and gives it back. It returns the reason if the process
// cannot act as its callers, "" if it can.
func (d *identities) try() (reason string) {
	if !d.assume(&Cred{UID: 65534, GID: 65534}, true) {
		return "the kernel does not let the process act as others"
	}
	if effectiveCaps()&capsOfRoot != 0 {
		reason = "the process is not root and has capabilities such as CAP_DAC_OVERRIDE, which it would keep while it acts as others: run it as root, or without them"
	}
	d.resume()
	return reason
}

// isSelf reports whether c needs no change of identity.
func (d *identities) isSelf(c *Cred) bool {
	return !d.able || (c.UID == d.self.UID && c.GID == d.self.GID && (c.UID == 0 && d.override || slices.Equal(c.Groups, d.self.Groups)))
}

// noID means "no id" to setfsuid(2), setgroups(2) and chown(2). setfsuid(2) ignores it without an
// error.
const noID = ^uint32(0)

// enter makes the calling thread act as c until leave, and locks the goroutine to it. It returns
// false if the process cannot act as c, or need not change.
func (d *identities) enter(c *Cred) (entered bool, err error) {
	if d.isSelf(c) {
		return false, nil
	}
	if c.UID == noID || c.GID == noID || !d.assume(c, d.checked) {
		return false, unix.EACCES
	}
	return true, nil
}

// leave undoes enter.
func (d *identities) leave(entered bool) {
	if entered {
		d.resume()
	}
}

func (d *identities) assume(c *Cred, check bool) bool {
	runtime.LockOSThread()
	if !setGroups(c.Groups) {
		runtime.UnlockOSThread() // nothing has changed
		return false
	}
	setFS(unix.SYS_SETFSGID, c.GID)
	setFS(unix.SYS_SETFSUID, c.UID)
	if check && (getFS(unix.SYS_SETFSUID) != c.UID || getFS(unix.SYS_SETFSGID) != c.GID) {
		d.resume()
		return false
	}
	return true
}

// resume restores the thread's identity. It retries for ever: it fails only for want of memory, and
// the thread is of no use to others before.
func (d *identities) resume() {
	setFS(unix.SYS_SETFSUID, d.self.UID)
	setFS(unix.SYS_SETFSGID, d.self.GID)
	for !setGroups(d.self.Groups) || getFS(unix.SYS_SETFSUID) != d.self.UID || getFS(unix.SYS_SETFSGID) != d.self.GID {
		time.Sleep(10 * time.Millisecond)
		setFS(unix.SYS_SETFSUID, d.self.UID)
		setFS(unix.SYS_SETFSGID, d.self.GID)
	}
	runtime.UnlockOSThread()
}

// enterWriter is enter for writing an open file. There the kernel checks the uid alone, for quotas,
// reserved blocks and setuid bits.
func (d *identities) enterWriter(c *Cred) (entered bool, err error) {
	if !d.able || c.UID == d.self.UID {
		return false, nil
	}
	if c.UID == noID {
		return false, unix.EACCES
	}
	runtime.LockOSThread()
	setFS(unix.SYS_SETFSUID, c.UID)
	if d.checked && getFS(unix.SYS_SETFSUID) != c.UID {
		d.leaveWriter(true)
		return false, unix.EACCES
	}
	return true, nil
}

func (d *identities) leaveWriter(entered bool) {
	if !entered {
		return
	}
	for setFS(unix.SYS_SETFSUID, d.self.UID); getFS(unix.SYS_SETFSUID) != d.self.UID; setFS(unix.SYS_SETFSUID, d.self.UID) {
		time.Sleep(10 * time.Millisecond)
	}
	runtime.UnlockOSThread()
}

func setFS(call uintptr, id uint32) { _, _, _ = unix.RawSyscall(call, uintptr(id), 0, 0) }

// getFS returns the thread's fsuid or fsgid: setting an id that does not exist changes nothing and
// returns the present one.
func getFS(call uintptr) uint32 {
	r, _, _ := unix.RawSyscall(call, ^uintptr(0), 0, 0)
	return uint32(r)
}

func setGroups(groups []uint32) bool {
	_, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
	return e == 0
}

func effectiveCaps() uint64 {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return 0
	}
	return uint64(data[0].Effective) | uint64(data[1].Effective)<<32
}

// mapsAll reports whether a user namespace maps every id to itself.
func mapsAll(path string) bool {
	b, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	var inner, outer, count uint64
	_, err = fmt.Fscan(bytes.NewReader(b), &inner, &outer, &count)
	return err == nil && inner == 0 && outer == 0 && count == 1<<32-1 && strings.Count(string(b), "\n") == 1
}

// prepareProcess clears the umask and drops CAP_SYS_RESOURCE, once for the process. A program with
// C code cannot change the capabilities of all threads; Info reports that.
var prepareProcess = sync.OnceFunc(func() {
	unix.Umask(0)
	if caps := effectiveCaps(); caps&capSysResource == 0 || caps&capSetUID == 0 {
		return
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return
	}
	data[0].Effective &^= uint32(capSysResource)
	_, _, _ = syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data[0])), 0)
})
