package server

import (
	"bytes"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/nfs/idmap"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/xdr"
)

// owners returns the users or groups of this host.
func owners(group bool) *idmap.Map {
	if group {
		return idmap.Groups
	}
	return idmap.Users
}

// idDomain is the domain of names of owners; "" means numbers alone.
func (c *compound) idDomain() string {
	if c.s == nil || c.s.v4 == nil {
		return ""
	}
	return c.s.v4.idDomain
}

// putOwner encodes a user or group: by its name at idDomain, or as its number if it has none (RFC
// 8881 section 5.9).
func (c *compound) putOwner(e *xdr.Encoder, id uint32, group bool) {
	if domain := c.idDomain(); domain != "" {
		if name, ok := owners(group).Name(id); ok {
			e.String(name + "@" + domain)
			return
		}
	}
	var digits [10]byte
	e.Opaque(strconv.AppendUint(digits[:0], uint64(id), 10))
}

// ownerID returns the number of a user or group: the reverse of putOwner. Numbers are always taken.
func (c *compound) ownerID(name []byte, group bool) (uint32, nfs4.Status) {
	if len(name) == 0 {
		return 0, nfs4.ErrInval
	}
	if at := bytes.LastIndexByte(name, '@'); at >= 0 && c.idDomain() != "" {
		if id, ok := owners(group).ID(name[:at]); ok && strings.EqualFold(string(name[at+1:]), c.idDomain()) {
			return id, nfs4.OK
		}
		return 0, nfs4.ErrBadOwner
	}
	if len(name) > 10 || name[0] == '0' && len(name) > 1 {
		return 0, nfs4.ErrBadOwner
	}
	id := uint64(0)
	for _, digit := range name {
		if digit < '0' || digit > '9' {
			return 0, nfs4.ErrBadOwner
		}
		id = id*10 + uint64(digit-'0')
	}
	if id >= 1<<32-1 { // the last one means no id
		return 0, nfs4.ErrBadOwner
	}
	return uint32(id), nfs4.OK
}
