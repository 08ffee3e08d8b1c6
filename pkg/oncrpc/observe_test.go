package oncrpc

import "testing"

type outcomes []string

func (o *outcomes) Answered(c *Call) { *o = append(*o, c.Status.String()) }
func (o *outcomes) Dropped(*Call)    { *o = append(*o, "dropped") }

func TestObserve(t *testing.T) {
	c, _ := newTestCall(t)
	var got outcomes
	end := func(how func()) {
		c.Observe(&got)
		how()
	}
	end(func() {
		if _, err := c.BeginReply(64); err != nil {
			t.Fatal(err)
		}
		c.Respond()
	})
	end(func() {
		e, err := c.BeginReply(MinReplyLen)
		if err != nil {
			t.Fatal(err)
		}
		e.Uint32(1) // too much: becomes SYSTEM_ERR before it is observed
		c.Respond()
	})
	end(func() { c.ReplyDenied(AuthTooWeak) })
	end(c.Drop)
	c.ReplyAccept(ProcUnavail) // the call was recycled: it has no observer any more
	want := outcomes{"SUCCESS", "SYSTEM_ERR", "AUTH_TOOWEAK", "dropped"}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}
