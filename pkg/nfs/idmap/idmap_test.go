package idmap

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestHost(t *testing.T) {
	if name, ok := Users.Name(0); !ok || name != "root" {
		t.Errorf("user 0 is %q, %v", name, ok)
	}
	if id, ok := Users.ID([]byte("root")); !ok || id != 0 {
		t.Errorf("root is user %d, %v", id, ok)
	}
	if id, ok := Groups.ID([]byte("root")); !ok || id != 0 {
		t.Errorf("root is group %d, %v", id, ok)
	}
	if name, ok := Groups.Name(0); !ok || name != "root" {
		t.Errorf("group 0 is %q, %v", name, ok)
	}
	if id, ok := Users.ID([]byte("nobody knows me")); ok {
		t.Errorf("an unknown user is %d", id)
	}
	if name, ok := Groups.Name(4_000_000_000); ok {
		t.Errorf("an unknown group is %q", name)
	}
}

// Answers are kept, found or not, and not for ever.
func TestAnswersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		known := false
		m := newMap(
			func(id string) (string, bool) { asked++; return "user" + id, known },
			func(string) (string, bool) { asked++; return "7", known })
		ask := func(want int) {
			t.Helper()
			for range 3 {
				name, ok := m.Name(7)
				id, okID := m.ID([]byte("user7"))
				if ok != known || okID != known || known && (name != "user7" || id != 7) {
					t.Errorf("%q, %v, %d, %v", name, ok, id, okID)
				}
			}
			if asked != want {
				t.Errorf("the host was asked %d times, must be %d", asked, want)
			}
		}
		ask(2)
		time.Sleep(keep + time.Second)
		known = true
		ask(4)
		for i := range uint32(3 * most) {
			m.Name(i)
			m.ID(fmt.Append(nil, i))
		}
		if len(m.names) > most || len(m.ids) > most {
			t.Errorf("%d and %d answers are kept", len(m.names), len(m.ids))
		}
	})
}
