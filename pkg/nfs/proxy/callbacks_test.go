package proxy_test

import (
	"bytes"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
)

// called is a client that receives callbacks.
type called struct {
	t   *testing.T
	got chan raw // arguments
}

func (c *called) ServeRPC(call *oncrpc.Call) {
	d := call.Args()
	c.got <- raw(bytes.Clone(d.Fixed(d.Left()))) // cloned: the call's memory is reused
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

// TestCallback checks that a callback arrives on the client's own connection, with a signed handle,
// and that the backend gets the reply.
func TestCallback(t *testing.T) {
	b, _, f := start(t, func(c *proxy.Config) { c.Minor[1] = true })
	for _, network := range []string{"tcp", "rdma"} {
		t.Run(network, func(t *testing.T) {
			client := &called{t, make(chan raw, 1)}
			c := f.dial(t, network, client)
			// CREATE_SESSION4_FLAG_CONN_BACK_CHAN
			session, err := nfs4test.NewSession(t.Context(), c, 1, "owner", 1, 0, 2)
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

			// A client that disconnects during a callback leaves it unanswered, and frees all
			// memory.
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
