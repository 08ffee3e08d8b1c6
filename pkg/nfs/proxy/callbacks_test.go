package proxy_test

import (
	"bytes"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
)

// called is a client that the backend calls back.
type called struct {
	t   *testing.T
	got chan raw // arguments
}

func (c *called) ServeRPC(call *oncrpc.Call) {
	d := call.Args()
	c.got <- raw(bytes.Clone(d.Fixed(d.Left()))) // the call is gone when it is looked at
	results := fields(0, "tag", 2,
		op(schema.OpCBSequence, 0, raw("session of fakes"), 1, 0, 0, 0), op(schema.OpCBRecall, 0))
	e, err := call.BeginReply(oncrpc.MinReplyLen + len(results))
	if err != nil {
		c.t.Error(err)
		call.Drop()
		return
	}
	copy(e.Grow(len(results)), results)
	call.EndReply()
	call.Respond()
}

// TestCallback: the backend calls back on the connection that it was called on. The client gets the call, with the handle signed, on
// its own connection, and the backend gets the client's answer.
func TestCallback(t *testing.T) {
	b, _, f := start(t, func(c *proxy.Config) { c.Minor[1] = true })
	for _, network := range []string{"tcp", "rdma"} {
		t.Run(network, func(t *testing.T) {
			client := &called{t, make(chan raw, 1)}
			c := f.dial(t, network, client)
			session, err := nfs4test.NewSession(t.Context(), c, 1, "owner", 1, 0, 2) // CREATE_SESSION4_FLAG_CONN_BACK_CHAN
			if err != nil {
				t.Fatal(err)
			}
			b.holding(compounds)
			defer b.holding(nil)
			done := make(chan error, 1)
			go func() {
				_, err := session.Next(t.Context(), 0, op(schema.OpPutRootFH))
				done <- err
			}()
			held := <-b.held
			back := &nfs4test.Caller{Requester: held.Conn.Back, Pool: pool(t)}
			b.answer(held)
			if err := <-done; err != nil {
				t.Fatal(err)
			}

			handle := []byte("a file with a delegation")
			recall := func(handle []byte) raw {
				return fields("tag", 1, 0, 2, op(schema.OpCBSequence, raw("session of fakes"), 1, 0, 0, false, 0),
					op(schema.OpCBRecall, make(raw, 16), false, handle))
			}
			results, err := back.Call(t.Context(), 0x40000000, 1, 1, recall(handle))
			if err != nil {
				t.Fatal(err)
			}
			if want := fields(0, "tag", 2, op(schema.OpCBSequence, 0, raw("session of fakes"), 1, 0, 0, 0), op(schema.OpCBRecall, 0)); !bytes.Equal(results, want) {
				t.Errorf("the backend got %x, want %x", results, want)
			}
			if got, want := <-client.got, recall(f.signer.Append(nil, handle, sign.Max4)); !bytes.Equal(got, want) {
				t.Errorf("the client got %x, want %x", got, want)
			}
			if _, err := back.Call(t.Context(), 0x40000000, 1, 0, nil); err == nil {
				<-client.got
			}

			// A client that goes while it is called leaves the call without an answer, and nothing behind.
			b.holding(nil)
			_ = c.Requester.Close()
			if _, err := back.Call(t.Context(), 0x40000000, 1, 1, recall(handle)); err == nil {
				t.Error("a client that is gone has answered")
			}
		})
	}
	if st := f.Status(); st.Callbacks < 4 || st.Unreadable != 0 {
		t.Errorf("status: %+v", st)
	}
}

// TestSoftTimeout: a client hears that the backend is slow: by JUKEBOX, or in a session by DELAY of SEQUENCE. What the backend says later
// is not for anybody, and a call that must not be repeated waits for it.
func TestSoftTimeout(t *testing.T) {
	b, _, f := start(t, func(c *proxy.Config) { c.SoftTimeout, c.Minor[1] = time.Second, true })
	for _, network := range []string{"tcp", "rdma"} {
		t.Run(network, func(t *testing.T) {
			c := f.dial(t, network, nil)
			root := mnt(t, c, "/")
			session, err := nfs4test.NewSession(t.Context(), c, 1, "owner", 1, 0, 0)
			if err != nil {
				t.Fatal(err)
			}

			b.holding(reads)
			if status, _, err := call3(t, c, nfs3.ProcRead, read3(root)); status != nfs3.ErrJukebox || err != nil {
				t.Errorf("READ: %v, %v, want JUKEBOX", status, err)
			}
			late := <-b.held
			b.holding(nil)
			b.answer(late)
			status, data, err := call3(t, c, nfs3.ProcRead, read3(root))
			for status == nfs3.ErrJukebox && err == nil { // a busy machine is slow, too
				status, data, err = call3(t, c, nfs3.ProcRead, read3(root))
			}
			if status != nfs3.OK || err != nil || !bytes.HasSuffix(data, []byte("data")) {
				t.Errorf("READ again: %v, %q, %v", status, data, err)
			}

			b.holding(compounds)
			ops := []raw{op(schema.OpPutRootFH), op(schema.OpGetFH)}
			res, err := session.Next(t.Context(), 0, ops...)
			if err != nil {
				t.Fatal(err)
			}
			if res.Status != 10008 || len(res.Ops) != 1 || res.Ops[0].Code != schema.OpSequence {
				t.Errorf("status %d, %d results, want DELAY of SEQUENCE", res.Status, len(res.Ops))
			}
			late = <-b.held
			b.holding(nil)
			b.answer(late)
			for res.Status == 10008 && err == nil {
				res, err = session.Again(t.Context(), 0, ops...)
			}
			if err != nil || res.Status != 0 || len(res.Ops) != 3 {
				t.Errorf("the same turn again: %+v, %v", res, err)
			}

			b.holding(writes)
			done := make(chan nfs3.Status, 1)
			go func() {
				status, _, err := call3(t, c, nfs3.ProcWrite, write3(root, "data"))
				if err != nil {
					t.Error(err)
				}
				done <- status
			}()
			late = <-b.held
			b.holding(func(c *oncrpc.Call) bool { return reads(c) || writes(c) })
			if status, _, err := call3(t, c, nfs3.ProcRead, read3(root)); status != nfs3.ErrJukebox || err != nil { // the time of WRITE is over too
				t.Errorf("READ: %v, %v, want JUKEBOX", status, err)
			}
			select {
			case status := <-done:
				t.Errorf("WRITE was answered %v, which the backend had not said", status)
			default:
			}
			b.answer(late)
			if status := <-done; status != nfs3.OK {
				t.Errorf("WRITE: %v", status)
			}
			b.drop()
		})
	}
	if st := f.Status(); st.Delayed < 6 || st.SoftTimeouts < st.Delayed {
		t.Errorf("status: %+v", st)
	}
}
