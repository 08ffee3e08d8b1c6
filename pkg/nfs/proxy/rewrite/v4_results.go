package rewrite

import (
	"encoding/binary"
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// resultContext holds the inputs of editing results.
type resultContext struct {
	x        *Export
	roots    *Roots
	readOnly bool
	callback bool // the results are a client's
	reply    *oncrpc.Message
	spans    []schema.Span
}

// matched describes how the backend's results match its operations.
type matched struct {
	results     int // for the client, without the refusal
	byRootCheck bool
	all         bool // each operation has a result, and none failed
}

// match compares the backend's results with its operations.
func (c *compound) match(results []schema.Op) (m matched, err error) {
	n := 0
	for i := range c.ops {
		o := &c.ops[i]
		for g := 0; g <= o.rootChecks; g++ {
			if n == len(results) {
				return m, nil
			}
			r, want := &results[n], o.sent
			rootCheck := g < o.rootChecks
			if rootCheck {
				want = schema.OpNVerify
			}
			if r.Code != want && (r.Code != schema.OpIllegal || r.Status == ok4) {
				return m, fmt.Errorf("result %d is of operation %d, want %d", n, r.Code, want)
			}
			n++
			failed := r.Status != ok4
			if !rootCheck || failed {
				m.results++
			}
			if failed {
				m.byRootCheck = rootCheck
				if n < len(results) {
					return m, fmt.Errorf("%d results follow the failure %d", len(results)-n, r.Status)
				}
				return m, nil
			}
		}
	}
	if n < len(results) {
		return m, fmt.Errorf("%d results, want %d", len(results), n)
	}
	m.all = true
	return m, nil
}

// editResults turns the results of the forwarded call into those of the client's call.
func (c *compound) editResults(e *Edits, a *resultContext, ops []schema.Op) error {
	var status, count *schema.Span
	for i := range a.spans {
		s := &a.spans[i]
		if s.Op == -1 && s.Mark == schema.Status {
			status = s
		}
		if s.Op == -1 && s.Mark == schema.Operations {
			count = s
		}
	}
	if status == nil || count == nil {
		return errors.New("no status or no count of results")
	}
	m, err := c.match(ops)
	if err != nil {
		return err
	}
	if n := len(ops); n > 0 && status.Value == ok4 && ops[n-1].Status != ok4 {
		return fmt.Errorf("status is 0, last result has %d", ops[n-1].Status)
	}
	refusing := m.all && c.refused
	if refusing && status.Value != ok4 {
		return fmt.Errorf("status is %d, but no operation failed", status.Value)
	}
	switch {
	case refusing:
		m.results++
		putUint32(e, status.Pos, c.stat)
	case m.byRootCheck && status.Value == errSame:
		putUint32(e, status.Pos, errNoEnt)
	}
	if m.results != len(ops) {
		putUint32(e, count.Pos, uint32(m.results))
	}
	end := count.Pos + 4
	n := 0
	for i := range c.ops {
		o := &c.ops[i]
		for g := 0; g < o.rootChecks && n < len(ops); g++ {
			o.editRootCheck(e, &ops[n])
			end = ops[n].End
			n++
		}
		if n == len(ops) {
			break
		}
		if err := o.editResult(e, a, &ops[n]); err != nil {
			return fmt.Errorf("result %d of operation %d: %w", n, o.code, err)
		}
		end = ops[n].End
		n++
	}
	if length := a.reply.Len(); refusing {
		if end%4 != 0 {
			return fmt.Errorf("results end at byte %d, want a multiple of four", end)
		}
		c.writeTo(e.Replace(end, length-end, c.size()))
	} else if end < length {
		e.Replace(end, length-end, 0)
	}
	return nil
}

// editRootCheck removes the result of an inserted NVERIFY, or makes a failed one that of LOOKUPP.
func (o *operation) editRootCheck(e *Edits, r *schema.Op) {
	status := r.Status
	switch status {
	case ok4:
		e.Replace(r.Pos, r.End-r.Pos, 0)
		return
	case errSame:
		status = errNoEnt
	}
	b := e.Replace(r.Pos, r.End-r.Pos, 8)
	binary.BigEndian.PutUint32(b, o.code)
	binary.BigEndian.PutUint32(b[4:], status)
}

// editResult edits the result of an operation.
func (o *operation) editResult(e *Edits, a *resultContext, r *schema.Op) error {
	if r.Code == o.sent && o.sent != o.code {
		putUint32(e, r.Pos, o.code)
	}
	if r.Status != ok4 {
		return nil
	}
	spans := a.spans[r.First:r.Last]
	if a.callback {
		return callbackResult(spans)
	}
	switch o.code {
	case schema.OpCreateSession:
		fields := spans[1:] // after the status
		fore, back := readLimits(fields)
		granted := o.fore.foreGrant(a.x, fore)
		editSession(e, a.reply, fields, r.Pos+28, granted, o.back.backGrant(a.x, back))
		var d xdr.Decoder
		d.Reset(a.reply.Stream, a.reply.Items)
		d.Skip(r.Pos + 8)
		if id := d.Fixed(len(sessionID{})); d.Err() == nil && granted.ops > 0 {
			a.x.sessions.remember(sessionID(id), granted.ops)
		}
		return nil
	case schema.OpBindConnToSession:
		var d xdr.Decoder
		if at := r.Pos + 28; wordAt(&d, a.reply, at) != 0 {
			putUint32(e, at, 0) // bctsr_use_conn_in_rdma_mode
		}
		return nil
	case schema.OpSecInfo, schema.OpSecInfoNoName:
		if !a.x.GSS {
			withoutGSS(e, spans[1:])
		}
		return nil
	}
	at := o.place
	if o.code == schema.OpReaddir {
		at = beneath
	}
	for i := range spans {
		s := &spans[i]
		var err error
		switch s.Mark {
		case schema.Handle:
			err = putSigned(e, a.x, s.Pos, s.Len, s.B)
		case schema.Attrs:
			err = a.editAttrs(e, spans[i:], at, o.hideFileID)
		case schema.Access:
			if mask := uint32(s.Value); a.readOnly && mask&accessWritesV4 != 0 {
				putUint32(e, s.Pos, mask&^accessWritesV4)
			}
		case schema.ServerOwner, schema.ServerScope:
			putDistinct(e, s, a.x.UID)
		case schema.ExchangeFlags:
			if flags := uint32(s.Value); nonPNFS(flags) != flags {
				putUint32(e, s.Pos, nonPNFS(flags))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// withoutGSS removes RPCSEC_GSS from a list of flavors: a client would choose it, and be refused.
func withoutGSS(e *Edits, list []schema.Span) {
	isGSS := func(s *schema.Span) bool { return s.Mark == schema.Flavor && s.Len > 4 }
	n := 0
	for i := range list {
		if isGSS(&list[i]) {
			n++
		}
	}
	if n == 0 {
		return
	}
	putUint32(e, list[0].Pos, uint32(list[0].Value)-uint32(n))
	for i := range list {
		if s := &list[i]; isGSS(s) {
			e.Replace(s.Pos, s.Len, 0)
		}
	}
}

// callbackResult checks a client's result: CB_GETATTR must return only requested attributes.
func callbackResult(spans []schema.Span) error {
	for i := range spans {
		if spans[i].Mark == schema.Attrs && !isSubset(spans[i].B, &notifyAttrs) {
			return errors.New("client attributes have a handle or unrequested ones")
		}
	}
	return nil
}
