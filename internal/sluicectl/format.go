package sluicectl

import (
	"fmt"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// byteSize formats n as 512 B, 4 KiB, 1.5 MiB.
func byteSize(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, u := float64(n)/1024, 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + " " + units[u:u+1] + "iB"
}

// sizeFlag is a number of bytes on the command line: 4096, 4K, 4KiB, 1M, 2G.
type sizeFlag int64

func (s *sizeFlag) String() string { return strings.ReplaceAll(byteSize(int64(*s)), " ", "") }

func (s *sizeFlag) Type() string { return "size" }

func (s *sizeFlag) Set(v string) error {
	digits := strings.TrimRight(v, "BKMGTikmgtb")
	shift, ok := map[string]uint{"": 0, "b": 0, "k": 10, "kib": 10, "ki": 10, "m": 20, "mib": 20, "mi": 20, "g": 30, "gib": 30, "gi": 30, "t": 40, "tib": 40, "ti": 40}[strings.ToLower(v[len(digits):])]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !ok || n < 0 || n > (1<<62)>>shift {
		return fmt.Errorf("must be a number of bytes, like 4096, 64K or 1M")
	}
	*s = sizeFlag(n << shift)
	return nil
}

// modeString formats type and permissions as ls does.
func modeString(a *nfs3.Attr) string {
	const rwx = "rwxrwxrwx"
	types := map[nfs3.Type]byte{nfs3.Reg: '-', nfs3.Dir: 'd', nfs3.Blk: 'b', nfs3.Chr: 'c', nfs3.Lnk: 'l', nfs3.Sock: 's', nfs3.FIFO: 'p'}
	b := []byte{types[a.Type]}
	for i := range rwx {
		if a.Mode>>(8-i)&1 != 0 {
			b = append(b, rwx[i])
		} else {
			b = append(b, '-')
		}
	}
	special := func(bit uint32, at int, with, without byte) {
		if a.Mode&bit == 0 {
			return
		}
		if b[at] == 'x' {
			b[at] = with
		} else {
			b[at] = without
		}
	}
	special(0o4000, 3, 's', 'S')
	special(0o2000, 6, 's', 'S')
	special(0o1000, 9, 't', 'T')
	return string(b)
}

// typeName is a file's type in words.
func typeName(t nfs3.Type) string {
	switch t {
	case nfs3.Reg:
		return "regular file"
	case nfs3.Dir:
		return "directory"
	case nfs3.Blk:
		return "block device"
	case nfs3.Chr:
		return "character device"
	case nfs3.Lnk:
		return "symbolic link"
	case nfs3.Sock:
		return "socket"
	case nfs3.FIFO:
		return "FIFO"
	}
	return t.String()
}

// printable keeps names from sending control sequences to a terminal.
func printable(name string) string {
	q := strconv.Quote(name)
	if q = q[1 : len(q)-1]; strings.ReplaceAll(strings.ReplaceAll(q, `\"`, `"`), `\\`, `\`) == name {
		return name
	}
	return q
}
