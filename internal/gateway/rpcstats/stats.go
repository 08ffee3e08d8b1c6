// Package rpcstats counts and times the calls of an export.
//
// Everything that a call touches is a fixed array of atomic counters: no map, no label lookup and
// no allocation on the data path. Collect turns them into metrics.
package rpcstats

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
)

// program is a program with counters for each procedure.
type program struct {
	number, version uint32
	name            string
	procedures      uint32
	procedureName   func(uint32) string
	// hasStatus reports whether the results of a procedure begin with a status word.
	hasStatus func(procedure uint32) bool
}

var programs = [...]program{
	{nfs3.Program, nfs3.Version, "nfs3", nfs3.Procedures, nfs3.ProcedureName, func(p uint32) bool { return p != nfs3.ProcNull }},
	{nfs3.MountProgram, nfs3.MountVersion, "mount3", nfs3.MountProcedures, nfs3.MountProcedureName, func(p uint32) bool { return p == nfs3.MountProcMnt }},
	{nfs3.Program, nfs4Version, "nfs4", 2, nfs4ProcedureName, func(p uint32) bool { return p != 0 }},
	{nfs3.ACLProgram, nfs3.ACLVersion, "nfsacl3", nfs3.ACLProcedures, nfs3.ACLProcedureName, func(p uint32) bool { return p != 0 }},
}

const (
	maxProcedures = nfs3.Procedures
	// firstBucket is the exponent of the first bucket's bound: 2^13 ns, 8 µs. Each bound is twice
	// the one before; the last is 8.6 s.
	firstBucket = 13
	buckets     = 21
)

// result is the outcome of a call: a status of RPC, or of the program.
type result uint8

const (
	resultOK result = iota
	resultError
	resultRefused
	resultDropped
	results
)

var resultNames = [results]string{"ok", "error", "refused", "dropped"}

type procedureStats struct {
	results [results]atomic.Uint64
	// durations has a last bucket for calls above the last bound.
	durations [buckets + 1]atomic.Uint64
	sum       atomic.Int64 // nanoseconds
	// traces has the last traced call of each bucket.
	traces [buckets + 1]atomic.Pointer[traced]
}

// traced is a traced call.
type traced struct {
	at              time.Time
	duration        time.Duration
	traceID, spanID string
}

// Stats has the counters of one export. The zero value is ready.
type Stats struct {
	Transport

	rpcs  [len(programs)][maxProcedures]procedureStats
	other procedureStats // every other program, version and procedure

	// nfs counts errors of NFS version 3 and MOUNT, by index in nfsErrors; nfsOther all others.
	nfs      [len(nfsErrors)]atomic.Uint64
	nfsOther atomic.Uint64
	// nfs4 counts errors of NFS version 4.
	nfs4 nfs4Counts
	// accept, reject and auth count errors of RPC.
	accept [oncrpc.SystemErr + 1]atomic.Uint64
	reject [oncrpc.AuthError + 1]atomic.Uint64
	auth   [oncrpc.RPCSecGSSCtxProblem + 1]atomic.Uint64
}

// nfsErrors are the status codes with a counter (RFC 1813 section 2.6).
var nfsErrors = [...]nfs3.Status{
	nfs3.ErrPerm, nfs3.ErrNoEnt, nfs3.ErrIO, nfs3.ErrNXIO, nfs3.ErrAcces, nfs3.ErrExist, nfs3.ErrXDev, nfs3.ErrNoDev,
	nfs3.ErrNotDir, nfs3.ErrIsDir, nfs3.ErrInval, nfs3.ErrFBig, nfs3.ErrNoSpc, nfs3.ErrROFS, nfs3.ErrMLink, nfs3.ErrNameTooLong,
	nfs3.ErrNotEmpty, nfs3.ErrDQuot, nfs3.ErrStale, nfs3.ErrRemote, nfs3.ErrBadHandle, nfs3.ErrNotSync, nfs3.ErrBadCookie,
	nfs3.ErrNotSupp, nfs3.ErrTooSmall, nfs3.ErrServerFault, nfs3.ErrBadType, nfs3.ErrJukebox,
}

// findProgram returns the program of a call, nil without counters of its own.
func findProgram(number, version, procedure uint32) (int, *program) {
	for i := range programs {
		if p := &programs[i]; p.number == number && p.version == version && procedure < p.procedures {
			return i, p
		}
	}
	return 0, nil
}

// Answered counts a call that is about to be answered after d, and reports whether it succeeded. It
// reads only the status of the reply.
func (s *Stats) Answered(c *oncrpc.Call, d time.Duration) (ok bool) {
	i, p := findProgram(c.Program, c.Version, c.Procedure)
	ps := &s.other
	if p != nil {
		ps = &s.rpcs[i][c.Procedure]
	}
	r := resultOK
	switch {
	case c.Status.OK():
		if p != nil && p.hasStatus(c.Procedure) {
			if st := resultStatus(c); st != 0 {
				r = resultError
				if p.version == nfs4Version {
					s.nfs4.add(st)
				} else {
					s.countNFS(nfs3.Status(st))
				}
			}
		}
	case !c.Status.Denied:
		r = resultRefused
		count(s.accept[:], uint32(c.Status.Accept))
	case c.Status.Reject == oncrpc.AuthError:
		r = resultRefused
		count(s.auth[:], uint32(c.Status.Auth))
	default:
		r = resultRefused
		count(s.reject[:], uint32(c.Status.Reject))
	}
	ps.results[r].Add(1)
	ps.observe(d)
	return r == resultOK
}

// Trace makes a call that took d the example of its bucket.
func (s *Stats) Trace(c *oncrpc.Call, d time.Duration, traceID, spanID string) {
	ps := &s.other
	if i, p := findProgram(c.Program, c.Version, c.Procedure); p != nil {
		ps = &s.rpcs[i][c.Procedure]
	}
	ps.traces[bucket(d)].Store(&traced{time.Now(), d, traceID, spanID})
}

// Names returns the names of a call's program and procedure, as in the metrics.
func Names(c *oncrpc.Call) (program, procedure string) {
	if _, p := findProgram(c.Program, c.Version, c.Procedure); p != nil {
		return p.name, p.procedureName(c.Procedure)
	}
	return "other", "other"
}

// Failure returns the error of a reply, empty for success.
func Failure(c *oncrpc.Call) string {
	if !c.Status.OK() {
		return c.Status.String()
	}
	_, p := findProgram(c.Program, c.Version, c.Procedure)
	if p == nil || !p.hasStatus(c.Procedure) {
		return ""
	}
	switch st := resultStatus(c); {
	case st == 0:
		return ""
	case p.version != nfs4Version:
		return nfs3.Status(st).String()
	case nfs4Errors[st] != "":
		return "NFS4ERR_" + nfs4Errors[st]
	default:
		return fmt.Sprintf("NFSv4 status %d", st)
	}
}

// Dropped counts a call that is not answered.
func (s *Stats) Dropped(c *oncrpc.Call) {
	ps := &s.other
	if i, p := findProgram(c.Program, c.Version, c.Procedure); p != nil {
		ps = &s.rpcs[i][c.Procedure]
	}
	ps.results[resultDropped].Add(1)
}

// resultStatus returns the first word of a reply's results, 0 if it cannot be read. It does not
// read results behind a verifier of RPCSEC_GSS, which may be encrypted.
func resultStatus(c *oncrpc.Call) uint32 {
	const verifierLength = oncrpc.MinReplyLen - 8 // before it and the accept_stat
	if length, ok := word(c.Reply.Stream, verifierLength); !ok || length != 0 {
		return 0
	}
	status, _ := word(c.Reply.Stream, oncrpc.MinReplyLen)
	return status
}

// word returns the word at an offset of a stream. It fails for a word in two buffers, which no
// encoder makes.
func word(stream [][]byte, at int) (uint32, bool) {
	for _, s := range stream {
		if at < len(s) {
			if s = s[at:]; len(s) < 4 {
				return 0, false
			}
			return binary.BigEndian.Uint32(s), true
		}
		at -= len(s)
	}
	return 0, false
}

func (s *Stats) countNFS(st nfs3.Status) {
	for i, e := range nfsErrors {
		if e == st {
			s.nfs[i].Add(1)
			return
		}
	}
	s.nfsOther.Add(1)
}

func count(a []atomic.Uint64, i uint32) {
	if uint64(i) < uint64(len(a)) {
		a[i].Add(1)
	}
}

func (p *procedureStats) observe(d time.Duration) {
	p.durations[bucket(d)].Add(1)
	p.sum.Add(int64(d))
}

// bucket returns the first bucket with a bound of at least d.
func bucket(d time.Duration) int {
	if d <= 1<<firstBucket {
		return 0
	}
	return min(bits.Len64(uint64(d-1))-firstBucket, buckets)
}

// bound returns the upper bound of a bucket in seconds.
func bound(i int) float64 { return float64(int64(1)<<(firstBucket+i)) / 1e9 }
