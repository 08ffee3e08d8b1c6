package rpcrdma

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// transcript is a file of commands, one on a line; a line that begins with white space continues
// the previous one. A line "row NAME" begins a test of its own, which executes the lines before the
// first row and those of the row.
//
//	config key=value...          settings of the tested side, first line only: of a requester ext, results,
//	                             threshold, handler (for calls of the reverse direction), and the answer
//	                             to its first message (words, by commas), or refused; revocable: a
//	                             client's adapter can be invalidated; rfc5666: forms of RFC 5666;
//	                             bare: the client sends no private data
//	mem NAME SIZE [result K]     exposes memory with the bytes of fill(K)
//	fill NAME token...           puts bytes at the beginning of memory
//	is NAME token...             looks at the beginning of memory
//	send token...                sends a message
//	recv token...                expects this message, and nothing else of it
//	recv-invalidate NAME token...  expects it with the invalidation of the memory
//	quiet                        no message has come
//	exposed N                    the tested side exposes N regions to its peer, at last
//	goes-on                      further calls are answered, and all receives and credits come back;
//	                             every row ends so
//	knows key=value...           the tested side's parameters of the connection: version, ext, size,
//	                             support, targets, calls, replies
//	call key=value...            the requester makes a call of procMove, see type move; a responder does
//	                             so in the reverse direction
//	done [text]                  that call is done; with an error that contains the text
//	read NAME token...           RDMA Read of the bytes from the peer's segment that recv named
//	write NAME K SIZE [FROM]     RDMA Write of fill(K), from byte FROM on, to the peer's segment that recv
//	                             named
//
// Tokens of messages are words, decimal or 0x…, and
//
//	MSG NOMSG MSGP DONE ERROR OPTIONAL CONNPROP REQPROP RESPROP UPDPROP, CALL REPLY, tail
//	GRANT and so on              a header type of the working group's dialect; see headerTypes
//	NAME, NAME:n                 a segment: all of the memory, or n bytes of it; NAME:n+m is the n bytes
//	                             from m on
//	NAME:handle                  its handle
//	data(n,k), data(n,k,m)       n bytes of fill(k), those from m on, with XDR round-up
//	zeros(n)                     n zero bytes
//	reads(n,position)            n Read chunks of 4 bytes each, at the positions from there on
//	sum(n,k)                     their checksum; both(n,k,m,l) that of two
//	call(xid,procedure)          an RPC call header; reply(xid) that of a successful reply
//	*                            any word; in recv only
//	$NAME                        any word, which NAME means from now on; $NAME:segment any segment of at
//	                             least one byte, $NAME:n one of n bytes
type transcript struct {
	t    *testing.T
	w    *env
	p    *rawPeer
	mem  map[string][]byte
	segs map[string]wire.Segment
	vars map[string]uint32
	c    *Client
	r    *oncrpc.Request
	m    move
	done chan struct{}
	line string // the present one
}

func TestTranscripts(t *testing.T) {
	for _, role := range []string{"responder", "requester", "responder2", "requester2", "responder-ext", "requester-ext", "responder-wg", "requester-wg"} {
		files, err := filepath.Glob("testdata/" + role + "/*.txt")
		if err != nil || len(files) == 0 {
			t.Fatal(err, len(files))
		}
		for _, name := range files {
			t.Run(role+"/"+strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
				first, rows := readTranscript(t, name)
				if len(rows) == 0 {
					runTranscript(t, role, first)
				}
				for _, r := range rows {
					t.Run(r.name, func(t *testing.T) {
						runTranscript(t, role, append(slices.Concat(first, r.lines), transcriptLine{r.name, "goes-on"}))
					})
				}
			})
		}
	}
}

// row is a part of a transcript with a connection of its own.
type row struct {
	name  string
	lines []transcriptLine
}

type transcriptLine struct{ at, text string }

// readTranscript reads a file's lines before its first row, and its rows.
func readTranscript(t *testing.T, file string) (first []transcriptLine, rows []row) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := &first
	for i, line := range strings.Split(string(text), "\n") {
		if name, ok := strings.CutPrefix(line, "row "); ok {
			rows = append(rows, row{name: name})
			lines = &rows[len(rows)-1].lines
			continue
		}
		line, _, _ = strings.Cut(line, "#")
		switch {
		case strings.TrimSpace(line) == "":
		case strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
			(*lines)[len(*lines)-1].text += line
		default:
			*lines = append(*lines, transcriptLine{fmt.Sprintf("%s:%d", file, i+1), line})
		}
	}
	return first, rows
}

// runTranscript connects, in a role, and executes the lines.
func runTranscript(t *testing.T, role string, lines []transcriptLine) {
	x := &transcript{t: t, mem: map[string][]byte{}, segs: map[string]wire.Segment{}, vars: map[string]uint32{}}
	var options []string
	if f := strings.Fields(lines[0].text); f[0] == "config" {
		options, lines = f[1:], lines[1:]
	}
	if err := x.connect(role, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("at " + x.line)
		}
	})
	for _, l := range lines {
		x.line = l.at
		f := strings.Fields(l.text)
		if err := x.command(f[0], f[1:]); err != nil {
			t.Fatalf("%s: %v", l.at, err)
		}
	}
	x.p.none()
	x.p.close()
	if x.c != nil {
		x.w.close(x.c)
	} else {
		x.w.close()
	}
}

// connect connects the side that is tested with a raw peer.
func (x *transcript) connect(role string, options []string) (err error) {
	o := rdmatest.Options{ScribbleReceives: true, Record: true}
	switch role {
	case "responder":
		x.w = newEnv(x.t, o, func(cfg *Config) { cfg.RFC5666 = rfc5666Of(options) })
	case "responder2":
		x.w = newEnv(x.t, o, func(cfg *Config) {
			cfg.Versions, cfg.Extensions, cfg.Credits = []int{1, 2}, TransportProperties, credit.Static(8)
		})
	case "responder-wg":
		x.w = newEnv(x.t, o, func(cfg *Config) {
			workingGroup(cfg)
			cfg.Versions, cfg.Credits = []int{1, 2}, credit.Static(8)
		})
	case "requester-wg":
		answer := words(3, 1, 4, 4096, 2, 4, 4096, 4, 4, 32)
		for _, o := range options {
			if v, ok := strings.CutPrefix(o, "answer="); ok {
				answer, _ = x.bytes(strings.Split(v, ","))
			}
		}
		x.c, x.p, x.w, err = dial2(x.t, func(cfg *Config) {
			workingGroup(cfg)
			cfg.Versions, cfg.Continuation = []int{1, 2}, Continuation{MaxCallTransmissions: 3, MaxReplyTransmissions: 3}
			if slices.Contains(options, "handler") {
				cfg.Handler = new(testHandler)
			}
		}, func(h *wire.Header) []byte {
			return slices.Concat(words(uint32(h.XID), 2, 8, 7), answer)
		})
	case "responder-ext":
		x.w = newEnv(x.t, o, func(cfg *Config) {
			small(cfg)
			cfg.Credits = credit.Static(8)
		})
	case "requester":
		x.c, x.p, x.w = newRequesterEnv(x.t, rawPrivate(4096), func(cfg *Config) { cfg.RFC5666 = rfc5666Of(options) }, rdmatest.NewFabric(o))
	case "requester2":
		x.c, x.p, x.w, err = dial2(x.t, nil, func(h *wire.Header) []byte { return words(uint32(h.XID), 2, 8, 6, 0, 0) })
	case "requester-ext":
		answer := words(5, 1, 4, 8192, 3, 4, 5, 4, 40, smallStructure, 5, 4, 4, 6, 4, 4, 1, 31)
		for _, o := range options {
			if v, ok := strings.CutPrefix(o, "answer="); ok {
				answer, _ = x.bytes(strings.Split(v, ","))
			}
		}
		x.c, x.p, x.w, err = dial2(x.t, func(cfg *Config) { configure(cfg, options) }, func(h *wire.Header) []byte {
			if slices.Contains(options, "refused") {
				return words(uint32(h.XID), 2, 8, 4, 3)
			}
			return slices.Concat(words(uint32(h.XID), 2, 8, 6), answer)
		})
	}
	if x.p == nil && slices.Contains(options, "bare") {
		x.p = x.w.rawDial(nil)
	}
	if x.p == nil {
		revocable := role != "responder-ext" || slices.Contains(options, "revocable")
		x.p = x.w.rawDial(wire.PrivateData{RemoteInvalidation: revocable, SendSize: 4096, ReceiveSize: 4096}.Append(nil))
	}
	return err
}

// rfc5666Of are the forms of RFC 5666 in the options of a transcript.
func rfc5666Of(options []string) (set RFC5666) {
	for _, o := range options {
		for name := range strings.SplitSeq(strings.TrimPrefix(o, "rfc5666="), ",") {
			set |= map[string]RFC5666{"Padding": Padding, "ReadRead": ReadRead, "Configuration": Configuration}[name]
		}
	}
	return set
}

// configure is small, changed by the options of a transcript.
func configure(cfg *Config, options []string) {
	small(cfg)
	for _, o := range options {
		switch key, value, _ := strings.Cut(o, "="); key {
		case "results":
			cfg.Placement.Results = map[string]wire.Placement{"EXRW": wire.Explicit, "CHOICE": wire.Choice, "BYSIZE": wire.BySize}[value]
		case "threshold":
			cfg.Placement.Threshold = atoi(value)
		case "handler":
			cfg.Handler = new(testHandler)
		case "answer", "refused":
		default:
			panic(key + value)
		}
	}
}

func (x *transcript) command(name string, args []string) error {
	switch name {
	case "mem":
		m := x.p.mem(atoi(args[1]))
		clear(m)
		if len(args) == 4 {
			fill([][]byte{m}, atoi(args[3]))
		}
		x.mem[args[0]] = m
		x.segs[args[0]] = x.p.expose(m, rdma.RemoteRead|rdma.RemoteWrite)
	case "fill":
		b, _ := x.bytes(args[1:])
		copy(x.mem[args[0]], b)
	case "is":
		b, mask := x.bytes(args[1:])
		return x.compare(x.mem[args[0]][:len(b)], b, mask, args[1:])
	case "send":
		b, _ := x.bytes(args)
		x.p.send(b)
	case "recv", "recv-invalidate":
		r := x.p.get()
		if name == "recv-invalidate" {
			if !r.has || r.invalidated != uint32(x.segs[args[0]].Handle) {
				return fmt.Errorf("invalidated %v %#x", r.has, r.invalidated)
			}
			args = args[1:]
		} else if r.has {
			return fmt.Errorf("invalidated %#x", r.invalidated)
		}
		x.learn(r.b, args)
		b, mask := x.bytes(args)
		return x.compare(r.b, b, mask, args)
	case "quiet":
		x.p.none()
	case "exposed":
		return x.exposed(atoi(args[0]))
	case "goes-on":
		return x.goesOn()
	case "knows":
		return x.knows(args)
	case "read":
		want, mask := x.bytes(args[1:])
		m, s := x.p.mem(len(want)), x.segs[args[0]]
		wr := rdma.WorkRequest{Op: rdma.Read, Local: [][]byte{m}, Remote: rdma.Remote{Handle: uint32(s.Handle), Offset: s.Offset}}
		if err := x.p.ep.Post([]rdma.WorkRequest{wr}); err != nil {
			return err
		}
		select {
		case <-x.p.read:
			return x.compare(m, want, mask, args[1:])
		case <-time.After(patience):
			return fmt.Errorf("nothing could be read")
		}
	case "write":
		from := 0
		if len(args) > 3 {
			from = atoi(args[3])
		}
		m := x.p.mem(atoi(args[2]))
		copy(m, pattern(from+len(m), atoi(args[1]))[from:])
		s := x.segs[args[0]]
		return x.p.ep.Post([]rdma.WorkRequest{{Op: rdma.Write, Local: [][]byte{m}, Remote: rdma.Remote{Handle: uint32(s.Handle), Offset: s.Offset}}})
	case "call":
		return x.call(args)
	case "done":
		select {
		case <-x.done:
		case <-time.After(patience):
			return fmt.Errorf("the call is not done")
		}
		if x.c != nil { // until the reply's receive is posted again: the next limit has it
			x.c.conn.recvMu.Lock()
			x.c.conn.recvMu.Unlock() //nolint:staticcheck // it waits for the goroutine that took the reply
		}
		defer x.r.Free()
		want := strings.Join(args, " ")
		switch {
		case want == "":
			return x.m.check(x.r)
		case x.r.Err == nil || !strings.Contains(x.r.Err.Error(), want):
			return fmt.Errorf("request ended with %w, want %q", x.r.Err, want)
		}
	default:
		return fmt.Errorf("unknown command %q", name)
	}
	return nil
}

// goesOn makes further calls, and looks whether all receives and credits are back.
func (x *transcript) goesOn() error {
	if x.c == nil && x.w.server.cfg.Dialect == wire.V2WorkingGroup {
		for xid := 1000; xid < 1016; xid++ {
			x.p.send(append(words(xid, 2, xid, 10, 0, 0, 0, 0), rpcCall(xid, procNull)...))
			if b := x.p.get().b; !bytes.Equal(b[12:], words(13, 0, xid, 1, 0, 0, 0, 0)) {
				return fmt.Errorf("answer to a further call: %x", b)
			}
		}
		x.w.waitIdle()
		return nil
	}
	if x.c == nil {
		for xid := 1000; xid < 1016; xid++ {
			x.p.send(append(words(xid, 2, 8, 0, 0, 0, 0, 0, 0), rpcCall(xid, procNull)...))
			if h := x.p.parse2(x.p.get().b); h.XID != wire.XID(xid) || h.Procedure != wire.Msg || h.Credits != 8 {
				return fmt.Errorf("answer to a further call: %+v", h)
			}
		}
		x.w.waitIdle()
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- null(x.c, x.w.cpool, procNull) }()
	h := x.p.parse2(x.p.get().b)
	if h.Procedure != wire.Msg {
		return fmt.Errorf("next call: %+v", h)
	}
	answer := words(uint32(h.XID), h.Version, 8, 0)
	if h.Version == wire.Version2 {
		answer = append(answer, words(1, 0)...)
	}
	x.p.send(append(answer, words(0, 0, 0, uint32(h.XID), 1, 0, 0, 0, 0)...))
	if err := <-done; err != nil {
		return err
	}
	r, out := &x.c.conn.receives, &x.c.conn.requester
	eventually(x.t, "the client's receives and credits are given back", func() bool {
		out.mu.Lock()
		busy := out.inFlight
		out.mu.Unlock()
		r.mu.Lock()
		defer r.mu.Unlock()
		return busy == 0 && r.held == 0 && r.extra == spareReceives
	})
	return nil
}

// exposed waits until so many regions are open to the peer.
func (x *transcript) exposed(want int) error {
	own, peer := rdmatest.Dialer, rdmatest.Acceptor
	if x.c == nil {
		own, peer = peer, own
	}
	n := 0
	for start := time.Now(); time.Since(start) < patience; time.Sleep(time.Millisecond) {
		n = 0
		for _, e := range x.w.fabric.Events() {
			switch {
			case e.What == "exposed" && e.From == own:
				n++
			case e.What == "invalidated" && e.From == own, e.What == "Send with Invalidate" && e.From == peer:
				n--
			}
		}
		if n == want {
			return nil
		}
	}
	return fmt.Errorf("%d regions are exposed, must be %d", n, want)
}

// knows compares the negotiated parameters.
func (x *transcript) knows(args []string) error {
	var n Negotiated
	if x.c != nil {
		n = x.c.Negotiated()
	} else {
		n = x.w.server.only().Negotiated()
	}
	have := map[string]int{
		"version": n.Version, "ext": int(n.Extensions), "size": n.Remote.ReceiveSize, "support": int(n.Remote.Support),
		"targets": n.Remote.Targets, "calls": n.Remote.RequestLimit, "replies": n.Remote.ResponseLimit,
	}
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		if v, ok := have[key]; !ok || v != atoi(value) {
			return fmt.Errorf("%s is %d, want %s", key, v, value)
		}
	}
	return nil
}

// call submits a move: args=1,2 results=3 how=0 memory=2 split=2 inline bound=100 estimated.
func (x *transcript) call(args []string) error {
	x.m = move{}
	ints := func(s string) (v []int) {
		for _, f := range strings.Split(s, ",") {
			v = append(v, atoi(f))
		}
		return v
	}
	bound, estimated := 0, false
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "args":
			x.m.args = ints(value)
		case "results":
			x.m.results = ints(value)
		case "how":
			x.m.how = ints(value)
		case "memory":
			x.m.memory = atoi(value)
		case "split":
			x.m.split = atoi(value)
		case "inline":
			x.m.inline = true
		case "bound":
			bound = atoi(value)
		case "estimated":
			estimated = true
		default:
			return fmt.Errorf("unknown key %q", key)
		}
	}
	pool := x.w.cpool
	if x.c == nil {
		pool = x.w.pool
	}
	r, err := x.m.build(pool)
	if err != nil {
		return err
	}
	if bound > 0 {
		r.Plan.MaxReply = bound
	}
	r.Plan.Estimated = estimated
	if err := r.Seal(); err != nil {
		return err
	}
	if x.r = r; x.c == nil {
		x.done = submit(x.w.back(), r)
	} else {
		x.done = submit(x.c, r)
	}
	return nil
}

// learn takes the $ tokens from a message that came.
func (x *transcript) learn(msg []byte, tokens []string) {
	at := 0
	for _, tok := range tokens {
		name, kind, _ := strings.Cut(strings.TrimPrefix(tok, "$"), ":")
		switch {
		case !strings.HasPrefix(tok, "$"):
			b, _ := x.bytes([]string{tok})
			at += len(b)
		case kind != "" && len(msg) >= at+16:
			x.segs[name] = wire.Segment{
				Handle: wire.Handle(binary.BigEndian.Uint32(msg[at:])), Length: binary.BigEndian.Uint32(msg[at+4:]), Offset: binary.BigEndian.Uint64(msg[at+8:]),
			}
			at += 16
		case len(msg) >= at+4:
			x.vars[name] = binary.BigEndian.Uint32(msg[at:])
			at += 4
		}
	}
}

// bytes are those of tokens; where mask is zero any will do.
func (x *transcript) bytes(tokens []string) (b, mask []byte) {
	for _, tok := range tokens {
		v, any := x.token(tok)
		b = append(b, v...)
		m := byte(0xff)
		if any {
			m = 0
		}
		mask = append(mask, bytes.Repeat([]byte{m}, len(v))...)
	}
	return b, mask
}

// headerTypes are those of the working group's dialect.
var headerTypes = map[string]int{
	"GRANT": 5, "CONNPROP_MIDDLE": 6, "CONNPROP_FINAL": 7, "CALL_EXTERNAL": 8, "CALL_MIDDLE": 9, "CALL_INLINE": 10,
	"REPLY_EXTERNAL": 11, "REPLY_MIDDLE": 12, "REPLY_INLINE": 13,
}

func (x *transcript) token(tok string) (b []byte, any bool) {
	if n, ok := headerTypes[tok]; ok {
		return words(n), false
	}
	switch tok {
	case "MSG":
		return words(0), false
	case "NOMSG":
		return words(1), false
	case "MSGP":
		return words(2), false
	case "DONE":
		return words(3), false
	case "ERROR":
		return words(4), false
	case "OPTIONAL":
		return words(5), false
	case "CONNPROP":
		return words(6), false
	case "REQPROP":
		return words(7), false
	case "RESPROP":
		return words(8), false
	case "UPDPROP":
		return words(9), false
	case "CALL":
		return words(0), false
	case "REPLY":
		return words(1), false
	case "tail":
		return words(tail), false
	case "*":
		return words(0), true
	}
	if v, err := strconv.ParseUint(tok, 0, 32); err == nil {
		return words(uint32(v)), false
	}
	if name, list, ok := strings.Cut(strings.TrimSuffix(tok, ")"), "("); ok {
		var args []int
		for _, a := range strings.Split(list, ",") {
			if v, ok := x.vars[a]; ok {
				args = append(args, int(v))
			} else {
				args = append(args, atoi(a))
			}
		}
		switch name {
		case "data":
			from := 0
			if len(args) == 3 {
				from = args[2]
			}
			return append(pattern(from+args[0], args[1])[from:], make([]byte, -args[0]&3)...), false
		case "zeros":
			return make([]byte, args[0]), false
		case "sum":
			return words(crc(args[0], args[1])), false
		case "reads": // n Read chunks of 4 bytes, from a position on
			var b []byte
			for i := range args[0] {
				b = append(b, words(1, args[1]+4*i, wire.Segment{Handle: 7, Length: 4})...)
			}
			return b, false
		case "both":
			return words(checksumOf(append(pattern(args[0], args[1]), pattern(args[2], args[3])...))), false
		case "call":
			return rpcCall(args[0], args[1]), false
		case "reply":
			return words(args[0], 1, 0, 0, 0, 0), false
		}
	}
	name, rest, _ := strings.Cut(strings.TrimPrefix(tok, "$"), ":")
	if v, ok := x.vars[name]; ok {
		return words(v), false
	}
	s, ok := x.segs[name]
	if !ok {
		x.t.Fatalf("unknown token %q", tok)
	}
	if rest == "handle" {
		return words(uint32(s.Handle)), false
	}
	if rest != "" && rest != "segment" {
		n, off, _ := strings.Cut(rest, "+")
		s.Length = uint32(atoi(n))
		if off != "" {
			s.Offset += uint64(atoi(off))
		}
	}
	return words(s), false
}

func (x *transcript) compare(got, want, mask []byte, tokens []string) error {
	if len(got) != len(want) {
		return fmt.Errorf("got %d bytes, want %d:\n%x, want\n%x", len(got), len(want), got, want)
	}
	for i := range got {
		if (got[i]^want[i])&mask[i] != 0 {
			return fmt.Errorf("byte %d differs: got\n%x, want\n%x (%s)", i, got, want, strings.Join(tokens, " "))
		}
	}
	return nil
}

func crc(n, k int) uint32 { return checksumOf(pattern(n, k)) }

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// small has all extensions, with receives of two pages and groups of four Sends.
func small(cfg *Config) {
	cfg.Versions, cfg.Extensions = []int{2}, allExtensions
	cfg.Continuation, cfg.Placement = Continuation{4, 4}, Placement{ReceiveBuffer: 4096, MinLength: 1000}
}

// smallStructure describes its receives.
var smallStructure = words(8192, 2, 1, 4096, 1, 0, 1, 4096, 4096, 1)
