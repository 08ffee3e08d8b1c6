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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// sessionJournal keeps the slots of persistent sessions on stable storage (RFC 8881 section
// 2.10.6.5). A slot has one record, of its latest request that must not run twice. The record is
// synced before the request takes effect, and again with the reply before that is sent. A request
// that leaves no record has had no effect, or may run again.
//
// The file is a header of one page and records of two pages. The header has the magic, the number
// of records, a hash of the identity, and the times of the latest starts. The pages of a record
// fail apart:
//
//	   0  uint32     checksum of the head, from 4 to the end of the prefix
//	   4  uint16     length of the prefix
//	   6  uint8      state of the target, see journal
//	   7  uint8      length of the target's handle
//	   8  16 bytes   session
//	  24  uint32     slot
//	  28  uint32     sequence number
//	  32  int64      when the session was made, in nanoseconds
//	  40  32 bytes   hash of the request
//	  72  uint32     index of the operation in its COMPOUND; 0: the slot has no such request
//	  76  uint32     place of its arguments behind those of SEQUENCE
//	  80  int64      when it began, in nanoseconds
//	  88  int64      the target's ctime in nanoseconds
//	  96  uint8      length of the current filehandle
//	  97  uint8      length of the saved filehandle
//	 104  64 bytes   the target's handle
//	 168  64 bytes   the current filehandle
//	 232  64 bytes   the saved filehandle
//	 512  bytes      prefix: the results before the operation
//	4096  uint32     checksum of the session, and of the rest from 4100 to the end of the reply
//	4100  uint32     length of the reply; 1<<32-1: the reply is too long to be kept
//	4104  uint32     sequence number
//	4108  uint32     slot
//	4112  bytes      reply: the results of the COMPOUND
//
// Numbers are little-endian.
type sessionJournal struct {
	file    *os.File
	log     *slog.Logger
	sync    func(fd int) error
	syncs   vfs.SyncGroup
	failed  atomic.Bool
	started time.Time
	// starts are the latest starts of a server with the file in nanoseconds, the present one first.
	starts []int64

	mu       sync.Mutex
	sessions map[nfs4.SessionID]*journaledSession
	free     []int32
}

// journaledSession is a session with records.
type journaledSession struct {
	made int64
	dead bool // an earlier process had it: it answers retries alone
	// ended is the start of the process after that one, 0 if it is forgotten.
	ended int64
	// running is the number of requests, and of calls of open, that may write to the records.
	running int
	slots   map[uint32]*journaledSlot
}

// journaledSlot is a slot of a session.
type journaledSlot struct {
	record int32
	// busy: a retry is being judged.
	busy bool
	// created is the object that a request of a dead session has made, by its record or as a retry
	// was judged.
	created []byte
}

const (
	v4JournalMagic   = "sluice sessions1"
	v4JournalStart   = 4096
	v4JournalIDEnd   = 64 // of the header
	v4JournalStarts  = 32
	v4JournalRecords = 4096
	v4RecordSize     = 8192
	v4ReplyPage      = 4096
	v4PrefixAt       = 512
	v4ReplyAt        = v4ReplyPage + 16
	v4MaxPrefix      = v4ReplyPage - v4PrefixAt
	v4MaxReply       = v4RecordSize - v4ReplyAt
	v4NotKept        = 1<<32 - 1
)

// slotRecord is a record of a slot.
type slotRecord struct {
	session        nfs4.SessionID
	slot, sequence uint32
	made           int64
	request        [sha256.Size]byte
	index, offset  uint32
	begun          int64
	target         target
	cur, saved     []byte // filehandles
	prefix         []byte
	answered, kept bool
	reply          []byte
}

type recordBuf [v4RecordSize]byte

// head encodes all but the reply, and returns its length.
func (b *recordBuf) head(r *slotRecord) int {
	le := binary.LittleEndian
	clear(b[:v4PrefixAt])
	le.PutUint16(b[4:], uint16(len(r.prefix)))
	b[6], b[7] = byte(r.target.state), r.target.n
	copy(b[8:], r.session[:])
	le.PutUint32(b[24:], r.slot)
	le.PutUint32(b[28:], r.sequence)
	le.PutUint64(b[32:], uint64(r.made))
	copy(b[40:], r.request[:])
	le.PutUint32(b[72:], r.index)
	le.PutUint32(b[76:], r.offset)
	le.PutUint64(b[80:], uint64(r.begun))
	le.PutUint64(b[88:], uint64(r.target.ctime))
	copy(b[104:], r.target.handle[:r.target.n])
	b[96] = byte(copy(b[168:168+vfs.MaxHandle], r.cur))
	b[97] = byte(copy(b[232:232+vfs.MaxHandle], r.saved))
	end := v4PrefixAt + copy(b[v4PrefixAt:v4ReplyPage], r.prefix)
	le.PutUint32(b[:], crc32.Checksum(b[4:end], castagnoli))
	return end
}

// setTarget replaces the target in an encoded head, and returns the head's length.
func (b *recordBuf) setTarget(t *target) int {
	le := binary.LittleEndian
	b[6], b[7] = byte(t.state), t.n
	le.PutUint64(b[88:], uint64(t.ctime))
	copy(b[104:104+vfs.MaxHandle], t.handle[:])
	end := v4PrefixAt + int(le.Uint16(b[4:]))
	le.PutUint32(b[:], crc32.Checksum(b[4:end], castagnoli))
	return end
}

// tail encodes the reply, and returns the end.
func (b *recordBuf) tail(r *slotRecord) int {
	le := binary.LittleEndian
	n, end := uint32(v4NotKept), v4ReplyAt
	if r.kept {
		n = uint32(len(r.reply))
		end += copy(b[v4ReplyAt:], r.reply)
	}
	le.PutUint32(b[v4ReplyPage+4:], n)
	le.PutUint32(b[v4ReplyPage+8:], r.sequence)
	le.PutUint32(b[v4ReplyPage+12:], r.slot)
	le.PutUint32(b[v4ReplyPage:], tailSum(&r.session, b[v4ReplyPage+4:end]))
	return end
}

func tailSum(session *nfs4.SessionID, b []byte) uint32 {
	return crc32.Update(crc32.Checksum(session[:], castagnoli), castagnoli, b)
}

// decode reads a record, false if it is damaged. The slices of r are views of b.
func (r *slotRecord) decode(b []byte) bool {
	le := binary.LittleEndian
	if len(b) != v4RecordSize {
		return false
	}
	n := int(le.Uint16(b[4:]))
	if n > v4MaxPrefix || le.Uint32(b) != crc32.Checksum(b[4:v4PrefixAt+n], castagnoli) {
		return false
	}
	*r = slotRecord{
		session: nfs4.SessionID(b[8:24]), slot: le.Uint32(b[24:]), sequence: le.Uint32(b[28:]), made: int64(le.Uint64(b[32:])),
		request: [sha256.Size]byte(b[40:72]), index: le.Uint32(b[72:]), offset: le.Uint32(b[76:]), begun: int64(le.Uint64(b[80:])),
		target: target{state: targetState(b[6]), n: b[7], ctime: int64(le.Uint64(b[88:]))},
	}
	if r.slot >= v4JournalRecords || b[7] > vfs.MaxHandle || b[96] > vfs.MaxHandle || b[97] > vfs.MaxHandle || b[6] > byte(created) {
		return false
	}
	copy(r.target.handle[:], b[104:104+int(b[7])])
	r.cur, r.saved = b[168:168+int(b[96])], b[232:232+int(b[97])]
	r.prefix = b[v4PrefixAt : v4PrefixAt+n]
	if r.index == 0 || le.Uint32(b[v4ReplyPage+8:]) != r.sequence || le.Uint32(b[v4ReplyPage+12:]) != r.slot {
		return true
	}
	length := le.Uint32(b[v4ReplyPage+4:])
	end := v4ReplyAt
	if length != v4NotKept {
		if length > v4MaxReply {
			return true
		}
		end += int(length)
	}
	if le.Uint32(b[v4ReplyPage:]) == tailSum(&r.session, b[v4ReplyPage+4:end]) {
		r.answered, r.kept = true, length != v4NotKept
		r.reply = b[v4ReplyAt:end]
	}
	return true
}

// openSessionJournal opens or creates the file. Sessions that it has are dead. It drops records of
// another identity: another directory, or handles of another key.
func openSessionJournal(path string, identity []byte, log *slog.Logger) (_ *sessionJournal, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, &os.PathError{Op: "lock", Path: path, Err: errors.New("another server has it open")}
	}
	j := &sessionJournal{file: f, log: log, sync: unix.Fdatasync, started: coarseNow(), sessions: map[nfs4.SessionID]*journaledSession{}}
	j.starts = []int64{j.started.UnixNano()}
	for i := range int32(v4JournalRecords) {
		j.free = append(j.free, v4JournalRecords-1-i)
	}
	const size = v4JournalStart + v4JournalRecords*v4RecordSize
	header := j.header(identity)
	old := make([]byte, v4JournalStart)
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if _, err := f.ReadAt(old, 0); err == nil && info.Size() == size && bytes.Equal(old[:v4JournalIDEnd], header[:v4JournalIDEnd]) {
		for i := range v4JournalStarts - 1 {
			if at := int64(binary.LittleEndian.Uint64(old[v4JournalIDEnd+8*i:])); at != 0 {
				j.starts = append(j.starts, at)
			}
		}
		return j, errors.Join(j.restore(), j.setIdentity(identity))
	}
	if err := errors.Join(f.Truncate(0), f.Truncate(size)); err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(header, 0); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	return j, syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// coarseNow is the time that the kernel gives to new objects.
func coarseNow() time.Time {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &t)
	return time.Unix(t.Unix())
}

func (j *sessionJournal) header(identity []byte) []byte {
	header := make([]byte, v4JournalStart)
	copy(header, v4JournalMagic)
	binary.LittleEndian.PutUint32(header[16:], v4JournalRecords)
	sum := sha256.Sum256(identity)
	copy(header[32:v4JournalIDEnd], sum[:])
	for i, at := range j.starts {
		binary.LittleEndian.PutUint64(header[v4JournalIDEnd+8*i:], uint64(at))
	}
	return header
}

// endOf returns when the process ended that had a session made at a time: not after the start of
// the next one. It returns 0 for a session from before the starts that are known.
func (j *sessionJournal) endOf(made int64) int64 {
	for i, at := range j.starts {
		if at <= made && i > 0 {
			return j.starts[i-1]
		}
	}
	return 0
}

// setIdentity replaces the identity that the file was opened with.
func (j *sessionJournal) setIdentity(identity []byte) error {
	if _, err := j.file.WriteAt(j.header(identity), 0); err != nil {
		return err
	}
	return j.flush()
}

func recordAt(record int32) int64 { return v4JournalStart + int64(record)*v4RecordSize }

// restore makes the sessions of the file dead ones.
func (j *sessionJournal) restore() error {
	j.free = j.free[:0]
	// Most of the file is a hole, which reads fast.
	in := io.NewSectionReader(j.file, v4JournalStart, v4JournalRecords*v4RecordSize)
	var b recordBuf
	for record := range int32(v4JournalRecords) {
		if _, err := io.ReadFull(in, b[:]); err != nil {
			return err
		}
		var r slotRecord
		if !r.decode(b[:]) {
			j.free = append(j.free, record)
			continue
		}
		n := j.sessions[r.session]
		if n == nil {
			n = &journaledSession{made: r.made, dead: true, ended: j.endOf(r.made), slots: map[uint32]*journaledSlot{}}
			j.sessions[r.session] = n
		}
		if n.slots[r.slot] != nil {
			j.free = append(j.free, record)
			continue
		}
		l := &journaledSlot{record: record}
		n.slots[r.slot] = l
		if r.target.state == created {
			l.created = bytes.Clone(r.target.handle[:r.target.n])
		}
	}
	return nil
}

// open gives a new session records for its slots; false if there are none. live reports whether a
// session still exists.
func (j *sessionJournal) open(id nfs4.SessionID, slots int, live func(nfs4.SessionID) bool, lease time.Duration) bool {
	j.mu.Lock()
	if n := j.sessions[id]; n != nil {
		j.mu.Unlock()
		return !n.dead
	}
	if len(j.free) < slots {
		j.makeRoomLocked(slots, live, lease)
	}
	if len(j.free) < slots {
		j.mu.Unlock()
		return false
	}
	n := &journaledSession{made: time.Now().UnixNano(), running: 1, slots: make(map[uint32]*journaledSlot, slots)}
	for i := range uint32(slots) {
		last := len(j.free) - 1
		n.slots[i] = &journaledSlot{record: j.free[last]}
		j.free = j.free[:last]
	}
	j.sessions[id] = n
	j.mu.Unlock()
	err := j.fill(id, n)
	j.mu.Lock()
	defer j.mu.Unlock()
	n.running--
	if err != nil {
		_ = j.fail(err)
		j.dropLocked(id)
	}
	return err == nil
}

// fill writes the records of a new session, without requests.
func (j *sessionJournal) fill(id nfs4.SessionID, n *journaledSession) error {
	var b recordBuf
	for i, l := range n.slots {
		r := slotRecord{session: id, slot: i, made: n.made}
		b.head(&r)
		if _, err := j.file.WriteAt(b[:], recordAt(l.record)); err != nil {
			return err
		}
	}
	return j.flush()
}

// makeRoomLocked frees the records of ended sessions. After a lease's time, in which clients repeat
// their calls, it frees those of dead sessions too, the oldest first.
func (j *sessionJournal) makeRoomLocked(slots int, live func(nfs4.SessionID) bool, lease time.Duration) {
	var dead []nfs4.SessionID
	for id, n := range j.sessions {
		switch {
		case n.dead:
			dead = append(dead, id)
		case n.running == 0 && !live(id):
			j.dropLocked(id)
		}
	}
	if coarseNow().Sub(j.started) < lease {
		return
	}
	slices.SortFunc(dead, func(a, b nfs4.SessionID) int { return int(min(1, max(-1, j.sessions[a].made-j.sessions[b].made))) })
	for _, id := range dead {
		if len(j.free) >= slots {
			return
		}
		if j.sessions[id].running == 0 {
			j.dropLocked(id)
		}
	}
}

// dropLocked forgets a session.
func (j *sessionJournal) dropLocked(id nfs4.SessionID) {
	n := j.sessions[id]
	if n == nil {
		return
	}
	delete(j.sessions, id)
	for _, l := range n.slots {
		_, _ = j.file.WriteAt(make([]byte, v4PrefixAt), recordAt(l.record))
		j.free = append(j.free, l.record)
	}
}

// destroy forgets a dead session, false if there is none.
func (j *sessionJournal) destroy(id nfs4.SessionID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := j.sessions[id]
	if n == nil || !n.dead || n.running > 0 {
		return false
	}
	j.dropLocked(id)
	return true
}

// dead reports whether a session is dead.
func (j *sessionJournal) dead(id nfs4.SessionID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := j.sessions[id]
	return n != nil && n.dead
}

// use prepares a record of a live session's slot, false if it has none. With success, release must
// follow.
func (j *sessionJournal) use(in *intent) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := j.sessions[in.session]
	if n == nil || n.dead || n.slots[in.slot] == nil {
		return false
	}
	n.running++
	in.record, in.made = n.slots[in.slot].record, n.made
	return true
}

// claim reads the record of a dead session's slot. With success, release must follow.
func (j *sessionJournal) claim(id nfs4.SessionID, slot, sequence uint32, in *intent) nfs4.Status {
	j.mu.Lock()
	n := j.sessions[id]
	switch {
	case n == nil || !n.dead:
		j.mu.Unlock()
		return nfs4.ErrBadSession
	case n.slots[slot] == nil:
		j.mu.Unlock()
		return nfs4.ErrDeadsession
	case n.slots[slot].busy:
		j.mu.Unlock()
		return nfs4.ErrDelay
	}
	n.slots[slot].busy = true
	n.running++
	in.record = n.slots[slot].record
	j.mu.Unlock()
	r := &in.slotRecord
	_, err := j.file.ReadAt(in.buf[:], recordAt(in.record))
	if err != nil || !r.decode(in.buf[:]) || r.session != id || r.slot != slot || r.index == 0 || r.sequence != sequence {
		j.release(id, slot)
		return nfs4.ErrDeadsession
	}
	return nfs4.OK
}

func (j *sessionJournal) release(id nfs4.SessionID, slot uint32) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := j.sessions[id]; n != nil && n.slots[slot] != nil {
		n.slots[slot].busy = false
		n.running--
	}
}

// attribute makes an object, born at a time, that of the request in a slot of a dead session; false
// if it is another request's, or not from the session's process.
func (j *sessionJournal) attribute(handle []byte, born int64, session nfs4.SessionID, slot uint32) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	own := j.sessions[session]
	if own == nil || own.slots[slot] == nil || born >= own.ended {
		return false
	}
	for id, n := range j.sessions {
		for i, l := range n.slots {
			if (id != session || i != slot) && vfs.SameObject(l.created, handle) {
				return false
			}
		}
	}
	own.slots[slot].created = bytes.Clone(handle)
	return true
}

// begin records a request before its effect.
func (j *sessionJournal) begin(in *intent) error {
	end := in.buf.head(&in.slotRecord)
	if _, err := j.file.WriteAt(in.buf[:end], recordAt(in.record)); err != nil {
		return j.fail(err)
	}
	if err := j.flush(); err != nil {
		return j.fail(err)
	}
	return nil
}

// made records the object that a request has made. The sync comes with the reply.
func (j *sessionJournal) made(in *intent, t *target) {
	in.target = *t
	end := in.buf.setTarget(t)
	if _, err := j.file.WriteAt(in.buf[:end], recordAt(in.record)); err != nil {
		_ = j.fail(err)
	}
}

// end records the reply of a request. After a failure a retry is judged by the request's record.
func (j *sessionJournal) end(in *intent) {
	end := in.buf.tail(&in.slotRecord)
	_, err := j.file.WriteAt(in.buf[v4ReplyPage:end], recordAt(in.record)+v4ReplyPage)
	if err == nil {
		err = j.flush()
	}
	if err != nil {
		_ = j.fail(err)
	}
}

func (j *sessionJournal) flush() error {
	return j.syncs.Do(func() error { return j.sync(int(j.file.Fd())) })
}

func (j *sessionJournal) fail(err error) error {
	if !j.failed.Swap(true) {
		j.log.Error("write of the session journal failed", "path", j.file.Name(), "error", err)
	}
	return err
}

func (j *sessionJournal) close() error { return j.file.Close() }

// openV4Journal opens the journal of sessions: beside the client records. Without it sessions are
// not persistent, with a note.
func openV4Journal(s *Server) *sessionJournal {
	if !s.cfg.NFS4.PersistentSessions {
		return nil
	}
	path := filepath.Join(s.cfg.StateDir, "sessions-"+exportHash(s.cfg.Name))
	if s.cfg.NFS4.RecordsInRoot {
		path = filepath.Join(s.cfg.Root, hiddenRecords, sessionsFile)
	}
	err := errors.New("there is no state directory")
	var j *sessionJournal
	if s.cfg.StateDir != "" || s.cfg.NFS4.RecordsInRoot {
		j, err = openSessionJournal(path, s.fs.Root().Handle().Bytes(), s.log)
	}
	if err != nil {
		s.log.Warn("no session journal: sessions are not persistent", "path", path, "error", err)
		s.info.Notes = append(slices.Clone(s.info.Notes), fmt.Sprintf("sessions are not persistent, since their journal cannot be used: %v", err))
		return nil
	}
	return j
}

// sessionsFile is the journal's name among the client records on a volume.
const sessionsFile = "sessions"
