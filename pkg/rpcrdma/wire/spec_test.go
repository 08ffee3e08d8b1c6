package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// xdrDecl is a declaration of XDR.
type xdrDecl struct {
	typ, name        string
	optional, repeat bool
	most             string // of repeat, "" for no bound
}

// xdrType is a struct, a union (with a discriminant), an enum (with values only), or a typedef
// (with one field and alias).
type xdrType struct {
	fields       []xdrDecl
	discriminant xdrDecl
	arms         map[uint32]xdrDecl
	values       map[uint32]string
	alias        bool
}

// xdrSpec is a description in XDR, limited to the features that docs/protocol-v2*.x use.
type xdrSpec struct {
	tokens []string
	consts map[string]uint32
	types  map[string]*xdrType
}

var (
	xdrComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	xdrToken   = regexp.MustCompile(`[A-Za-z_0-9]+|[{}()<>;:=,*]`)
)

func readSpec(t *testing.T, name string) *xdrSpec {
	t.Helper()
	b, err := os.ReadFile("../../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	s := &xdrSpec{tokens: xdrToken.FindAllString(xdrComment.ReplaceAllString(string(b), ""), -1), consts: map[string]uint32{}, types: map[string]*xdrType{}}
	for len(s.tokens) > 0 {
		s.definition()
	}
	return s
}

func (s *xdrSpec) next() string {
	w := s.tokens[0]
	s.tokens = s.tokens[1:]
	return w
}

func (s *xdrSpec) want(words ...string) {
	for _, w := range words {
		if got := s.next(); got != w {
			panic(fmt.Sprintf("%q instead of %q before %q", got, w, s.tokens[:min(8, len(s.tokens))]))
		}
	}
}

func (s *xdrSpec) value(w string) uint32 {
	if v, ok := s.consts[w]; ok {
		return v
	}
	v, err := strconv.ParseUint(w, 0, 32)
	if err != nil {
		panic(err)
	}
	return uint32(v)
}

func (s *xdrSpec) definition() {
	kind := s.next()
	x := &xdrType{}
	switch kind {
	case "const":
		name := s.next()
		s.want("=")
		s.consts[name] = s.value(s.next())
	case "typedef":
		d := s.declaration()
		x.fields, x.alias = []xdrDecl{d}, true
		s.types[d.name] = x
	case "enum":
		s.types[s.next()] = x
		x.values = map[uint32]string{}
		for sep := s.next(); sep != "}"; sep = s.next() { // "{", then ","
			name := s.next()
			s.want("=")
			s.consts[name] = s.value(s.next())
			x.values[s.consts[name]] = name
		}
	case "struct":
		s.types[s.next()] = x
		for s.want("{"); s.tokens[0] != "}"; s.want(";") {
			x.fields = append(x.fields, s.declaration())
		}
		s.want("}")
	case "union":
		s.types[s.next()] = x
		s.want("switch", "(")
		x.discriminant = s.declaration()
		s.want(")")
		x.arms = map[uint32]xdrDecl{}
		for s.want("{"); s.tokens[0] != "}"; s.want(";") {
			var cases []uint32
			for s.tokens[0] == "case" {
				s.want("case")
				cases = append(cases, s.value(s.next()))
				s.want(":")
			}
			d := s.declaration()
			for _, c := range cases {
				x.arms[c] = d
			}
		}
		s.want("}")
	default:
		panic("a definition begins with " + kind)
	}
	s.want(";")
}

func (s *xdrSpec) declaration() (d xdrDecl) {
	d.typ = s.next()
	if d.typ == "void" {
		return d
	}
	if d.typ == "unsigned" {
		d.typ += " " + s.next()
	}
	if d.optional = s.tokens[0] == "*"; d.optional {
		s.want("*")
	}
	d.name = s.next()
	if d.repeat = s.tokens[0] == "<"; d.repeat {
		if s.want("<"); s.tokens[0] != ">" {
			d.most = s.next()
		}
		s.want(">")
	}
	return d
}

// xdrReader walks through bytes according to a description.
type xdrReader struct {
	spec *xdrSpec
	left []byte
}

func (r *xdrReader) uint32() uint32 {
	if len(r.left) < 4 {
		panic("the bytes end")
	}
	v := binary.BigEndian.Uint32(r.left)
	r.left = r.left[4:]
	return v
}

func (r *xdrReader) declaration(d xdrDecl) {
	n := uint32(1)
	if d.optional || d.repeat {
		n = r.uint32()
	}
	if d.optional && n > 1 || d.repeat && d.most != "" && n > r.spec.value(d.most) {
		panic(fmt.Sprintf("%d of %s", n, d.name))
	}
	if d.typ == "opaque" {
		r.left = r.left[(n+3)&^3:]
		return
	}
	for range n {
		r.typ(d.typ)
	}
}

func (r *xdrReader) typ(name string) {
	x := r.spec.types[name]
	switch {
	case name == "void":
	case name == "unsigned int":
		r.uint32()
	case name == "unsigned hyper":
		r.uint32()
		r.uint32()
	case x == nil:
		panic("no type " + name)
	case x.values != nil:
		if v := r.uint32(); x.values[v] == "" {
			panic(fmt.Sprintf("%s is %d", name, v))
		}
	case x.arms != nil:
		v := binary.BigEndian.Uint32(r.left)
		r.typ(x.discriminant.typ)
		arm, ok := x.arms[v]
		if !ok {
			panic(fmt.Sprintf("%s has no arm %d", name, v))
		}
		r.declaration(arm)
	default:
		for _, d := range x.fields {
			r.declaration(d)
		}
	}
}

// walk returns the length of a type's bytes in b.
func (s *xdrSpec) walk(typ string, b []byte) (n int, err error) {
	r := xdrReader{s, b}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v, %d bytes before the end", p, len(r.left))
		}
	}()
	r.typ(typ)
	return len(b) - len(r.left), nil
}

// bodies are the types of optinfo's content.
var bodies = map[Operation]string{
	OptConnProp: "connprop", OptReqProp: "reqprop", OptRespProp: "resprop", OptUpdProp: "updprop",
	XmtReq: "transmit_request", XmtResp: "transmit_response", XmtCont: "transmit_continue", ReptErr: "report_error",
}

// TestSpecification walks through each vector according to docs/protocol-v2.x.
func TestSpecification(t *testing.T) {
	s := readSpec(t, "protocol-v2.x")
	for _, v := range vectors(t) {
		if n, err := s.walk("header", v.msg); err != nil || n != v.size {
			t.Errorf("%s: a header of %d bytes, want %d: %v", v.name, n, v.size, err)
		}
		if Procedure(binary.BigEndian.Uint32(v.msg[12:])) == Optional {
			op := Operation(binary.BigEndian.Uint32(v.msg[20:]))
			if n, err := s.walk(bodies[op], v.msg[OptionSize:v.size]); err != nil || n != v.size-OptionSize {
				t.Errorf("%s: %s has %d bytes, want %d: %v", v.name, bodies[op], n, v.size-OptionSize, err)
			}
		}
	}
	b := pages().Append(nil)
	if n, err := s.walk("buffer", b); err != nil || n != len(b) {
		t.Errorf("a buffer structure has %d bytes, want %d: %v", n, len(b), err)
	}
}

// TestSpecificationNumbers compares the description's constants with ours.
func TestSpecificationNumbers(t *testing.T) {
	s := readSpec(t, "protocol-v2.x")
	ours := map[string]uint32{
		"RDMA2_VERSION": Version2, "CALL": uint32(Call), "REPLY": uint32(Reply), "SEG_TARGETABLE": Targetable,
		"ERR_VERS": uint32(ErrVers), "ERR_BAD_XDR": uint32(BadXDR), "ERR_INVALID_OPTION": uint32(InvalidOption), "ERR_READ_CHUNKS": uint32(ReadChunks),
		"ERR_WRITE_CHUNKS": uint32(WriteChunks), "ERR_SEGMENTS": uint32(Segments), "ERR_WRITE_RESOURCE": uint32(WriteResource),
		"ERR_REPLY_RESOURCE": uint32(ReplyResource), "ERR_INVALID_OPT_9": uint32(InvalidOption9), "ERR_SYSTEM": uint32(System),
		"PROP_RBSIZ": uint32(ReceiveBufferSize), "PROP_BRS": uint32(BackwardRequestSupport), "PROP_RTRSUPP": uint32(RTRSupport),
		"PROP_RBSTRUCT": uint32(ReceiveBufferStructure), "PROP_REQRXLIM": uint32(RequestReceiveLimit), "PROP_RESPSXLIM": uint32(ResponseSendLimit),
		"PROP_EXPERIMENTAL": uint32(ExperimentalProperty), "RTRS_XREQ": AcceptsRequest, "RTRS_XRESP": AcceptsResponse, "RTRS_XCONT": AcceptsContinue,
		"BACKWARD_NONE": BackwardNone, "BACKWARD_INLINE": BackwardInline, "BACKWARD_GENERAL": BackwardGeneral,
		"OP_CONNPROP": uint32(OptConnProp), "OP_REQPROP": uint32(OptReqProp), "OP_RESPROP": uint32(OptRespProp), "OP_UPDPROP": uint32(OptUpdProp),
		"OP_XMTREQ": uint32(XmtReq), "OP_XMTRESP": uint32(XmtResp), "OP_XMTCONT": uint32(XmtCont), "OP_REPTERR": uint32(ReptErr),
	}
	for p := range NoItem {
		ours[(p + 1).String()] = uint32(p + 1)
	}
	for c := range BadPayload {
		ours[(c + 1).String()] = uint32(c + 1)
	}
	for _, p := range []Procedure{Msg, NoMsg, Error, Optional, ConnProp, ReqProp, RespProp, UpdProp} {
		ours["RDMA2_"+strings.TrimPrefix(strings.TrimPrefix(p.String(), "RDMA2_"), "RDMA_")] = uint32(p)
	}
	for name, v := range s.consts {
		if n, ok := ours[name]; !ok || n != v {
			t.Errorf("%s is %d, here %d (%v)", name, v, n, ok)
		}
	}
	if len(s.consts) != len(ours) {
		t.Errorf("%d constants, here %d", len(s.consts), len(ours))
	}
}

// TestExamples compares the examples of docs/protocol-v2.md with the vectors: a block that begins
// with "```message NAME".
func TestExamples(t *testing.T) {
	compareExamples(t, "protocol-v2.md", "v2-headers.txt", 10)
}

func compareExamples(t *testing.T, doc, file string, least int) {
	b, err := os.ReadFile("../../../docs/" + doc)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```message (\\S+)$\n(.*?)^```$").FindAllStringSubmatch(string(b), -1)
	for _, block := range blocks {
		var got []byte
		for line := range strings.Lines(block[2]) {
			got = append(got, words(t, line)...)
		}
		if want := messageOf(t, file, block[1]); !bytes.Equal(got, want) {
			t.Errorf("%s is\n%x, the vector is\n%x", block[1], got, want)
		}
	}
	if len(blocks) < least {
		t.Errorf("only %d examples", len(blocks))
	}
	// Every name of a vector in the text is one.
	for _, name := range regexp.MustCompile("`vector ([a-z0-9-]+)`").FindAllStringSubmatch(string(b), -1) {
		messageOf(t, file, name[1])
	}
}
