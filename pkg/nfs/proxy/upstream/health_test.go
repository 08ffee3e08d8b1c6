package upstream

import (
	"slices"
	"testing"
	"time"
)

// TestHealth checks that health is known without clients, that changes are reported, and that
// answers to calls replace probes.
func TestHealth(t *testing.T) {
	withEnv(t, Config{AnyPort: true}, func(b *env) {
		d := b.dialer
		want := func(healthy bool, since time.Time, changes ...bool) {
			t.Helper()
			b.results()
			if st := b.Status(); st.Healthy != healthy || st.Since != since || (st.Err == nil) != (len(changes) == 1) {
				t.Errorf("status %+v, want %v since %v", st, healthy, since)
			}
			if !slices.Equal(b.changes, changes) {
				t.Errorf("changes %v, want %v", b.changes, changes)
			}
		}
		began := time.Now()
		want(true, began, true)
		pass(time.Hour)
		want(true, began, true)

		d.setFail(func(int) error { return errRefused })
		pass(10 * time.Second)
		gone := time.Now()
		want(false, gone, true, false)
		d.setFail(nil)
		pass(3 * time.Second)
		lk := b.Open(client(1), nil)
		b.call(lk, 1, 1, nil) // connecting triggers a probe
		want(true, gone.Add(3*time.Second), true, false, true)

		pass(20 * time.Second)
		_, _, probes := d.made()
		for xid := uint32(2); xid < 20; xid++ {
			b.call(lk, xid, 0, nil)
			d.conn(t, 0).reply(xid)
			pass(5 * time.Second)
		}
		if _, _, n := d.made(); n != probes {
			t.Errorf("%d probes while calls were answered", n-probes)
		}
		pass(time.Minute)
		if _, _, n := d.made(); n < probes+5 {
			t.Errorf("%d probes in a minute", n-probes)
		}
		d.setMute(true) // it accepts connections but answers nothing
		pass(20 * time.Second)
		if st := b.Status(); st.Healthy {
			t.Errorf("status %+v", st)
		}
	})
}

// TestHealthAfterLoss checks that health is reported again after a lost connection: the backend may
// have restarted.
func TestHealthAfterLoss(t *testing.T) {
	withEnv(t, Config{}, func(b *env) {
		lk := b.Open(client(1), nil)
		defer lk.Close()
		b.call(lk, 1, 10, nil)
		b.dialer.conn(t, 0).reply(1)
		b.want(ok(1, 10))
		b.call(lk, 2, 20, nil)
		b.dialer.conn(t, 0).end(errBroken)
		pass(time.Second)
		b.dialer.conn(t, 1).reply(2)
		b.want(ok(2, 20))
		b.mu.Lock()
		defer b.mu.Unlock()
		if want := []bool{true, true}; !slices.Equal(b.changes, want) {
			t.Errorf("changes %v, want %v", b.changes, want)
		}
	})
}
