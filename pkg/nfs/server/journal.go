package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/vfs"
)

// journal keeps non-repeatable calls and their replies in a file of fixed size, so that the
// duplicate request cache survives a kill of the process. A record is written before the call takes
// effect, if the names can show the effect later, and again with the reply before that is sent. The
// page cache survives a kill, so nothing is synced. After a loss of power records may be missing or
// old. None describes a change that is not on stable storage, since changes are synced before their
// records are complete.
//
// The file is a header of one page and slots of 512 bytes:
//
//	  0  uint32    checksum of the head, from 4 to 160
//	  8  uint64    sequence number, which orders calls; 0: the slot was never used
//	 16  52 bytes  key: the client's address, then 9 words of 4 bytes
//	 68  uint8     state of the target: unrecorded, absent, present or created
//	 69  uint8     length of the target's handle
//	 72  int64     the target's ctime in nanoseconds
//	 80  64 bytes  the target's handle
//	160  uint32    checksum of the tail, from 164 to the end of the reply
//	168  uint64    sequence number, that of the head if the reply belongs to it
//	176  uint16    length of the reply
//	180  bytes     the reply, from its XID on
//
// Numbers are little-endian.
type journal struct {
	file   *os.File
	log    *slog.Logger
	failed atomic.Bool
}

const (
	journalMagic = "sluice replies 1"
	journalStart = 4096
	journalSlots = 4096
	slotSize     = 512
	headSize     = 160
	replyAt      = 180
	noSlot       = -1
)

// slotBuf is a record under construction.
type slotBuf [slotSize]byte

// target is the object or the state of a name that a call is about to change.
type target struct {
	state  targetState
	n      uint8
	ctime  int64 // nanoseconds
	size   int64 // present size; not recorded
	handle [vfs.MaxHandle]byte
}

type targetState uint8

const (
	unrecorded targetState = iota
	absent
	present
	// created: the new object that the call made.
	created
)

func (t *target) set(h *vfs.Handle, st *vfs.Stat) {
	t.state, t.ctime, t.size = present, st.Ctim.Nano(), st.Size
	t.n = uint8(copy(t.handle[:], h.Bytes()))
}

// is reports whether both are the same object, perhaps modified.
func (t *target) is(u *target) bool {
	return t.state == present && u.state == present && vfs.SameObject(t.handle[:t.n], u.handle[:u.n])
}

// saved is a record from the file.
type saved struct {
	slot     int32
	sequence uint64
	key      replyKey
	target   target
	reply    []byte // nil: the call was not answered
}

// openJournal opens or creates the file of an export. It drops records of another identity: another
// directory, or handles of another key. It returns the records in no order. No other process may
// have the file open.
func openJournal(path string, identity []byte, log *slog.Logger) (_ *journal, records []saved, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	j := &journal{file: f, log: log}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil, &os.PathError{Op: "lock", Path: path, Err: errors.New("another server has it open")}
	}
	header := journalHeader(identity)
	old, err := io.ReadAll(io.NewSectionReader(f, 0, journalStart+journalSlots*slotSize+1))
	if err != nil {
		return nil, nil, err
	}
	if len(old) != journalStart+journalSlots*slotSize || !bytes.Equal(old[:journalStart], header) {
		return j, nil, j.clear(header)
	}
	for slot := range int32(journalSlots) {
		b := old[journalStart+int(slot)*slotSize:][:slotSize]
		if s, ok := decodeSlot(b); ok {
			s.slot = slot
			records = append(records, s)
		}
	}
	return j, records, nil
}

func journalHeader(identity []byte) []byte {
	header := make([]byte, journalStart)
	copy(header, journalMagic)
	binary.LittleEndian.PutUint32(header[16:], journalSlots)
	sum := sha256.Sum256(identity)
	copy(header[32:], sum[:])
	return header
}

// setIdentity replaces the identity that the file was opened with.
func (j *journal) setIdentity(identity []byte) error {
	_, err := j.file.WriteAt(journalHeader(identity), 0)
	return err
}

// clear empties the file. Slots take blocks as they are used; with few clients the same few are
// reused. The header comes last.
func (j *journal) clear(header []byte) error {
	if err := j.file.Truncate(0); err != nil {
		return err
	}
	if err := j.file.Truncate(journalStart + journalSlots*slotSize); err != nil {
		return err
	}
	_, err := j.file.WriteAt(header, 0)
	return err
}

func decodeSlot(b []byte) (s saved, ok bool) {
	le := binary.LittleEndian
	if s.sequence = le.Uint64(b[8:]); s.sequence == 0 || le.Uint32(b) != crc32.Checksum(b[4:headSize], castagnoli) {
		return s, false
	}
	k := &s.key
	copy(k.client[:], b[16:])
	for i, word := range k.words() {
		*word = le.Uint32(b[32+4*i:])
	}
	t := &s.target
	t.state, t.n, t.ctime = targetState(b[68]), b[69], int64(le.Uint64(b[72:]))
	copy(t.handle[:], b[80:])
	n := int(le.Uint16(b[176:]))
	if le.Uint64(b[168:]) == s.sequence && n <= slotSize-replyAt && le.Uint32(b[headSize:]) == crc32.Checksum(b[164:replyAt+n], castagnoli) {
		s.reply = bytes.Clone(b[replyAt : replyAt+n])
	}
	return s, t.n <= vfs.MaxHandle
}

// words are the fields of a key after the address.
func (k *replyKey) words() [9]*uint32 {
	return [...]*uint32{&k.xid, &k.program, &k.version, &k.procedure, &k.flavor, &k.uid, &k.gid, &k.groups, &k.args}
}

func (b *slotBuf) head(e *cachedReply, t *target) {
	le := binary.LittleEndian
	clear(b[:headSize])
	le.PutUint64(b[8:], e.sequence)
	copy(b[16:], e.key.client[:])
	for i, word := range e.key.words() {
		le.PutUint32(b[32+4*i:], *word)
	}
	b[68], b[69] = byte(t.state), t.n
	le.PutUint64(b[72:], uint64(t.ctime))
	copy(b[80:], t.handle[:t.n])
	le.PutUint32(b[:], crc32.Checksum(b[4:headSize], castagnoli))
}

// tail appends the reply, false if it is too long for a record.
func (b *slotBuf) tail(e *cachedReply, reply [][]byte) (end int, ok bool) {
	le := binary.LittleEndian
	clear(b[headSize:replyAt])
	end = replyAt
	for _, s := range reply {
		if len(s) > slotSize-end {
			return 0, false
		}
		end += copy(b[end:], s)
	}
	le.PutUint64(b[168:], e.sequence)
	le.PutUint16(b[176:], uint16(end-replyAt))
	le.PutUint32(b[headSize:], crc32.Checksum(b[164:end], castagnoli))
	return end, true
}

// begin records that a call is about to change t.
func (j *journal) begin(e *cachedReply, t *target, b *slotBuf) {
	e.target = *t
	b.head(e, t)
	j.write(b[:headSize], e.slot, 0)
	e.recorded = true
}

// end records a call's reply.
func (j *journal) end(e *cachedReply, reply [][]byte, b *slotBuf) {
	end, ok := b.tail(e, reply)
	switch {
	case !ok:
	case e.recorded:
		j.write(b[headSize:end], e.slot, headSize)
	default:
		b.head(e, &e.target)
		j.write(b[:end], e.slot, 0)
	}
}

func (j *journal) write(b []byte, slot int32, at int64) {
	if _, err := j.file.WriteAt(b, journalStart+int64(slot)*slotSize+at); err != nil && !j.failed.Swap(true) {
		j.log.Error("write of the reply journal failed: replies may not survive a restart", "path", j.file.Name(), "error", err)
	}
}

func (j *journal) close() error { return errors.Join(j.file.Sync(), j.file.Close()) }

// journalPath is an export's file in the state directory.
func (s *Server) journalPath(root string) string {
	sum := sha256.Sum256([]byte(s.cfg.Name + "\x00" + root))
	return filepath.Join(s.cfg.StateDir, fmt.Sprintf("replies-%x", sum[:8]))
}

// journaled reports whether the call has a slot in the journal.
func (o *op) journaled() bool { return o.cached != nil && o.cached.slot != noSlot }

// intend records that the call is about to change the object of a name. If an earlier process
// started the call, the record stays, and o.now becomes the present object.
func (o *op) intend(dir *vfs.Node, name *vfs.Name) {
	if !o.journaled() {
		return
	}
	var h vfs.Handle
	var st vfs.Stat
	o.now = target{}
	switch err := o.s.fs.Identify(dir, name, &h, &st); {
	case err == nil:
		o.now.set(&h, &st)
	case errors.Is(err, unix.ENOENT):
		o.now.state = absent
	}
	o.begun()
}

// intendObject is intend for a call that is about to change n, with attributes in o.stat.
func (o *op) intendObject(n *vfs.Node) {
	if !o.journaled() {
		return
	}
	o.now = target{}
	o.now.set(n.Handle(), &o.stat)
	o.begun()
}

func (o *op) begun() {
	if !o.repeated {
		o.s.replies.journal.begin(o.cached, &o.now, &o.record)
	}
	o.s.cfg.intended()
}

// gone reports whether an interrupted REMOVE or RENAME has had its effect: its name no longer leads
// to the recorded object. A new object of that name is not the call's.
func (o *op) gone() bool {
	return o.repeated && o.cached.target.state == present && o.now.state != unrecorded && !o.now.is(&o.cached.target)
}

// changedSince reports whether the call was interrupted, and the file to truncate was made,
// replaced or changed since.
func (o *op) changedSince() bool {
	if !o.repeated {
		return false
	}
	was := &o.cached.target
	return was.state != unrecorded && o.now.state == present && (!o.now.is(was) || o.now.ctime != was.ctime)
}

// linked reports whether the call was interrupted, and the new name leads to the file by now.
func (o *op) linked(file *vfs.Node) bool {
	return o.repeated && o.cached.target.state == absent && o.now.state == present && vfs.SameObject(o.now.handle[:o.now.n], file.Handle().Bytes())
}

// recordMade records the call's new object.
func (o *op) recordMade(n *vfs.Node) {
	t := target{state: created}
	t.n = uint8(copy(t.handle[:], n.Handle().Bytes()))
	o.s.replies.journal.begin(o.cached, &t, &o.record)
}

// madeBefore returns the object that an interrupted call made, under any name, and syncs it. nil:
// there is none any more. Attributes that were not set then stay, since others may have changed
// them.
func (o *op) madeBefore(dir *vfs.Node) (*vfs.Node, error) {
	if !o.repeated || o.cached.target.state != created {
		return nil, nil
	}
	t := &o.cached.target
	n, err := o.s.fs.Resolve(t.handle[:t.n])
	if errors.Is(err, unix.ESTALE) || errors.Is(err, vfs.ErrBadHandle) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(n.Sync(false), dir.Sync(false)); err != nil {
		n.Release()
		return nil, err
	}
	return n, nil
}
