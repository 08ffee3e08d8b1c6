package nfs4_test

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	. "sluice.dev/sluice/pkg/nfs/nfs4" //nolint:revive // the tables are long
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/xdr"
)

// message is the arguments or the result of an operation.
type message interface {
	Encode(e *xdr.Encoder)
	Decode(d *xdr.Decoder)
}

// codec has the messages of an operation; nil: no fields.
type codec struct{ args, res func() message }

// of returns a maker of a type of message.
func of[T any, P interface {
	*T
	message
}]() func() message {
	return func() message { return P(new(T)) }
}

var codecs = map[Op]codec{
	OpAccess:            {of[AccessArgs](), of[AccessRes]()},
	OpClose:             {of[CloseArgs](), of[CloseRes]()},
	OpCommit:            {of[CommitArgs](), of[CommitRes]()},
	OpCreate:            {of[CreateArgs](), of[CreateRes]()},
	OpDelegPurge:        {of[DelegPurgeArgs](), nil},
	OpDelegReturn:       {of[DelegReturnArgs](), nil},
	OpGetAttr:           {of[GetAttrArgs](), of[GetAttrRes]()},
	OpGetFH:             {nil, of[GetFHRes]()},
	OpLink:              {of[LinkArgs](), of[LinkRes]()},
	OpLock:              {of[LockArgs](), of[LockRes]()},
	OpLockT:             {of[LockTArgs](), nil},
	OpLockU:             {of[LockUArgs](), of[LockURes]()},
	OpLookup:            {of[LookupArgs](), nil},
	OpLookupP:           {},
	OpNVerify:           {of[NVerifyArgs](), nil},
	OpOpen:              {of[OpenArgs](), of[OpenRes]()},
	OpOpenAttr:          {of[OpenAttrArgs](), nil},
	OpOpenDowngrade:     {of[OpenDowngradeArgs](), of[OpenDowngradeRes]()},
	OpPutFH:             {of[PutFHArgs](), nil},
	OpPutPubFH:          {},
	OpPutRootFH:         {},
	OpRead:              {of[ReadArgs](), of[ReadRes]()},
	OpReaddir:           {of[ReaddirArgs](), of[readdirRes]()},
	OpReadlink:          {nil, of[ReadlinkRes]()},
	OpRemove:            {of[RemoveArgs](), of[RemoveRes]()},
	OpRename:            {of[RenameArgs](), of[RenameRes]()},
	OpRestoreFH:         {},
	OpSaveFH:            {},
	OpSecInfo:           {of[SecInfoArgs](), of[SecInfoRes]()},
	OpSetAttr:           {of[SetAttrArgs](), of[SetAttrRes]()},
	OpVerify:            {of[VerifyArgs](), nil},
	OpWrite:             {of[WriteArgs](), of[WriteRes]()},
	OpBackchannelCtl:    {of[BackchannelCtlArgs](), nil},
	OpBindConnToSession: {of[BindConnToSessionArgs](), of[BindConnToSessionRes]()},
	OpExchangeID:        {of[ExchangeIDArgs](), of[ExchangeIDRes]()},
	OpCreateSession:     {of[CreateSessionArgs](), of[CreateSessionRes]()},
	OpDestroySession:    {of[DestroySessionArgs](), nil},
	OpFreeStateID:       {of[FreeStateIDArgs](), nil},
	OpSecInfoNoName:     {of[SecInfoNoNameArgs](), of[SecInfoRes]()},
	OpSequence:          {of[SequenceArgs](), of[SequenceRes]()},
	OpTestStateID:       {of[TestStateIDArgs](), of[TestStateIDRes]()},
	OpWantDelegation:    {of[WantDelegationArgs](), of[WantDelegationRes]()},
	OpDestroyClientID:   {of[DestroyClientIDArgs](), nil},
	OpReclaimComplete:   {of[ReclaimCompleteArgs](), nil},
	OpAllocate:          {of[AllocateArgs](), nil},
	OpCopy:              {of[CopyArgs](), of[CopyRes]()},
	OpDeallocate:        {of[DeallocateArgs](), nil},
	OpIOAdvise:          {of[IOAdviseArgs](), of[IOAdviseRes]()},
	OpOffloadCancel:     {of[OffloadCancelArgs](), nil},
	OpOffloadStatus:     {of[OffloadStatusArgs](), of[OffloadStatusRes]()},
	OpReadPlus:          {of[ReadPlusArgs](), of[ReadPlusRes]()},
	OpSeek:              {of[SeekArgs](), of[SeekRes]()},
	OpClone:             {of[CloneArgs](), nil},
	OpGetXattr:          {of[GetXattrArgs](), of[GetXattrRes]()},
	OpSetXattr:          {of[SetXattrArgs](), of[SetXattrRes]()},
	OpListXattrs:        {of[ListXattrsArgs](), of[ListXattrsRes]()},
	OpRemoveXattr:       {of[RemoveXattrArgs](), of[RemoveXattrRes]()},
}

var cbCodecs = map[CBOp]codec{
	OpCBGetAttr:    {of[CBGetAttrArgs](), of[CBGetAttrRes]()},
	OpCBRecall:     {of[CBRecallArgs](), nil},
	OpCBRecallAny:  {of[CBRecallAnyArgs](), nil},
	OpCBRecallSlot: {of[CBRecallSlotArgs](), nil},
	OpCBSequence:   {of[CBSequenceArgs](), of[CBSequenceRes]()},
	OpCBNotifyLock: {of[CBNotifyLockArgs](), nil},
	OpCBOffload:    {of[CBOffloadArgs](), nil},
}

// readdirRes is the result of READDIR.
type readdirRes struct {
	Verf    Verifier
	Entries []Entry
	EOF     bool
}

func (r *readdirRes) Encode(e *xdr.Encoder) {
	r.Verf.Encode(e)
	for i := range r.Entries {
		e.Bool(true)
		e.Uint64(r.Entries[i].Cookie)
		e.Opaque(r.Entries[i].Name)
		r.Entries[i].Attrs.Encode(e)
	}
	e.Bool(false)
	e.Bool(r.EOF)
}

func (r *readdirRes) Decode(d *xdr.Decoder) {
	r.Verf.Decode(d)
	r.Entries = r.Entries[:0]
	for n := (Entry{}); n.Decode(d); {
		r.Entries = append(r.Entries, n)
	}
	r.EOF = d.Bool()
}

// draw fills v with values that its type can have on the wire.
func draw(t *rapid.T, v reflect.Value, name string) {
	switch p := v.Addr().Interface().(type) {
	case *Attrs:
		*p = drawAttrs(t)
		return
	case *Handle:
		*p = drawBytes(t, MaxHandle)
		return
	case *[]byte:
		*p = drawBytes(t, 35)
		return
	case *Stability:
		*p = Stability(rapid.Uint32Range(0, 2).Draw(t, name))
		return
	case *CreateMode:
		*p = CreateMode(rapid.Uint32Range(0, 3).Draw(t, name))
		return
	case *Claim:
		*p = Claim(rapid.Uint32Range(0, 6).Draw(t, name))
		return
	case *DelegType:
		*p = DelegType(rapid.Uint32Range(0, 3).Draw(t, name))
		return
	case *LockType:
		*p = LockType(rapid.Uint32Range(1, 4).Draw(t, name))
		return
	case *Content:
		*p = Content(rapid.Uint32Range(0, 1).Draw(t, name))
		return
	case *Type:
		*p = Type(rapid.Uint32Range(0, 10).Draw(t, name))
		return
	case *Status:
		*p = Status(rapid.SampledFrom([]uint32{0, 5, 10025}).Draw(t, name))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			draw(t, v.Field(i), v.Type().Field(i).Name)
		}
		settle(t, v.Addr().Interface())
	case reflect.Slice:
		n := rapid.IntRange(0, 3).Draw(t, name)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		fallthrough
	case reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			reflect.Copy(v, reflect.ValueOf(drawBytes(t, v.Len())))
			return
		}
		for i := range v.Len() {
			draw(t, v.Index(i), name)
		}
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, name))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(rapid.Uint64Range(0, 1<<v.Type().Bits()-1).Draw(t, name))
	case reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, name))
	case reflect.Int:
		v.SetInt(rapid.Int64Range(0, 5).Draw(t, name))
	default:
		t.Fatalf("a field %s of type %v", name, v.Type())
	}
}

// drawBytes draws at most limit bytes.
func drawBytes(t *rapid.T, limit int) []byte {
	b, first := make([]byte, rapid.IntRange(0, limit).Draw(t, "length")), rapid.Byte().Draw(t, "byte")
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

// settle makes the fields of a drawn struct agree.
func settle(t *rapid.T, m any) {
	pick := func(values ...uint32) uint32 { return rapid.SampledFrom(values).Draw(t, "enum") }
	switch m := m.(type) {
	case *ReadRes:
		m.Length = total(m.Data)
	case *WriteArgs:
		m.Length = total(m.Data)
	case *ReadlinkRes:
		m.Length = total(m.Link)
	case *CreateArgs:
		m.LinkLength = total(m.Link)
	case *ExchangeIDArgs:
		m.Protect = pick(0, 1, 2)
	case *ExchangeIDRes:
		m.Protect = pick(0, 1)
	case *SecParms:
		m.Flavor = pick(AuthNone, AuthSys, AuthGSS)
	case *BindConnToSessionArgs:
		m.Dir = pick(1, 2, 3, 7)
	case *SecInfoNoNameArgs:
		m.Style = pick(0, 1)
	case *SecInfoRes:
		for i := range m.Flavors {
			m.Flavors[i] = pick(0, 1)
		}
	case *SetXattrArgs:
		m.Option = pick(0, 1, 2)
	case *WantDelegationArgs:
		m.Claim = Claim(pick(1, 4, 6))
	case *Delegation:
		m.Why = pick(0, 1, 2, 3, 8)
	}
}

func total(data [][]byte) (n int) {
	for _, b := range data {
		n += len(b)
	}
	return n
}

// drawAttrs draws attributes with values that fit them.
func drawAttrs(t *rapid.T) (a Attrs) {
	for _, n := range []uint32{AttrType, AttrChange, AttrSize, AttrMode, AttrTimeModify, AttrSuppAttrExclCreat, AttrXattrSupport} {
		if !rapid.Bool().Draw(t, "attribute") {
			continue
		}
		size, _ := schema.AttrSize(n)
		if n == AttrSuppAttrExclCreat {
			size = 4
		}
		a.Mask.Add(n)
		a.Values = append(a.Values, make([]byte, size)...)
	}
	return a
}

func encode(m message) (stream []byte, items []xdr.Item) {
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 1<<13), nil)
	m.Encode(&e)
	if e.Overflow() {
		panic("overflow")
	}
	return e.Bytes(), e.Items()
}

// flatten puts the items back in.
func flatten(stream []byte, items []xdr.Item) []byte {
	var out []byte
	for _, it := range items {
		n := it.Position - len(out)
		out, stream = append(out, stream[:n]...), stream[n:]
		for _, b := range it.Data {
			out = append(out, b...)
		}
		out = append(out, make([]byte, xdr.Pad(it.Length))...)
	}
	return append(out, stream...)
}

func each(t *testing.T, f func(t *testing.T, code uint32, callback, result bool, m func() message)) {
	run := func(name string, code uint32, callback bool, c codec) {
		t.Run(name+"/args", func(t *testing.T) { f(t, code, callback, false, c.args) })
		t.Run(name+"/res", func(t *testing.T) { f(t, code, callback, true, c.res) })
	}
	for op, c := range codecs {
		run(op.String(), uint32(op), false, c)
	}
	for op, c := range cbCodecs {
		run(fmt.Sprint("CB", uint32(op)), uint32(op), true, c)
	}
}

// Messages survive encoding and decoding, with and without items, and are of the shape that the
// table of pkg/nfs/schema describes.
func TestMessages(t *testing.T) {
	each(t, func(t *testing.T, code uint32, callback, result bool, make func() message) {
		rapid.Check(t, func(t *rapid.T) {
			var stream []byte
			var items []xdr.Item
			if make != nil {
				m := make()
				draw(t, reflect.ValueOf(m).Elem(), "m")
				stream, items = encode(m)
				again(t, make(), stream, items, flatten(stream, items))
				again(t, make(), flatten(stream, items), nil, flatten(stream, items))
			}
			walk(t, code, callback, result, flatten(stream, items))
		})
	})
}

// again decodes a message to m, and encodes it to the same bytes.
func again(t *rapid.T, m message, stream []byte, items []xdr.Item, want []byte) {
	var d xdr.Decoder
	d.Reset([][]byte{stream}, items)
	m.Decode(&d)
	if d.Err() != nil || d.Left() != 0 || d.Used() != len(items) {
		t.Fatalf("%x: %v, %d bytes left, %d items used of %d", stream, d.Err(), d.Left(), d.Used(), len(items))
	}
	if got := flatten(encode(m)); !bytes.Equal(got, want) {
		t.Fatalf("encoded as\n%x\nwas\n%x\n%+v", got, want, m)
	}
}

// walk reads a message inside a COMPOUND by the table of pkg/nfs/schema.
func walk(t *rapid.T, code uint32, callback, result bool, body []byte) {
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 1<<13), nil)
	p := schema.Proc{Program: Program, Version: Version, Procedure: ProcCompound, Callback: callback}
	switch {
	case result:
		(&CompoundRes{Count: 1}).Encode(&e)
	case callback:
		(&CBCompoundArgs{Minor: 2, Count: 1}).Encode(&e)
	default:
		(&CompoundArgs{Minor: 2, Count: 1}).Encode(&e)
	}
	e.Uint32(code)
	if result {
		e.Uint32(uint32(OK))
	}
	var d xdr.Decoder
	d.Reset([][]byte{e.Bytes(), body}, nil)
	var w schema.Walker
	read := w.Args
	if result {
		read = w.Results
	}
	if err := read(p, &d); err != nil || d.Left() != 0 {
		t.Fatalf("%x: %v, %d bytes left", body, err, d.Left())
	}
}

// The results of other statuses.
func TestFailures(t *testing.T) {
	for _, m := range []message{&LockDenied{}, &CopyRequirements{}} {
		rapid.Check(t, func(t *rapid.T) {
			draw(t, reflect.ValueOf(m).Elem(), "m")
			stream, _ := encode(m)
			again(t, m, stream, nil, stream)
		})
	}
}

// A truncated message fails.
func TestTruncated(t *testing.T) {
	each(t, func(t *testing.T, _ uint32, _, _ bool, make func() message) {
		if make == nil {
			return
		}
		rapid.Check(t, func(t *rapid.T) {
			m := make()
			draw(t, reflect.ValueOf(m).Elem(), "m")
			stream := flatten(encode(m))
			n := 4 * rapid.IntRange(0, len(stream)/4-1).Draw(t, "words")
			var d xdr.Decoder
			d.ResetBytes(stream[:n])
			if m.Decode(&d); d.Err() == nil {
				t.Fatalf("the first %d bytes of %x are a message", n, stream)
			}
		})
	})
}

// The operations have the numbers of pkg/nfs/schema, and those of version 4.2 are no operations of
// version 4.1.
func TestOps(t *testing.T) {
	for code := range Op(Operations + 10) {
		size, _ := schema.ResultSize(uint32(code))
		if known := code.String() != "ILLEGAL"; known != code.Known(2) {
			t.Errorf("operation %d is %v, known %v", code, code, code.Known(2))
		}
		if _, ok := codecs[code]; ok && size < 8 {
			t.Errorf("operation %d, %v: schema has size %d", code, code, size)
		}
		if code.Known(1) && code > OpReclaimComplete {
			t.Errorf("version 4.1 has %v", code)
		}
	}
	if OpRemoveXattr.String() != "REMOVEXATTR" || OpClone.String() != "CLONE" || OpAllocate.String() != "ALLOCATE" {
		t.Error(OpRemoveXattr, OpClone, OpAllocate)
	}
}
