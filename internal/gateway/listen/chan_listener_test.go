package listen

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
)

func TestChanListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newChanListener[int](nil)
		go l.send(7)
		if c, err := l.Accept(); c != 7 || err != nil {
			t.Error(c, err)
		}
		ended := make(chan bool)
		go func() { ended <- l.send(8) }()
		synctest.Wait()
		_ = l.Close()
		_ = l.Close()
		if <-ended {
			t.Error("a connection went to a server that has ended")
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}
