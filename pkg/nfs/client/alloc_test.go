package client_test

import (
	"bytes"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs3/nfs3test"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// echo answers every request at once with the same reply.
type echo struct {
	reply []byte
	items []xdr.Item
	xid   uint32
}

func (q *echo) NextXID() uint32 { q.xid++; return q.xid }
func (q *echo) Close() error    { return nil }

func (q *echo) Submit(r *oncrpc.Request) {
	copy(q.reply, r.Call.Stream[0][:4])
	r.Reply.Stream = append(r.Reply.Stream[:0], q.reply)
	r.Reply.Items = append(r.Reply.Items[:0], q.items...)
	r.Done(r)
}

// An Op that is sent again does not allocate.
func TestOpAllocs(t *testing.T) {
	pool := bufpool.New(0)
	b, err := pool.Get(4096)
	mustNot(t, err)
	q := &echo{}
	c := client.New(client.Config{Requester: q, Pool: pool})
	f, err := c.Open(t.Context(), handleOf(1), client.ShareRead|client.ShareWrite)
	mustNot(t, err)
	names := [][]byte{[]byte("xy"), []byte("zz")}
	for _, x := range []struct {
		name   string
		op     func() (*client.Op, error)
		answer nfs3test.Message
	}{
		{"GETATTR", func() (*client.Op, error) { return c.NewGetAttr(handleOf(1)) }, &nfs3.GetAttrRes{Attr: nfs3.Attr{Type: nfs3.Reg}}},
		{"READ", func() (*client.Op, error) { return f.NewRead(b) }, &nfs3.ReadRes{Count: 4096, Data: [][]byte{b.B}}},
		{"WRITE", func() (*client.Op, error) { return f.NewWrite(b, nfs3.Unstable) }, &nfs3.WriteRes{Count: 4096}},
		{"SETATTR", func() (*client.Op, error) { return c.NewSetAttr(handleOf(1), nfs3.SetAttrs{}) }, &nfs3.WccRes{}},
		{"RENAME", func() (*client.Op, error) { return c.NewRename(handleOf(1), "a", handleOf(1), "b") }, &nfs3.RenameRes{}},
		{"CREATE", func() (*client.Op, error) { return c.NewCreate(handleOf(1), "aa", nfs3.SetAttrs{}) }, &nfs3.CreateRes{}},
		{"REMOVE", func() (*client.Op, error) { return c.NewRemove(handleOf(1), "aa") }, &nfs3.WccRes{}},
	} {
		t.Run(x.name, func(t *testing.T) {
			stream, items := nfs3test.Encode(x.answer)
			q.reply = append(append(make([]byte, 4), 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), stream...)
			q.items = nil
			for _, it := range items {
				it.Position += oncrpc.MinReplyLen
				q.items = append(q.items, it)
			}
			op, err := x.op()
			mustNot(t, err)
			n, left := 0, 0
			var again func(*client.Op)
			again = func(op *client.Op) {
				if _, err := op.Result(); err != nil {
					t.Fatal(err)
				}
				switch n++; x.name {
				case "READ", "WRITE":
					op.SetRange(uint64(n)*100, 4096)
				case "CREATE", "REMOVE":
					op.SetName(names[n%len(names)])
				}
				if left--; left > 0 {
					op.Submit(again)
				}
			}
			allocs := testing.AllocsPerRun(10, func() {
				left = 100
				op.Submit(again)
			})
			if allocs != 0 && !race.Enabled {
				t.Errorf("%v allocations for 100 calls", allocs)
			}
			if n != 1100 {
				t.Errorf("%d calls", n)
			}
			op.Free()
		})
	}
	b.Release()
	noneLeft(t, pool)
}

// repeater passes calls on. With repeat, it answers with the last reply instead.
type repeater struct {
	*loop
	repeat bool
	reply  []byte
}

func (q *repeater) Submit(r *oncrpc.Request) {
	if q.repeat {
		copy(q.reply, r.Call.Stream[0][:4])
		r.Reply.Stream = append(r.Reply.Stream[:0], q.reply)
		r.Reply.Items = r.Reply.Items[:0]
		r.Done(r)
		return
	}
	done := r.Done
	r.Done = func(r *oncrpc.Request) {
		q.reply = bytes.Join(r.Reply.Stream, nil)
		done(r)
	}
	q.loop.Submit(r)
}

// Neither does one of version 4.2.
func TestV42OpAllocs(t *testing.T) {
	v := newVolume(t, &server.NFS4Config{})
	pool := bufpool.New(0)
	q := &repeater{loop: newLoop(t, v, pool, false)}
	c, root := newClientOf(t, client.V42, q, pool)
	made, err := c.Create(ctx, root, "f", nfs3.Unchecked, nfs3.SetAttrs{SetMode: true, Mode: 0o600}, nfs3.Verifier{})
	mustNot(t, err)
	f, err := c.Open(ctx, made.Handle, client.ShareRead|client.ShareWrite)
	mustNot(t, err)
	b, err := pool.Get(4096)
	mustNot(t, err)
	for _, x := range []struct {
		name string
		op   func() (*client.Op, error)
	}{
		{"WRITE", func() (*client.Op, error) { return f.NewWrite(b, nfs3.Unstable) }},
		{"READ", func() (*client.Op, error) { return f.NewRead(b) }},
		{"GETATTR", func() (*client.Op, error) { return c.NewGetAttr(made.Handle) }},
		{"SETATTR", func() (*client.Op, error) { return c.NewSetAttr(made.Handle, nfs3.SetAttrs{SetMode: true}) }},
		{"RENAME", func() (*client.Op, error) { return c.NewRename(root, "f", root, "g") }},
		{"CREATE", func() (*client.Op, error) { return c.NewCreate(root, "aa", nfs3.SetAttrs{}) }},
		{"REMOVE", func() (*client.Op, error) { return c.NewRemove(root, "aa") }},
		{"OPEN-READ", func() (*client.Op, error) { return c.NewOpenRead(made.Handle, b) }},
		{"CREATE-WRITE", func() (*client.Op, error) { return c.NewCreateWrite(root, "cw", nfs3.SetAttrs{}, b, nfs3.Unstable) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			op, err := x.op()
			mustNot(t, err)
			op.Start()
			op.Wait(ctx)
			_, err = op.Result()
			mustNot(t, err)
			left := 0
			var again func(*client.Op)
			again = func(op *client.Op) {
				if _, err := op.Result(); err != nil {
					t.Error(err)
				}
				if left--; left > 0 {
					op.Submit(again)
				}
			}
			q.repeat = true
			allocs := testing.AllocsPerRun(10, func() {
				left = 100
				op.Submit(again)
			})
			q.repeat = false
			if allocs != 0 && !race.Enabled {
				t.Errorf("%v allocations for 100 calls", allocs)
			}
			op.Free()
		})
	}
	b.Release()
	mustNot(t, f.Close(ctx))
	mustNot(t, c.Close(ctx))
	for end := time.Now().Add(time.Minute); pool.Stats().Bufs > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // a worker of the server ends its call after the reply
	}
	noneLeft(t, pool)
}
