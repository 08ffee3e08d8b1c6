package wire

import (
	"encoding/binary"
	"fmt"
)

// Placement is a way of placing a bulk item: xmdp_type of rtrext section 7.1.
type Placement uint32

// Placements.
const (
	// Explicit: by RDMA operations on the segments.
	Explicit Placement = 1
	// SendBased: in placement-targetable segments of receive buffers.
	SendBased Placement = 2
	// Choice: the responder chooses; the segments are for RDMA operations. In requests only.
	Choice Placement = 3
	// BySize: send-based if the item is shorter than a threshold, otherwise explicit. In requests
	// only.
	BySize Placement = 4
	// TooShort: the item is shorter than the minimum, and stands in the payload stream. In replies
	// only.
	TooShort Placement = 5
	// NoItem: the reply has no such item. In replies only.
	NoItem Placement = 6
)

func (p Placement) String() string {
	if names := [...]string{"", "EXRW", "TBSN", "CHOICE", "BYSIZE", "TOOSHORT", "NOITEM"}; p > 0 && int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("placement %d", uint32(p))
}

// Item is a bulk item that was taken out of a message: xmdp_mitem of rtrext section 7.3. Its
// segments or buffers are those of its Transmit.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|     Position in the unreduced stream                          |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|     Length, without round-up                                  |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|     Placement                                                 |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  EXRW: count, Segment * count                                 |
//	|  TBSN: offset in the first buffer segment, count,             |
//	|        buffer segment number * count                          |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
type Item struct {
	Position, Length uint32
	Placement        Placement
	// Offset is the beginning of a SendBased item in the first of its buffer segments.
	Offset uint32

	segs, numbers span
}

// ResultSet directs the placement of results: xmdp_rsdset of rtrext section 7.4. It applies to the
// results of the operations in a range of the request.
type ResultSet struct {
	// Begin and End are the range [Begin, End) of positions in the request's unreduced stream.
	Begin, End uint32

	items span
}

// ResultItem directs the placement of one result.
type ResultItem struct {
	// MinLength: a shorter result stays in the payload stream.
	MinLength uint32
	Placement Placement
	// Threshold is that of BySize.
	Threshold uint32

	segs span
}

// MessageID names a transmission: xms_id.
type MessageID struct {
	XID       XID
	Direction Direction
	Sequence  uint32
}

// ReportCode is the error in a ReptErr: optr_err of rtrext section 9.5.
type ReportCode uint32

// Codes of reports. Expected and Current are used by the first two, BadSequence and BadXID;
// Current, Min and Max by the last three.
const (
	BadHeaderType   ReportCode = 1 // another procedure than the one expected
	BadOptionType   ReportCode = 2 // another operation than the one expected
	BadContinuation ReportCode = 3 // a continuation without a group
	BadSequence     ReportCode = 4 // another transmission number
	BadXID          ReportCode = 5 // another XID
	BadOffset       ReportCode = 6 // an offset beyond the buffer segment
	BadBuffer       ReportCode = 7 // a buffer segment number beyond those of the group
	BadPayload      ReportCode = 8 // a payload that is not in the transmission
)

func (c ReportCode) String() string {
	if names := [...]string{"", "BADHMT", "BADOMT", "BADCONT", "BADSEQ", "BADXID", "BADOFF", "BADTBSN", "BADPL"}; c > 0 && int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("report %d", uint32(c))
}

// Report is the body of ReptErr.
type Report struct {
	Bad     MessageID
	Lead    MessageID
	HasLead bool
	Code    ReportCode
	// Expected is the correct value, Current the actual one.
	Expected, Current uint32
	// Min and Max are the range of valid values. A value in the range is misaligned.
	Min, Max uint32
}

// Transmit is the body of XmtReq, XmtResp, XmtCont or ReptErr. It is reused for the next message.
type Transmit struct {
	// Items were taken out of the message (XmtReq, XmtResp).
	Items []Item
	// Sets direct the results (XmtReq).
	Sets []ResultSet
	// Count is the number of transmissions of the group (XmtReq, XmtResp), at least 1.
	Count uint32
	// ReplyBuffers is the largest number of transmissions of the reply (XmtReq); 0 means 1.
	ReplyBuffers uint32
	// Number is this transmission's number in its group, and Initial the operation of the first
	// (XmtCont).
	Number  uint32
	Initial Operation
	// PayloadLength is the length in bytes of the payload stream after the header.
	PayloadLength uint32
	// Report is the body of ReptErr.
	Report Report

	results []ResultItem
	segs    []Segment
	numbers []uint32
}

// Segments returns the segments of an item.
func (t *Transmit) Segments(i *Item) []Segment {
	return t.segs[i.segs.at : i.segs.at+i.segs.n : i.segs.at+i.segs.n]
}

// Numbers returns the numbers of the buffer segments that hold a SendBased item's data.
func (t *Transmit) Numbers(i *Item) []uint32 {
	return t.numbers[i.numbers.at : i.numbers.at+i.numbers.n : i.numbers.at+i.numbers.n]
}

// Results returns the results that a set directs.
func (t *Transmit) Results(s *ResultSet) []ResultItem {
	return t.results[s.items.at : s.items.at+s.items.n : s.items.at+s.items.n]
}

// ResultSegments returns the segments of a result.
func (t *Transmit) ResultSegments(i *ResultItem) []Segment {
	return t.segs[i.segs.at : i.segs.at+i.segs.n : i.segs.at+i.segs.n]
}

// Exposed reports whether t names memory of its sender: for the items of a message, for the results
// of a request.
func (t *Transmit) Exposed() (items, results bool) {
	for i := range t.Items {
		items = items || len(t.Segments(&t.Items[i])) > 0
	}
	for i := range t.Sets {
		list := t.Results(&t.Sets[i])
		for k := range list {
			results = results || len(t.ResultSegments(&list[k])) > 0
		}
	}
	return items, results
}

// Reset empties t and keeps its memory.
func (t *Transmit) Reset() {
	*t = Transmit{Items: t.Items[:0], Sets: t.Sets[:0], results: t.results[:0], segs: t.segs[:0], numbers: t.numbers[:0]}
}

func (t *Transmit) parse(r *Reader, op Operation, lim *Limits) {
	switch op {
	case XmtReq:
		t.parseItems(r, lim, Call)
		t.parseSets(r, lim)
		t.Count, t.ReplyBuffers = r.count("optxrq_count"), r.Uint32()
	case XmtResp:
		t.parseItems(r, lim, Reply)
		t.Count = r.count("optxrs_count")
	case XmtCont:
		t.Number, t.Initial = r.Uint32(), Operation(r.Uint32())
	default:
		t.parseReport(r)
		return
	}
	t.PayloadLength = r.Uint32()
}

// count reads a number of transmissions.
func (r *Reader) count(field string) uint32 {
	n := r.Uint32()
	if r.err == nil && n == 0 {
		r.Fail(field, "a group of 0 transmissions, must be 1 at least")
	}
	return n
}

// parseItems reads items according to the types of the wire. ReptErr reports items that do not fit
// the message or the buffers. Kinds of items that only replies have are refused here, since no code
// of ReptErr fits.
func (t *Transmit) parseItems(r *Reader, lim *Limits, d Direction) {
	n := r.Uint32()
	if r.err == nil && uint64(n) > uint64(lim.Items) {
		r.failWith(ReadChunks, lim.Items, "xmdp_grpinfo", "%d bulk items, at most %d are accepted", n, lim.Items)
	}
	for range n {
		it := Item{Position: r.Uint32(), Length: r.Uint32(), Placement: Placement(r.Uint32())}
		if r.err != nil {
			return
		}
		switch it.Placement {
		case Explicit:
			it.segs = t.segments(r, lim)
		case SendBased:
			it.Offset = r.Uint32()
			it.numbers = t.bufferNumbers(r, lim)
		case TooShort, NoItem:
			if d == Call {
				r.Fail("xmdmi_where", "placement %v is for replies only", it.Placement)
			}
		default:
			r.Fail("xmdmi_where", "placement is %d, must be 1 or 2, or in a reply 5 or 6", uint32(it.Placement))
		}
		if r.err != nil {
			return
		}
		t.Items = append(t.Items, it)
	}
}

func (t *Transmit) parseSets(r *Reader, lim *Limits) {
	n := r.Uint32()
	if r.err == nil && uint64(n) > uint64(lim.Items) {
		r.failWith(WriteChunks, lim.Items, "xmdp_rsdgroup", "%d sets of results, at most %d are accepted", n, lim.Items)
	}
	for range n {
		s := ResultSet{Begin: r.Uint32(), End: r.Uint32()}
		if r.err == nil && (s.End < s.Begin || len(t.Sets) > 0 && s.Begin < t.Sets[len(t.Sets)-1].End) {
			r.Fail("xmdrsds_range", "range %d to %d, must begin behind the one before and not end before it begins", s.Begin, s.End)
		}
		k := r.Uint32()
		if r.err == nil && uint64(k) > uint64(lim.Items-len(t.results)) {
			r.failWith(WriteChunks, lim.Items, "xmdrsds_items", "more than %d results in all sets together", lim.Items)
		}
		s.items = span{len(t.results), int(k)}
		for range k {
			it := ResultItem{MinLength: r.Uint32(), Placement: Placement(r.Uint32())}
			switch {
			case r.err != nil:
			case it.Placement == Explicit || it.Placement == Choice:
				it.segs = t.segments(r, lim)
			case it.Placement == BySize:
				it.Threshold = r.Uint32()
				it.segs = t.segments(r, lim)
			case it.Placement != SendBased:
				r.Fail("xmdrsdi_loc", "placement is %d, must be 1 to 4", uint32(it.Placement))
			}
			if r.err != nil {
				return
			}
			t.results = append(t.results, it)
		}
		if r.err != nil {
			return
		}
		t.Sets = append(t.Sets, s)
	}
}

func (t *Transmit) segments(r *Reader, lim *Limits) span {
	n := r.Uint32()
	switch {
	case r.err != nil:
	case uint64(n) > uint64(lim.SegmentsPerChunk) || int(n) > lim.WriteSegments-len(t.segs):
		// Items of their equal share would have fit.
		r.failWith(Segments, min(lim.SegmentsPerChunk, lim.WriteSegments/(len(t.Items)+len(t.results)+1)), "rpcrdma1_segment",
			"%d segments are too many: an item may have %d, all together %d", n, lim.SegmentsPerChunk, lim.WriteSegments)
	case uint64(n)*SegmentSize > uint64(r.left):
		r.ends("rpcrdma1_segment", uint64(n)*SegmentSize)
	}
	at := len(t.segs)
	for range n {
		if r.err != nil {
			return span{}
		}
		t.segs = append(t.segs, r.segment())
	}
	return span{at, int(n)}
}

func (t *Transmit) bufferNumbers(r *Reader, lim *Limits) span {
	n := r.Uint32()
	switch {
	case r.err != nil:
	case int64(n) > int64(lim.Buffers-len(t.numbers)):
		r.Fail("xmdl_bsnum", "%d buffer segments are too many: all items may have %d together", n, lim.Buffers)
	case uint64(n)*4 > uint64(r.left):
		r.ends("xmdl_bsnum", uint64(n)*4)
	}
	at := len(t.numbers)
	for range n {
		if r.err != nil {
			return span{}
		}
		t.numbers = append(t.numbers, r.Uint32())
	}
	return span{at, int(n)}
}

func (t *Transmit) parseReport(r *Reader) {
	p := &t.Report
	p.Bad = r.messageID()
	if p.HasLead = r.present("optre_lead"); p.HasLead {
		p.Lead = r.messageID()
	}
	switch p.Code = ReportCode(r.Uint32()); p.Code {
	case BadHeaderType, BadOptionType, BadSequence, BadXID:
		p.Expected, p.Current = r.Uint32(), r.Uint32()
	case BadContinuation:
	case BadOffset, BadBuffer, BadPayload:
		p.Current, p.Min, p.Max = r.Uint32(), r.Uint32(), r.Uint32()
	default:
		r.Fail("optre_which", "report is %d, must be 1 to 8", uint32(p.Code))
	}
}

func (r *Reader) messageID() MessageID {
	return MessageID{XID: XID(r.Uint32()), Direction: r.direction("xmsi_dir"), Sequence: r.Uint32()}
}

// AddExplicit adds an item with its segments. This and the other Add methods build a Transmit to be
// appended.
func (t *Transmit) AddExplicit(position, length uint32, segs []Segment) {
	t.Items = append(t.Items, Item{Position: position, Length: length, Placement: Explicit, segs: t.keep(segs)})
}

// AddSendBased adds an item that begins at offset in the first of the buffer segments.
func (t *Transmit) AddSendBased(position, length, offset uint32, numbers ...uint32) {
	at := len(t.numbers)
	t.numbers = append(t.numbers, numbers...)
	t.Items = append(t.Items, Item{Position: position, Length: length, Placement: SendBased, Offset: offset, numbers: span{at, len(numbers)}})
}

// AddAbsent adds TooShort, with the result's position in the reply, or NoItem, with zeros.
func (t *Transmit) AddAbsent(position, length uint32, p Placement) {
	t.Items = append(t.Items, Item{Position: position, Length: length, Placement: p})
}

// AddSet adds a set. AddResult adds to the latest one.
func (t *Transmit) AddSet(begin, end uint32) {
	t.Sets = append(t.Sets, ResultSet{Begin: begin, End: end, items: span{len(t.results), 0}})
}

// AddResult adds a result to the latest set.
func (t *Transmit) AddResult(minLength uint32, p Placement, threshold uint32, segs []Segment) {
	t.results = append(t.results, ResultItem{MinLength: minLength, Placement: p, Threshold: threshold, segs: t.keep(segs)})
	t.Sets[len(t.Sets)-1].items.n++
}

func (t *Transmit) keep(segs []Segment) span {
	at := len(t.segs)
	t.segs = append(t.segs, segs...)
	return span{at, len(segs)}
}

// Append appends the body of an operation.
func (t *Transmit) Append(dst []byte, op Operation) []byte {
	u32 := binary.BigEndian.AppendUint32
	switch op {
	case XmtReq:
		dst = t.appendSets(t.appendItems(dst))
		dst = u32(u32(dst, t.Count), t.ReplyBuffers)
	case XmtResp:
		dst = u32(t.appendItems(dst), t.Count)
	case XmtCont:
		dst = u32(u32(dst, t.Number), uint32(t.Initial))
	default:
		return t.appendReport(dst)
	}
	return u32(dst, t.PayloadLength)
}

func (t *Transmit) appendItems(dst []byte) []byte {
	u32 := binary.BigEndian.AppendUint32
	dst = u32(dst, uint32(len(t.Items)))
	for i := range t.Items {
		it := &t.Items[i]
		dst = u32(u32(u32(dst, it.Position), it.Length), uint32(it.Placement))
		switch it.Placement {
		case Explicit:
			dst = appendSegments(dst, t.Segments(it))
		case SendBased:
			dst = u32(u32(dst, it.Offset), uint32(it.numbers.n))
			for _, n := range t.Numbers(it) {
				dst = u32(dst, n)
			}
		}
	}
	return dst
}

func (t *Transmit) appendSets(dst []byte) []byte {
	u32 := binary.BigEndian.AppendUint32
	dst = u32(dst, uint32(len(t.Sets)))
	for i := range t.Sets {
		s := &t.Sets[i]
		dst = u32(u32(u32(dst, s.Begin), s.End), uint32(s.items.n))
		results := t.Results(s)
		for k := range results {
			it := &results[k]
			dst = u32(u32(dst, it.MinLength), uint32(it.Placement))
			if it.Placement == BySize {
				dst = u32(dst, it.Threshold)
			}
			if it.Placement != SendBased {
				dst = appendSegments(dst, t.ResultSegments(it))
			}
		}
	}
	return dst
}

func appendSegments(dst []byte, segs []Segment) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(segs)))
	for _, s := range segs {
		dst = AppendSegment(dst, s)
	}
	return dst
}

func (t *Transmit) appendReport(dst []byte) []byte {
	u32, p := binary.BigEndian.AppendUint32, &t.Report
	dst = appendMessageID(dst, p.Bad)
	if p.HasLead {
		dst = appendMessageID(u32(dst, 1), p.Lead)
	} else {
		dst = u32(dst, 0)
	}
	dst = u32(dst, uint32(p.Code))
	switch p.Code {
	case BadHeaderType, BadOptionType, BadSequence, BadXID:
		dst = u32(u32(dst, p.Expected), p.Current)
	case BadOffset, BadBuffer, BadPayload:
		dst = u32(u32(u32(dst, p.Current), p.Min), p.Max)
	}
	return dst
}

func appendMessageID(dst []byte, id MessageID) []byte {
	u32 := binary.BigEndian.AppendUint32
	return u32(u32(u32(dst, uint32(id.XID)), uint32(id.Direction)), id.Sequence)
}
