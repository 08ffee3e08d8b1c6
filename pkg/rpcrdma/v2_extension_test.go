package rpcrdma

import (
	"testing"

	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// opEcho is an operation for trial: its body is a word, and its answer has that word plus one.
const opEcho wire.Operation = 0xffffff01

var echo = wire.Extension{First: opEcho, Last: opEcho, Parse: func(h *wire.Header, r *wire.Reader, _ *wire.Limits) {
	n := r.Uint32()
	if n == 0 {
		r.Fail("echo", "the word is 0, must be another")
	}
	h.Body = n
}}

// takeEcho answers.
func takeEcho(_ *groupReceiver, ic *inCall, _ *rdma.Completion) bool {
	if ic.hdr.Direction == wire.Reply {
		return false
	}
	ic.state = stateServing
	credits, err := ic.grantCredits(ic.held)
	var head []byte
	if err == nil {
		head, err = ic.newHead(wire.FirstMessage)
	}
	if err != nil {
		ic.failUnanswered(err)
		return true
	}
	at := len(head)
	head = wire.BeginOption(head, ic.hdr.XID, credits, wire.Reply, opEcho)
	ic.answerWith(wire.EndOption(append(head, words(ic.hdr.Body.(uint32)+1)...), at))
	return true
}

// TestAnotherExtension adds one: it takes this file, and a line in extensions, which is added here.
func TestAnotherExtension(t *testing.T) {
	exchange := func(p *rawPeer, msg []byte) []byte {
		p.send(msg)
		return p.get().b
	}
	for _, known := range []bool{false, true} {
		if known {
			before := extensions
			extensions = append(extensions[:len(extensions):len(extensions)], extension{&echo, takeEcho})
			defer func() { extensions = before }()
		}
		w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, version2)
		p := w.rawDial(rawPrivate(4096))
		exchange(p, words(1, 2, 1, 6, 0, 0))
		for _, c := range []struct{ send, want []byte }{
			{words(2, 2, 1, 5, 0, opEcho, 4, 41), words(2, 2, 1, 5, 1, opEcho, 4, 42)},
			// a later form of it
			{words(3, 2, 1, 5, 0, opEcho, 8, 50, 7), words(3, 2, 1, 5, 1, opEcho, 4, 51)},
			{words(4, 2, 1, 5, 0, opEcho, 4, 0), words(4, 2, 1, 4, 2)},
			{words(5, 2, 1, 5, 0, opEcho, 0), words(5, 2, 1, 4, 2)},
			{words(6, 2, 1, 5, 0, opEcho+1, 4, 1), words(6, 2, 1, 4, 3)},
		} {
			if !known {
				c.want = append(append([]byte(nil), c.want[:12]...), words(4, 3)...)
			}
			if got := exchange(p, c.send); string(got) != string(c.want) {
				t.Errorf("known %v: %x is answered %x, must be %x", known, c.send, got, c.want)
			}
		}
		w.waitIdle()
		p.close()
		w.close()
	}
}
