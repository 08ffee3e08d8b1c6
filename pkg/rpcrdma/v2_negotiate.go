package rpcrdma

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

const (
	// answerTime is how long a client waits for the answer to its first message.
	answerTime = 5 * time.Second
	// controlTime is how long the answer to any other control message may take. Reports, and the
	// calls that wait for them, wait for it.
	controlTime = 30 * time.Second
)

// errNoAnswer is why a client takes its peer for one that does not know version 2.
var errNoAnswer = errors.New("rpcrdma: no answer to the first message of version 2")

// errOverdue is why a connection ends whose peer leaves a control message unanswered.
var errOverdue = fmt.Errorf("rpcrdma: the peer has not answered a message about properties for %v", controlTime)

// choose sends the first message of a client, and waits until the version is known.
func (k *negotiator) choose(ctx context.Context) error {
	k.out.mu.Lock()
	asked := wire.Credits(k.out.asked())
	k.out.inFlight = 1
	k.out.mu.Unlock()
	xid := wire.XID(k.out.NextXID())
	k.recvMu.Lock()
	k.sentProps = k.cfg.has(TransportProperties)
	props := k.properties()
	k.recvMu.Unlock()
	err := k.sendControl(xid, func(dst []byte) []byte {
		if k.workingGroup() {
			return wire.AppendConnProp(dst, xid, 0, k.wgProperties(), false)
		}
		if k.cfg.has(TransportProperties) {
			return wire.AppendProperties(dst, xid, asked, wire.Call, wire.ConnProp, props, false)
		}
		dst = wire.AppendMessage(dst, xid, asked, wire.Msg, wire.Call, 0)
		dst = wire.AppendEnd(wire.AppendEnd(wire.AppendEnd(dst)))
		var e xdr.Encoder
		var null [oncrpc.MinCallLen]byte
		e.Reset(null[:0], nil)
		oncrpc.EncodeCallHeader(&e, uint32(xid), 0, 0, 0, oncrpc.Auth{}, oncrpc.Auth{})
		return append(dst, null[:]...)
	})
	if err != nil {
		return err
	}
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case <-k.chosen:
		return k.refusal
	case <-k.done:
		return &LostError{k.err}
	case <-timer.C:
		return errNoAnswer
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sendControl sends one message, or two, of together at most wire.FirstMessage bytes. The last one
// has xid and awaits an answer.
func (k *negotiator) sendControl(xid wire.XID, build ...func(dst []byte) []byte) error {
	k.mu.Lock()
	if k.busy || k.awaits {
		k.mu.Unlock()
		return errors.New("rpcrdma: another control message is outstanding")
	}
	var err error
	if k.head, err = k.buffer(k.head, wire.FirstMessage); err != nil {
		k.mu.Unlock()
		return err
	}
	k.batch.wrs = k.batch.wrs[:0]
	at := 0
	for i, b := range build {
		k.local[i] = b(k.head.B[at:at])
		at += len(k.local[i])
		k.batch.wrs = append(k.batch.wrs, rdma.WorkRequest{Op: rdma.Send, Local: k.local[i : i+1]})
	}
	last := &k.batch.wrs[len(k.batch.wrs)-1]
	last.ID, last.Signaled = idControl, true
	k.busy, k.awaits, k.xid = true, true, xid
	k.timer = time.AfterFunc(controlTime, func() { k.overdue(xid) })
	k.mu.Unlock()
	k.work.post(&k.batch)
	return nil
}

// reportReply reports a bad reply to the peer, before any call uses a credit that came back behind
// it: the peer relies on that, see [retainedReplies]. It returns false if the report is waiting
// already, or there are more reports than calls. recvMu is held.
func (k *negotiator) reportReply(group wire.XID, r *wire.Report) bool {
	out := k.out
	out.mu.Lock()
	most := out.inFlight
	out.mu.Unlock()
	k.mu.Lock()
	ok := len(k.reports) < most && !slices.ContainsFunc(k.reports, func(b badReply) bool { return b.xid == group })
	if ok {
		k.reports = append(k.reports, badReply{group, *r})
	}
	k.mu.Unlock()
	k.sendReports()
	return ok
}

// sendReports sends the first waiting report, if no answer is awaited. recvMu is held.
func (k *negotiator) sendReports() {
	k.mu.Lock()
	var b badReply
	n, free := len(k.reports), !k.busy && !k.awaits
	if n > 0 {
		b = k.reports[0]
	}
	k.mu.Unlock()
	if n == 0 {
		return
	}
	if free {
		if !k.fenced(func(dst []byte, credits wire.Credits) []byte {
			return appendReport(dst, b.xid, credits, wire.Call, &b.report)
		}) {
			k.fail(fmt.Errorf("rpcrdma: the reply to call %#x is bad, and cannot be reported", uint32(b.xid)))
			return
		}
		k.mu.Lock()
		k.reports = append(k.reports[:0], k.reports[1:]...)
		k.mu.Unlock()
		n--
	}
	if out := k.out; out.halt(n > 0) {
		out.pump()
	}
}

// sent handles the completion of the Send.
func (k *negotiator) sent() {
	k.mu.Lock()
	k.busy = false
	n := len(k.batch.wrs)
	waits := len(k.reports) > 0 && !k.awaits
	k.mu.Unlock()
	k.work.completed(n)
	if waits { // the answer was here before
		go k.sendReportsLater()
	}
}

func (k *negotiator) sendReportsLater() {
	k.recvMu.Lock()
	defer k.recvMu.Unlock()
	k.sendReports()
}

// isAnswer reports whether xid is that of the message that awaits an answer, and ends the wait.
func (k *negotiator) isAnswer(xid wire.XID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	ok := k.awaits && k.xid == xid
	if ok {
		k.awaits = false
		k.timer.Stop()
	}
	return ok
}

// overdue ends the connection if the message with xid still awaits its answer.
func (k *negotiator) overdue(xid wire.XID) {
	k.mu.Lock()
	ok := k.awaits && k.xid == xid
	k.mu.Unlock()
	if ok {
		k.fail(errOverdue)
	}
}

// firstAnswered reports whether a client's first message awaits an answer, and ends the wait.
// RDMA2_CONNPROP is an answer whatever its XID, since draft -05 does not make it one.
func (k *negotiator) firstAnswered() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	ok := !k.server && !k.announced && k.awaits
	if ok {
		k.awaits = false
		k.timer.Stop()
	}
	return ok
}

// close frees the buffer; the endpoint has let go of it.
func (k *negotiator) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy, k.awaits = true, false
	if k.timer != nil {
		k.timer.Stop()
	}
	if k.head != nil {
		k.head.Release()
		k.head = nil
	}
}

// refusedControl handles an RDMA_ERROR message, if it answers one of ours. It may settle the
// version.
func (k *negotiator) refusedControl(m *inbound) bool {
	h := &m.hdr
	if !k.isAnswer(h.XID) {
		return false
	}
	e := remoteError(h)
	choosing := !k.server && k.negotiated.Load().version == 0
	older := choosing && h.Code == wire.ErrVers && k.cfg.offers(wire.Version1) && h.Low <= wire.Version1 && h.High >= wire.Version1
	unknown := choosing && m.v2 && (h.Code == wire.InvalidOption || h.Code == wire.InvalidOption9)
	if !older && !unknown { // neither a peer of version 1, nor one of version 2 without properties
		k.protocolError(ErrorReceived, "%v", e)
	}
	if choosing {
		out := k.out
		out.mu.Lock()
		out.inFlight = 0 // one credit, as in the beginning
		out.answered = unknown
		out.mu.Unlock()
		switch {
		case older:
			k.adopt(k.negotiatedV1(wire.Version1))
		case unknown:
			if k.refusal = k.prepareGroups(); k.refusal == nil {
				k.adopt(k.negotiatedV2())
			}
		default:
			k.refusal = fmt.Errorf("rpcrdma: no version that both have: %w", e)
		}
	}
	return true
}

// announce wakes the client that waits for the version.
func (k *negotiator) announce() {
	if !k.server && !k.announced && (k.negotiated.Load().version != 0 || k.refusal != nil) {
		k.announced = true
		close(k.chosen)
	}
}

// probed handles the reply to a client's first message, if m is that.
func (k *negotiator) probed(m *inbound) bool {
	if !k.isAnswer(m.hdr.XID) {
		return false
	}
	k.takeGrant(m)
	return true
}

// takeGrant takes the credits of the answer to a client's first message.
func (k *negotiator) takeGrant(m *inbound) {
	k.out.freed++
	k.out.offered = int(min(m.hdr.Credits, credit.Max))
}

// handleMessage handles a message of version 2 about no RPC.
func (k *negotiator) handleMessage(ic *inCall) {
	if !k.cfg.has(TransportProperties) {
		// the client goes on without properties
		if ic.hdr.Procedure == wire.ConnProp && !k.declined {
			k.declined, ic.state = true, stateServing
			ic.sendError(wire.Fault2{Code: wire.InvalidOption})
			return
		}
		ic.refuse(wire.InvalidOption, BadHeader, "%v is not supported", ic.hdr.Procedure)
		return
	}
	switch ic.hdr.Procedure {
	case wire.ConnProp:
		k.connProp(ic)
	case wire.ReqProp:
		k.reqProp(ic)
	case wire.RespProp:
		k.respProp(ic)
	case wire.UpdProp:
		k.updProp(ic)
	default:
		if op := ic.hdr.Operation; ic.hdr.Direction == wire.Reply {
			ic.drop(Dropped, fmt.Sprintf("operation %d of a reply", op))
		} else {
			ic.refuse(wire.InvalidOption, BadHeader, "operation %d is not supported", op)
		}
	}
}
