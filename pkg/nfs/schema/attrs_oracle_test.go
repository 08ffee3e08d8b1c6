package schema

import (
	"testing"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/xdr"
)

var attrOracles = map[uint32]oracle{
	0:  ofValue(nfsv4.ReadFattr4SupportedAttrs, nfsv4.WriteFattr4SupportedAttrs),
	1:  ofValue(nfsv4.ReadFattr4Type, nfsv4.WriteFattr4Type),
	2:  ofValue(nfsv4.ReadFattr4FhExpireType, nfsv4.WriteFattr4FhExpireType),
	3:  ofValue(nfsv4.ReadFattr4Change, nfsv4.WriteFattr4Change),
	4:  ofValue(nfsv4.ReadFattr4Size, nfsv4.WriteFattr4Size),
	5:  ofValue(nfsv4.ReadFattr4LinkSupport, nfsv4.WriteFattr4LinkSupport),
	6:  ofValue(nfsv4.ReadFattr4SymlinkSupport, nfsv4.WriteFattr4SymlinkSupport),
	7:  ofValue(nfsv4.ReadFattr4NamedAttr, nfsv4.WriteFattr4NamedAttr),
	8:  ofPointer(nfsv4.ReadFattr4Fsid, nfsv4.WriteFattr4Fsid),
	9:  ofValue(nfsv4.ReadFattr4UniqueHandles, nfsv4.WriteFattr4UniqueHandles),
	10: ofValue(nfsv4.ReadFattr4LeaseTime, nfsv4.WriteFattr4LeaseTime),
	11: ofValue(nfsv4.ReadFattr4RdattrError, nfsv4.WriteFattr4RdattrError),
	12: ofValue(nfsv4.ReadFattr4Acl, nfsv4.WriteFattr4Acl),
	13: ofValue(nfsv4.ReadFattr4Aclsupport, nfsv4.WriteFattr4Aclsupport),
	14: ofValue(nfsv4.ReadFattr4Archive, nfsv4.WriteFattr4Archive),
	15: ofValue(nfsv4.ReadFattr4Cansettime, nfsv4.WriteFattr4Cansettime),
	16: ofValue(nfsv4.ReadFattr4CaseInsensitive, nfsv4.WriteFattr4CaseInsensitive),
	17: ofValue(nfsv4.ReadFattr4CasePreserving, nfsv4.WriteFattr4CasePreserving),
	18: ofValue(nfsv4.ReadFattr4ChownRestricted, nfsv4.WriteFattr4ChownRestricted),
	19: ofValue(nfsv4.ReadFattr4Filehandle, nfsv4.WriteFattr4Filehandle),
	20: ofValue(nfsv4.ReadFattr4Fileid, nfsv4.WriteFattr4Fileid),
	21: ofValue(nfsv4.ReadFattr4FilesAvail, nfsv4.WriteFattr4FilesAvail),
	22: ofValue(nfsv4.ReadFattr4FilesFree, nfsv4.WriteFattr4FilesFree),
	23: ofValue(nfsv4.ReadFattr4FilesTotal, nfsv4.WriteFattr4FilesTotal),
	24: ofPointer(nfsv4.ReadFattr4FsLocations, nfsv4.WriteFattr4FsLocations),
	25: ofValue(nfsv4.ReadFattr4Hidden, nfsv4.WriteFattr4Hidden),
	26: ofValue(nfsv4.ReadFattr4Homogeneous, nfsv4.WriteFattr4Homogeneous),
	27: ofValue(nfsv4.ReadFattr4Maxfilesize, nfsv4.WriteFattr4Maxfilesize),
	28: ofValue(nfsv4.ReadFattr4Maxlink, nfsv4.WriteFattr4Maxlink),
	29: ofValue(nfsv4.ReadFattr4Maxname, nfsv4.WriteFattr4Maxname),
	30: ofValue(nfsv4.ReadFattr4Maxread, nfsv4.WriteFattr4Maxread),
	31: ofValue(nfsv4.ReadFattr4Maxwrite, nfsv4.WriteFattr4Maxwrite),
	32: ofValue(nfsv4.ReadFattr4Mimetype, nfsv4.WriteFattr4Mimetype),
	33: ofValue(nfsv4.ReadFattr4Mode, nfsv4.WriteFattr4Mode),
	34: ofValue(nfsv4.ReadFattr4NoTrunc, nfsv4.WriteFattr4NoTrunc),
	35: ofValue(nfsv4.ReadFattr4Numlinks, nfsv4.WriteFattr4Numlinks),
	36: ofValue(nfsv4.ReadFattr4Owner, nfsv4.WriteFattr4Owner),
	37: ofValue(nfsv4.ReadFattr4OwnerGroup, nfsv4.WriteFattr4OwnerGroup),
	38: ofValue(nfsv4.ReadFattr4QuotaAvailHard, nfsv4.WriteFattr4QuotaAvailHard),
	39: ofValue(nfsv4.ReadFattr4QuotaAvailSoft, nfsv4.WriteFattr4QuotaAvailSoft),
	40: ofValue(nfsv4.ReadFattr4QuotaUsed, nfsv4.WriteFattr4QuotaUsed),
	41: ofPointer(nfsv4.ReadFattr4Rawdev, nfsv4.WriteFattr4Rawdev),
	42: ofValue(nfsv4.ReadFattr4SpaceAvail, nfsv4.WriteFattr4SpaceAvail),
	43: ofValue(nfsv4.ReadFattr4SpaceFree, nfsv4.WriteFattr4SpaceFree),
	44: ofValue(nfsv4.ReadFattr4SpaceTotal, nfsv4.WriteFattr4SpaceTotal),
	45: ofValue(nfsv4.ReadFattr4SpaceUsed, nfsv4.WriteFattr4SpaceUsed),
	46: ofValue(nfsv4.ReadFattr4System, nfsv4.WriteFattr4System),
	47: ofPointer(nfsv4.ReadFattr4TimeAccess, nfsv4.WriteFattr4TimeAccess),
	48: ofValue(nfsv4.ReadFattr4TimeAccessSet, nfsv4.WriteFattr4TimeAccessSet),
	49: ofPointer(nfsv4.ReadFattr4TimeBackup, nfsv4.WriteFattr4TimeBackup),
	50: ofPointer(nfsv4.ReadFattr4TimeCreate, nfsv4.WriteFattr4TimeCreate),
	51: ofPointer(nfsv4.ReadFattr4TimeDelta, nfsv4.WriteFattr4TimeDelta),
	52: ofPointer(nfsv4.ReadFattr4TimeMetadata, nfsv4.WriteFattr4TimeMetadata),
	53: ofPointer(nfsv4.ReadFattr4TimeModify, nfsv4.WriteFattr4TimeModify),
	54: ofValue(nfsv4.ReadFattr4TimeModifySet, nfsv4.WriteFattr4TimeModifySet),
	55: ofValue(nfsv4.ReadFattr4MountedOnFileid, nfsv4.WriteFattr4MountedOnFileid),
	56: ofPointer(nfsv4.ReadFattr4DirNotifDelay, nfsv4.WriteFattr4DirNotifDelay),
	57: ofPointer(nfsv4.ReadFattr4DirentNotifDelay, nfsv4.WriteFattr4DirentNotifDelay),
	58: ofPointer(nfsv4.ReadFattr4Dacl, nfsv4.WriteFattr4Dacl),
	59: ofPointer(nfsv4.ReadFattr4Sacl, nfsv4.WriteFattr4Sacl),
	60: ofPointer(nfsv4.ReadFattr4ChangePolicy, nfsv4.WriteFattr4ChangePolicy),
	61: ofPointer(nfsv4.ReadFattr4FsStatus, nfsv4.WriteFattr4FsStatus),
	62: ofValue(nfsv4.ReadFattr4FsLayoutTypes, nfsv4.WriteFattr4FsLayoutTypes),
	63: ofPointer(nfsv4.ReadFattr4LayoutHint, nfsv4.WriteFattr4LayoutHint),
	64: ofValue(nfsv4.ReadFattr4LayoutTypes, nfsv4.WriteFattr4LayoutTypes),
	65: ofValue(nfsv4.ReadFattr4LayoutBlksize, nfsv4.WriteFattr4LayoutBlksize),
	66: ofValue(nfsv4.ReadFattr4LayoutAlignment, nfsv4.WriteFattr4LayoutAlignment),
	67: ofPointer(nfsv4.ReadFattr4FsLocationsInfo, nfsv4.WriteFattr4FsLocationsInfo),
	68: ofPointer(nfsv4.ReadFattr4Mdsthreshold, nfsv4.WriteFattr4Mdsthreshold),
	69: ofPointer(nfsv4.ReadFattr4RetentionGet, nfsv4.WriteFattr4RetentionGet),
	70: ofPointer(nfsv4.ReadFattr4RetentionSet, nfsv4.WriteFattr4RetentionSet),
	71: ofPointer(nfsv4.ReadFattr4RetentevtGet, nfsv4.WriteFattr4RetentevtGet),
	72: ofPointer(nfsv4.ReadFattr4RetentevtSet, nfsv4.WriteFattr4RetentevtSet),
	73: ofValue(nfsv4.ReadFattr4RetentionHold, nfsv4.WriteFattr4RetentionHold),
	74: ofPointer(nfsv4.ReadFattr4ModeSetMasked, nfsv4.WriteFattr4ModeSetMasked),
	75: ofValue(nfsv4.ReadFattr4SuppattrExclcreat, nfsv4.WriteFattr4SuppattrExclcreat),
	76: ofValue(nfsv4.ReadFattr4FsCharsetCap, nfsv4.WriteFattr4FsCharsetCap),
	77: ofValue(nfsv4.ReadFattr4CloneBlksize, nfsv4.WriteFattr4CloneBlksize),
	78: ofValue(nfsv4.ReadFattr4SpaceFreed, nfsv4.WriteFattr4SpaceFreed),
	79: ofValue(nfsv4.ReadFattr4ChangeAttrType, nfsv4.WriteFattr4ChangeAttrType),
	80: ofPointer(nfsv4.ReadFattr4SecLabel, nfsv4.WriteFattr4SecLabel),
}

// Each attribute's value matches the oracle's, and is noted if it is watched.
func TestAttributes(t *testing.T) {
	for n, read := range attrOracles {
		if !Known.Has(n) {
			t.Errorf("attribute %d is not known", n)
			continue
		}
		rapid.Check(t, func(t *rapid.T) {
			value := generator{t: t}
			value.shape(attrs[n])
			checkOracle(t, value.b, read)
			g := generator{t: t}
			var mask Bitmap
			mask.add(int(n))
			g.word(uint32(len(mask)))
			for _, w := range mask {
				g.word(w)
			}
			g.word(uint32(len(value.b)))
			g.b = append(g.b, value.b...)
			var w Walker
			var d xdr.Decoder
			d.Reset(split(t, g.b), nil)
			w.run(&d, attributes)
			if d.Err() != nil || d.Left() > 0 {
				t.Fatalf("attribute %d: %v, %d bytes left", n, d.Err(), d.Left())
			}
			if want := 2; Watched.Has(n) {
				want++
				s := w.Spans[len(w.Spans)-1]
				if len(w.Spans) != want || s.Mark != Attr || s.Value != uint64(n) || string(s.B) != string(value.b) || s.Pos != len(g.b)-len(value.b) {
					t.Fatalf("%+v", w.Spans)
				}
			} else if len(w.Spans) != want {
				t.Fatalf("%+v", w.Spans)
			}
			if size, open := AttrSize(n); !open && len(value.b) > size {
				t.Fatalf("attribute %d has %d bytes, at most %d", n, len(value.b), size)
			}
		})
	}
	for n := range uint32(maxAttr + 2) {
		if want := n <= maxAttr && (n != 87); Known.Has(n) != want {
			t.Errorf("attribute %d: known is %v", n, Known.Has(n))
		}
	}
}
