package oncrpc

import (
	"net/netip"
	"time"
)

// Observer receives a transport's events, for metrics and logs. Its methods are called on the
// transport's own goroutines, several at a time: they must be quick, must not block, and must keep
// no Call. [NoObserver] can be embedded.
type Observer interface {
	// ConnOpened: a connection serves calls.
	ConnOpened(c *Conn)
	// ConnClosed is the last event of a connection. errors.Is classifies the cause: io.EOF (the
	// peer ended it in order), ErrShutdown, net.ErrClosed, ErrRecord (a violation of the
	// protocol), [bufpool.ErrNoProgress] (it held memory for which others waited); any other is a
	// failure of the network.
	ConnClosed(c *Conn, cause error)
	// ConnRefused: a connection was closed before it was served.
	ConnRefused(remote netip.AddrPort, cause error)
	// CallReceived: a call with a valid header goes to the handler.
	CallReceived(c *Call, b Bytes)
	// ReplySent: the reply has left, or its memory is free again. c is as the handler returned it.
	// took is the time since the read that brought the call.
	ReplySent(c *Call, b Bytes, took time.Duration)
	// BadMessage: the transport dropped or refused a message. c continues unless ConnClosed
	// follows.
	BadMessage(c *Conn, cause error)
}

// Bytes are the lengths of a message's parts by their way across the network. Over TCP all of it is
// inline.
type Bytes struct {
	Inline, ReadChunks, WriteChunks, ReplyChunk int
}

// NoObserver does nothing.
type NoObserver struct{}

// ConnOpened implements [Observer].
func (NoObserver) ConnOpened(*Conn) {}

// ConnClosed implements [Observer].
func (NoObserver) ConnClosed(*Conn, error) {}

// ConnRefused implements [Observer].
func (NoObserver) ConnRefused(netip.AddrPort, error) {}

// CallReceived implements [Observer].
func (NoObserver) CallReceived(*Call, Bytes) {}

// ReplySent implements [Observer].
func (NoObserver) ReplySent(*Call, Bytes, time.Duration) {}

// BadMessage implements [Observer].
func (NoObserver) BadMessage(*Conn, error) {}
