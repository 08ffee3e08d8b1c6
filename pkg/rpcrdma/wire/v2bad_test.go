package wire

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// TestBad2 spoils one word of a vector, and checks the error.
func TestBad2(t *testing.T) {
	for _, c := range []struct {
		vector string
		at     int // byte
		word   uint32
		field  string
		code   ErrorCode
		limit  uint32
		says   string
	}{
		{vector: "msg-call", at: 12, word: 2, field: "rdma_proc", code: InvalidOption, says: "procedure is 2, must be 0, 1, or 4 to 9"},
		{vector: "msg-call", at: 12, word: 3, field: "rdma_proc", code: InvalidOption},
		{vector: "reqprop-empty", at: 12, word: 3, field: "rdma_proc", code: InvalidOption},
		{vector: "msg-call", at: 12, word: 10, field: "rdma_proc", code: InvalidOption},
		{vector: "msg-call", at: 4, word: 3, field: "rdma_vers", code: ErrVers},
		{vector: "msg-call", at: 16, word: 2, field: "rdma_direction", code: BadXDR, says: "direction is 2"},
		{vector: "msg-call", at: 24, word: 2, field: "rdma_reads", code: BadXDR},
		{vector: "msg-chunks", at: 28, word: 0x61, field: "rdma_position", code: BadXDR, says: "not a multiple of 4"},
		{vector: "msg-chunks", at: 28, word: 0x64, field: "rdma_position", code: BadXDR, says: "must not decrease"},
		{vector: "msg-chunks", at: 64, word: 0xffffffff, field: "offset", code: BadXDR, says: "ends beyond 2^64"},
		{vector: "msg-chunks", at: 80, word: 33, field: "rdma_writes", code: Segments, limit: 32},
		{vector: "msg-chunks", at: 80, word: 32, field: "rdma_writes", code: BadXDR, says: "the message ends after"},
		{vector: "msg-chunks", at: 124, word: 0xffffffff, field: "rdma_reply", code: Segments, limit: 32},

		{vector: "err-vers", at: 16, word: 11, field: "rdma_err"},
		{vector: "err-vers", at: 16, word: 0, field: "rdma_err"},

		{vector: "xmtcont", at: 16, word: 9, field: "rdma_optdir", code: BadXDR},
		{vector: "xmtcont", at: 20, word: 0, field: "rdma_opttype", code: InvalidOption, says: "operation 0 is of no extension that is known"},
		{vector: "xmtcont", at: 20, word: 9, field: "rdma_opttype", code: InvalidOption},
		{vector: "xmtcont", at: 24, word: 11, field: "length", code: BadXDR, says: "optinfo ends after 3 more bytes"},
		{vector: "xmtcont", at: 24, word: 21, field: "rdma_optinfo", code: BadXDR, says: "message ends after 20 more bytes, 24 are needed"},
		{vector: "xmtcont", at: 24, word: 0xffffffff, field: "rdma_optinfo", code: BadXDR},

		{vector: "connprop", at: 16, word: 33, field: "rpcrdma2_propset", code: BadXDR, says: "33 properties, at most 32"},
		{vector: "connprop", at: 24, word: 0xffffffff, field: "rdma_data", code: BadXDR, says: "message ends after"},
		{vector: "connprop", at: 140, word: 2, field: "rpcrdma2_propsubset", code: BadXDR, says: "2 words, at most 1"},
		{vector: "connprop-alias", at: 36, word: 1024, field: "rdma_data", code: BadXDR, says: "optinfo ends after"},
		{vector: "resprop", at: 16, word: 2, field: "rpcrdma2_propsubset", code: BadXDR},
		{vector: "resprop", at: 24, word: 0xffffffff, field: "rpcrdma2_propsubset", code: BadXDR},

		{vector: "xmtreq-smallest", at: 28, word: 65, field: "xmdp_grpinfo", code: ReadChunks, limit: 64},
		{vector: "xmtreq-smallest", at: 32, word: 65, field: "xmdp_rsdgroup", code: WriteChunks, limit: 64},
		{vector: "xmtreq-smallest", at: 36, word: 0, field: "optxrq_count", code: BadXDR, says: "a group of 0 transmissions"},
		{vector: "xmtreq-write", at: 48, word: 0xffffffff, field: "xmdl_bsnum", code: BadXDR, says: "all items may have 1024"},
		{vector: "xmtreq-write", at: 48, word: 1000, field: "xmdl_bsnum", code: BadXDR, says: "optinfo ends after"},
		{vector: "xmtreq-results", at: 44, word: 33, field: "rpcrdma1_segment", code: Segments, limit: 32},
		{vector: "xmtreq-results", at: 44, word: 32, field: "rpcrdma1_segment", code: BadXDR},
		{vector: "xmtreq-results", at: 72, word: 0x24, field: "xmdrsds_range", code: BadXDR, says: "range 40 to 36"},
		{vector: "xmtreq-results", at: 72, word: 0xa4, field: "xmdrsds_range", code: BadXDR, says: "begin behind the one before"},
		{vector: "xmtreq-results", at: 76, word: 65, field: "xmdrsds_items", code: WriteChunks, limit: 64},
		{vector: "xmtreq-results", at: 96, word: 33, field: "rpcrdma1_segment", code: Segments, limit: 21},
		{vector: "xmtresp", at: 40, word: 7, field: "xmdmi_where", code: BadXDR},
		{vector: "xmtresp", at: 116, word: 0, field: "optxrs_count", code: BadXDR},

		{vector: "report-badseq", at: 32, word: 2, field: "xmsi_dir", code: BadXDR},
		{vector: "report-badseq", at: 40, word: 2, field: "optre_lead", code: BadXDR},
		{vector: "report-badseq", at: 48, word: 2, field: "xmsi_dir", code: BadXDR},
		{vector: "report-badseq", at: 56, word: 0, field: "optre_which", code: BadXDR},
		{vector: "report-badseq", at: 56, word: 9, field: "optre_which", code: BadXDR},
	} {
		msg := message(t, c.vector)
		binary.BigEndian.PutUint32(msg[c.at:], c.word)
		for _, step := range []int{1, 7, len(msg)} {
			var h Header
			var pe *ParseError
			if err := h.Parse(pieces(msg, step), &limits2); !errors.As(err, &pe) {
				t.Errorf("%s with %#x at %d: %v", c.vector, c.word, c.at, err)
				break
			}
			if pe.Field != c.field || answer(pe) != c.code || pe.Max != c.limit || !strings.Contains(pe.Reason, c.says) {
				t.Errorf("%s with %#x at %d: %v (%v, %d)", c.vector, c.word, c.at, pe, answer(pe), pe.Max)
			}
		}
	}
}

// TestPlacements has every placement in every place: table 1 of rtrext section 6.2.
func TestPlacements(t *testing.T) {
	item := func(p Placement) (x Transmit) {
		x.Count = 1
		switch p {
		case Explicit:
			x.AddExplicit(8, 4, []Segment{{1, 4, 0}})
		case SendBased:
			x.AddSendBased(8, 4, 0, 0)
		default:
			x.AddAbsent(8, 4, p)
		}
		return x
	}
	for p := range NoItem + 2 {
		x := item(p)
		var h Header
		parse := func(d Direction, op Operation, x *Transmit) error {
			return h.Parse([][]byte{option(1, 1, d, op, x)}, &limits2)
		}
		if err := parse(Call, XmtReq, &x); (err == nil) != (p == Explicit || p == SendBased) {
			t.Errorf("%v in a request: %v", p, err)
		}
		if err := parse(Reply, XmtResp, &x); (err == nil) != (p == Explicit || p == SendBased || p == TooShort || p == NoItem) {
			t.Errorf("%v in a reply: %v", p, err)
		}
		directs := Transmit{Count: 1}
		directs.AddSet(0, 4)
		directs.AddResult(0, p, 0, nil)
		if err := parse(Call, XmtReq, &directs); (err == nil) != (p >= Explicit && p <= BySize) {
			t.Errorf("%v directs a result: %v", p, err)
		}
		if (p == 0 || p > NoItem) != strings.HasPrefix(p.String(), "placement ") {
			t.Error(p.String())
		}
	}
}

// TestLimits2 checks the limit in an error: at the limit the request is accepted.
func TestLimits2(t *testing.T) {
	lim := Limits{ReadSegments: 6, WriteChunks: 3, SegmentsPerChunk: 4, WriteSegments: 7, Version2: true, Items: 3, Buffers: 5}
	lists := func(reads []int, writes []int, reply int) []byte {
		b := AppendMessage(nil, 1, 1, Msg, Call, 0)
		for i, n := range reads {
			for range n {
				b = AppendReadSegment(b, ReadSegment{Position(4 * i), Segment{1, 1, 1}})
			}
		}
		b = AppendEnd(b)
		for _, n := range writes {
			b = appendChunk(b, make([]Segment, n))
		}
		return appendChunk(AppendEnd(b), make([]Segment, reply))
	}
	request := func(items []int, results ...int) []byte {
		x := Transmit{Count: 1}
		for i, n := range items {
			x.AddExplicit(uint32(4+4*i), 0, make([]Segment, n))
		}
		x.AddSet(0, 100)
		for _, n := range results {
			x.AddResult(0, Explicit, 0, make([]Segment, n))
		}
		return option(1, 1, Call, XmtReq, &x)
	}
	numbers := func(counts ...int) []byte {
		x := Transmit{Count: 1}
		for i, n := range counts {
			x.AddSendBased(uint32(4+4*i), 0, 0, make([]uint32, n)...)
		}
		return option(1, 1, Call, XmtReq, &x)
	}
	for _, c := range []struct {
		what string
		msg  []byte
		code ErrorCode
		most uint32
	}{
		{what: "all that fits", msg: lists([]int{4, 2}, []int{4, 0, 1}, 2)},
		{"a Read chunk too long", lists([]int{5}, nil, 0), Segments, 4},
		{"Read chunks too long together", lists([]int{3, 2, 2}, nil, 0), ReadChunks, 2},
		{"too many Write chunks", lists(nil, []int{1, 1, 1, 1}, 0), WriteChunks, 3},
		{"a Write chunk too long", lists(nil, []int{5}, 0), Segments, 4},
		{"Write chunks too long together", lists(nil, []int{4, 4}, 0), Segments, 3},
		{"and the Reply chunk with them", lists(nil, []int{3, 3}, 2), Segments, 2},
		{what: "with so many it fits", msg: lists(nil, []int{2, 2}, 2)},

		{what: "items that fit", msg: request([]int{4, 1}, 2, 0, 0)},
		{"too many items", request([]int{0, 0, 0, 0}), ReadChunks, 3},
		{"too many results", request(nil, 0, 0, 0, 0), WriteChunks, 3},
		{"an item too long", request([]int{5}), Segments, 4},
		{"items too long together", request([]int{4, 4}), Segments, 3},
		{"and results with them", request([]int{3, 3}, 2), Segments, 2},
		{what: "numbers that fit", msg: numbers(2, 0, 3)},
		{"too many numbers", numbers(2, 4), BadXDR, 0},
	} {
		var h Header
		err := h.Parse([][]byte{c.msg}, &lim)
		if c.code == 0 {
			if err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
			continue
		}
		var pe *ParseError
		if !errors.As(err, &pe) || answer(pe) != c.code || pe.Max != c.most {
			t.Errorf("%s: %v (%+v), want %d with %d", c.what, err, pe, c.code, c.most)
		}
	}
	// One Read chunk that is too long for the whole list is too long itself.
	lim.SegmentsPerChunk = 10
	var h Header
	var pe *ParseError
	if err := h.Parse([][]byte{lists([]int{7}, nil, 0)}, &lim); !errors.As(err, &pe) || answer(pe) != Segments || pe.Max != 6 {
		t.Errorf("%v", err)
	}
	// A request has no more sets than results in them.
	x := Transmit{Count: 1}
	for i := range uint32(4) {
		x.AddSet(i, i+1)
	}
	if err := h.Parse([][]byte{option(1, 1, Call, XmtReq, &x)}, &lim); !errors.As(err, &pe) || answer(pe) != WriteChunks || pe.Max != 3 {
		t.Errorf("%v", err)
	}
}

// TestManyProperties reaches the bounds of a property message.
func TestManyProperties(t *testing.T) {
	for _, c := range []struct {
		count, size int
		ok          bool
	}{{MaxProperties, 4, true}, {MaxProperties + 1, 4, false}, {8, maxPropertyValues / 8, true}, {8, maxPropertyValues/8 + 1, false}, {1, maxPropertyValues, true}} {
		var p Properties
		for n := range c.count {
			p.Set = append(p.Set, Property{ExperimentalProperty, make([]byte, c.size)})
			p.Fixed = Mark(p.Fixed[:0], n%MaxProperties)
		}
		var h Header
		if err := h.Parse(pieces(AppendProperties(nil, 1, 1, Call, ConnProp, &p, false), 1000), &limits2); (err == nil) != c.ok {
			t.Errorf("%d properties of %d bytes: %v", c.count, c.size, err)
		}
	}
}

func TestNames(t *testing.T) {
	for code := ErrVers; code <= System; code++ {
		if strings.Contains(code.Name(2), "error") {
			t.Errorf("error %d has no name", code)
		}
	}
	for code := BadHeaderType; code <= BadPayload; code++ {
		if strings.Contains(code.String(), "report") {
			t.Errorf("report %d has no name", code)
		}
	}
	for _, c := range [][2]string{{ErrorCode(2).Name(1), "ERR_CHUNK"}, {ErrorCode(11).Name(2), "error 11"}, {ReportCode(9).String(), "report 9"},
		{RespProp.String(), "RDMA2_RESPROP"}, {UpdProp.String(), "RDMA2_UPDPROP"}, {Procedure(10).String(), "procedure 10"},
		{RTRSupport.String(), "RTRSUPP"}, {ExperimentalProperty.String(), "property 0xffffff00"}} {
		if c[0] != c[1] {
			t.Errorf("%q, want %q", c[0], c[1])
		}
	}
}
