package server

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

const (
	// callbackTimeout is how long a client may take for the answer to a callback before another
	// connection is tried.
	callbackTimeout = 15 * time.Second
	// callbackRetry is the pause before a callback that the client has answered by NFS4ERR_DELAY.
	callbackRetry = 100 * time.Millisecond
	// maxQueued bounds the callbacks of a client that wait for a slot or a connection.
	maxQueued = 1 << 13
)

// callbacks are the calls of a server to its clients (RFC 8881 section 20), over the connections of
// the clients' back channels.
type callbacks struct {
	v    *v4Server
	pool atomic.Pointer[bufpool.Pool]

	mu sync.Mutex
	// queued wait for a slot or a connection, by client.
	queued map[*state.Client][]*callback
	conns  map[*oncrpc.Conn]bool // watched
	closed bool
	// running counts requests, timers, and watchers of connections.
	running sync.WaitGroup
	stop    chan struct{}
}

// callback is an operation for a client, behind a CB_SEQUENCE.
type callback struct {
	b      *callbacks
	client *state.Client
	op     nfs4.CBOp
	size   int // bound of the arguments in bytes
	// encode writes the arguments.
	encode    func(e *xdr.Encoder) (needed bool)
	referring []nfs4.ReferringCall
	// done gets the operation's status and results, or gone: there will be no answer. It must not
	// wait. It may be nil.
	done func(st nfs4.Status, results *xdr.Decoder, gone bool)

	at      state.Callback
	hasSlot bool
	sent    bool // in that slot: then the client may have seen it
	probe   bool // CB_NULL
	delays  int
}

func (b *callbacks) init(v *v4Server) {
	b.v, b.stop = v, make(chan struct{})
	b.queued, b.conns = map[*state.Client][]*callback{}, map[*oncrpc.Conn]bool{}
}

// enter counts something that runs; false if the server closes.
func (b *callbacks) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.running.Add(1)
	}
	return !b.closed
}

func (b *callbacks) close() {
	b.mu.Lock()
	b.closed = true
	b.queued = nil
	b.mu.Unlock()
	close(b.stop)
	b.running.Wait()
}

// bound is called when a call on conn has changed the back channel of a session, and was answered.
func (b *callbacks) bound(id nfs4.SessionID, conn *oncrpc.Conn) {
	b.mu.Lock()
	watched := b.closed || b.conns[conn]
	if !watched {
		b.conns[conn] = true
		b.running.Add(1)
	}
	b.mu.Unlock()
	if !watched {
		go b.watch(conn)
	}
	b.probe(id)
	if client := b.v.state.ClientOf(id); client != nil {
		b.resume(client)
	}
}

// watch waits for the end of a connection.
func (b *callbacks) watch(conn *oncrpc.Conn) {
	defer b.running.Done()
	select {
	case <-conn.Done:
	case <-b.stop:
	}
	b.mu.Lock()
	delete(b.conns, conn)
	b.mu.Unlock()
	b.v.state.DropConn(conn)
}

// probe sends CB_NULL if the back channel of a session is not known to work.
func (b *callbacks) probe(id nfs4.SessionID) {
	if at, ok := b.v.state.Probe(id); ok {
		c := &callback{b: b, client: at.Session.Client(), at: at, probe: true}
		c.submit()
	}
}

// send sends a callback, as soon as there is a slot and a connection for it.
func (b *callbacks) send(c *callback) {
	c.b = b
	b.mu.Lock()
	ready, ended := b.readyLocked(c)
	if !ready && !ended && !b.closed && len(b.queued[c.client]) < maxQueued {
		b.queued[c.client] = append(b.queued[c.client], c)
	}
	b.mu.Unlock()
	c.proceed(ready, ended)
}

// recallSlots asks the client of a session to use fewer slots (CB_RECALL_SLOT, RFC 8881 section
// 20.8). The back channel must be that of the session. Without a slot there, the next SEQUENCE
// asks.
func (v *v4Server) recallSlots(n *state.Session) {
	c := &callback{b: &v.callbacks, client: n.Client(), op: nfs4.OpCBRecallSlot, size: 32}
	c.encode = func(e *xdr.Encoder) bool {
		highest, needed := v.state.TargetSlot(n)
		a := nfs4.CBRecallSlotArgs{TargetHighestSlot: highest}
		a.Encode(e)
		return needed && c.at.Session == n
	}
	if c.at, c.hasSlot = v.state.BeginCallbackOf(n); c.hasSlot {
		c.submit()
	}
}

// readyLocked gives c a slot and a connection, if there are any. ended: the client has ended.
func (b *callbacks) readyLocked(c *callback) (ready, ended bool) {
	if b.v.state.ClientEnded(c.client) {
		return false, true
	}
	if c.hasSlot {
		ok, over := b.v.state.Reroute(&c.at)
		if ok || !over {
			return ok, false
		}
		c.hasSlot, c.sent = false, false // the session has ended
	}
	c.at, c.hasSlot = b.v.state.BeginCallback(c.client)
	return c.hasSlot, false
}

func (c *callback) proceed(ready, ended bool) {
	switch {
	case ended:
		c.finish(0, nil, true)
	case ready:
		c.submit()
	}
}

// resume sends the queued callbacks of a client that there are slots for.
func (b *callbacks) resume(client *state.Client) {
	for {
		b.mu.Lock()
		list := b.queued[client]
		if len(list) == 0 {
			b.mu.Unlock()
			return
		}
		c := list[0]
		ready, ended := b.readyLocked(c)
		if !ready && !ended {
			b.mu.Unlock()
			return
		}
		if list[0] = nil; len(list) == 1 {
			delete(b.queued, client)
		} else {
			b.queued[client] = list[1:]
		}
		b.mu.Unlock()
		c.proceed(ready, ended)
	}
}

// forget drops the queued callbacks of clients that have ended.
func (b *callbacks) forget() {
	b.mu.Lock()
	var clients []*state.Client
	for c := range b.queued {
		if b.v.state.ClientEnded(c) {
			clients = append(clients, c)
		}
	}
	b.mu.Unlock()
	for _, c := range clients {
		b.resume(c)
	}
}

// auth is the credential that the client asked for (csa_sec_parms).
func auth(p *nfs4.SecParms) oncrpc.Auth {
	if p.Flavor != nfs4.AuthSys {
		return oncrpc.Auth{}
	}
	sys := oncrpc.AuthSysParms{Stamp: p.Stamp, Machine: p.Machine, UID: p.UID, GID: p.GID, GIDs: p.GIDs[:p.NGIDs]}
	a, err := sys.Auth()
	if err != nil { // the codec has bounded all parts
		return oncrpc.Auth{}
	}
	return a
}

// submit sends c on the connection at hand.
func (c *callback) submit() {
	if !c.b.enter() {
		return
	}
	r, err := c.request()
	if r == nil {
		c.b.running.Done()
		c.end(err)
		return
	}
	conn := c.at.Conn.(*oncrpc.Conn)
	timer := time.AfterFunc(callbackTimeout, func() {
		if back, ok := conn.Back.(oncrpc.Canceler); ok {
			back.Cancel(r, errCallbackTimeout)
		}
	})
	r.Done = func(r *oncrpc.Request) {
		timer.Stop()
		// Not on the transport's goroutine: the next callback may go to another connection.
		go func() {
			defer c.b.running.Done()
			c.answered(r)
		}()
	}
	c.sent = true
	oncrpc.Submit(conn.Back, r)
}

var (
	errCallbackTimeout = errors.New("nfs server: no answer to a callback")
	errNotNeeded       = errors.New("nfs server: the callback is no longer needed")
)

func (c *callback) request() (*oncrpc.Request, error) {
	pool := c.b.pool.Load()
	cred := auth(&c.at.Sec)
	procedure, size := uint32(nfs4.ProcCompound), oncrpc.MinCallLen+oncrpc.MaxAuthLen+256+28*len(c.referring)+c.size
	if c.probe {
		procedure = nfs4.ProcNull
	}
	r, e, err := oncrpc.NewRequest(pool, c.at.Program, nfs4.CallbackVersion, procedure, cred, size)
	if err != nil {
		return nil, err
	}
	r.Plan.MaxReply = oncrpc.MinReplyLen // no Reply chunk: answers are short (RFC 8167 section 5.2)
	if !c.probe {
		head := nfs4.CBCompoundArgs{Minor: c.at.Minor, Count: 2}
		head.Encode(e)
		e.Uint32(uint32(nfs4.OpCBSequence))
		c.at.Args.Referring = c.referring
		c.at.Args.Encode(e)
		e.Uint32(uint32(c.op))
		if !c.encode(e) && !c.sent {
			r.Free()
			return nil, errNotNeeded
		}
	}
	if err := r.Seal(); err != nil {
		r.Free()
		return nil, err
	}
	return r, nil
}

// end ends a callback that was not sent.
func (c *callback) end(err error) {
	if !errors.Is(err, errNotNeeded) {
		c.b.v.s.log.Warn("callback not sent", "error", err)
	}
	if c.probe {
		return
	}
	c.leave(state.CallbackUnsent)
	c.finish(0, nil, true)
}

// leave gives up the slot.
func (c *callback) leave(how state.CallbackEnd) {
	if c.hasSlot {
		c.hasSlot, c.sent = false, false
		c.b.v.state.EndCallback(&c.at, how)
	}
}

// finish reports the outcome.
func (c *callback) finish(st nfs4.Status, results *xdr.Decoder, gone bool) {
	c.leave(state.CallbackRan)
	if c.done != nil {
		c.done(st, results, gone)
	}
	c.b.resume(c.client)
}

// answered handles the end of a request.
func (c *callback) answered(r *oncrpc.Request) {
	defer r.Free()
	v := c.b.v
	d, err := r.Results()
	var refused *oncrpc.StatusError
	switch {
	case c.probe:
		if err == nil || errors.As(err, &refused) {
			v.state.Probed(&c.at, err == nil)
			if err == nil {
				c.b.resume(c.client)
			}
			return
		}
		v.state.LoseConn(&c.at)
		c.b.probe(c.at.Session.ID())
		return
	case errors.As(err, &refused):
		c.fault()
		return
	case err != nil: // no answer: the connection is of no use
		v.state.LoseConn(&c.at)
		c.b.send(c)
		return
	}
	switch ran, st, valid := readAnswer(d, &c.at.Args, c.op); {
	case !valid:
		c.fault()
	case !ran:
		c.again()
	case st == nfs4.ErrDelay:
		c.leave(state.CallbackRan)
		c.b.resume(c.client)
		c.again()
	default:
		c.finish(st, d, false)
	}
}

// readAnswer reads the results of a CB_COMPOUND of CB_SEQUENCE and op, up to those of op, and
// returns its status. ran: the slot was used. The client has to try again without that. valid: the
// answer is one to the callback.
func readAnswer(d *xdr.Decoder, args *nfs4.CBSequenceArgs, op nfs4.CBOp) (ran bool, st nfs4.Status, valid bool) {
	var head nfs4.CompoundRes
	var seq nfs4.CBSequenceRes
	head.Decode(d)
	first, st := nfs4.CBOp(d.Uint32()), nfs4.Status(d.Uint32())
	if d.Err() != nil || head.Count == 0 || first != nfs4.OpCBSequence || st != nfs4.OK {
		return false, st, d.Err() == nil && head.Count > 0 && first == nfs4.OpCBSequence && st == nfs4.ErrDelay
	}
	seq.Decode(d)
	second, st := nfs4.CBOp(d.Uint32()), nfs4.Status(d.Uint32())
	same := seq.Session == args.Session && seq.Sequence == args.Sequence && seq.Slot == args.Slot
	return true, st, d.Err() == nil && same && head.Count == 2 && second == op
}

// fault ends the use of a back channel that does not work. The callback waits for another one.
func (c *callback) fault() {
	c.b.v.s.log.Warn("client refused a callback", "client", c.at.Conn.(*oncrpc.Conn).Remote)
	c.leave(state.CallbackFault)
	c.b.send(c)
}

// again sends c after a pause, which doubles each time up to a second.
func (c *callback) again() {
	pause := min(callbackRetry<<min(c.delays, 4), time.Second)
	c.delays++
	c.b.after(pause, func() { c.b.send(c) })
}

// after runs f after a pause, unless the server closes.
func (b *callbacks) after(pause time.Duration, f func()) {
	if !b.enter() {
		return
	}
	go func() {
		defer b.running.Done()
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
			f()
		case <-b.stop:
		}
	}()
}
