package wire

// Extension is what operations of RDMA2_OPTIONAL have in optinfo, from First to Last.
type Extension struct {
	First, Last Operation
	// Parse reads the body of h.Operation, and leaves what it says in h, in h.Body if it has no other place. What optinfo has beyond the body
	// is passed over: it is a later form's business.
	Parse func(h *Header, r *Reader, lim *Limits)
}

// Extensions are those that are known. Operations of none are answered [InvalidOption].
type Extensions []*Extension

// RoundTrip is the extension of draft-dnoveck-nfsv4-rpcrdma-rtrext-03. Its bodies are in Header.Transmit. It is known where nothing else is said.
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
