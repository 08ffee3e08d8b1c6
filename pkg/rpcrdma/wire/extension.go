package wire

// Extension parses the optinfo of the operations First to Last of RDMA2_OPTIONAL.
type Extension struct {
	First, Last Operation
	// Parse reads the body of h.Operation into h, or into h.Body if h has no other place for it.
	// Bytes of optinfo after the body are skipped: they belong to a later form.
	Parse func(h *Header, r *Reader, lim *Limits)
}

// Extensions are the known ones. Other operations are answered [InvalidOption].
type Extensions []*Extension

// RoundTrip is the extension of draft-dnoveck-nfsv4-rpcrdma-rtrext-03. Its bodies are in
// Header.Transmit. It is the default extension.
var RoundTrip = Extension{First: XmtReq, Last: ReptErr, Parse: func(h *Header, r *Reader, lim *Limits) { h.Transmit.parse(r, h.Operation, lim) }}

var roundTrip = Extensions{&RoundTrip}

// find returns the extension of an operation, nil if none is known.
func (l *Limits) find(op Operation) *Extension {
	known := l.Extensions
	if known == nil {
		known = &roundTrip
	}
	for _, e := range *known {
		if e.First <= op && op <= e.Last {
			return e
		}
	}
	return nil
}
