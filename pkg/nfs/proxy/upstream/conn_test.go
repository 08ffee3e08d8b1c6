package upstream

import (
	"testing"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
)

// TestOverload checks that calls beyond the limit are refused while there is no connection, except
// a single one.
func TestOverload(t *testing.T) {
	const each = callCost + oncrpc.MinCallLen + 4
	withEnv(t, Config{WaitLimit: 3 * each, AnyPort: true}, func(b *env) {
		d := b.dialer
		d.setFail(func(int) error { return errRefused })
		one, two := b.Open(client(1), nil), b.Open(client(2), nil)
		b.call(one, 1, 1, nil)
		b.call(two, 2, 2, nil)
		b.call(one, 3, 3, nil)
		b.want()
		b.call(two, 4, 4, nil)
		b.want(bad(4, 4, ErrOverloaded))
		one.Close() // unsent calls are not kept
		b.want(bad(1, 1, ErrClosed), bad(3, 3, ErrClosed))
		b.call(two, 5, 5, nil)
		b.want()
		d.setFail(nil)
		pass(time.Minute)
		for xid := uint32(10); xid < 20; xid++ { // no limit with a connection
			b.call(two, xid, 0, nil)
		}
		for xid := range uint32(20) {
			d.conn(t, 0).reply(xid)
		}
		if n := len(b.results()); n != 12 {
			t.Errorf("%d calls were answered, want 12", n)
		}
		if st := b.Status(); st.Overloads != 1 || st.WaitBytes != 0 {
			t.Errorf("status %+v", st)
		}
	})
	withEnv(t, Config{WaitLimit: 1}, func(b *env) {
		b.call(b.Open(client(1), nil), 1, 1, nil)
		b.dialer.conn(t, 0).reply(1)
		b.want(ok(1, 1))
	})
}
