package sluicectl

import (
	"sluice.dev/sluice/internal/names"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// pingResult is the result of ping, and its JSON.
type pingResult struct {
	URL         string  `json:"url"`
	NFS         string  `json:"nfs_version"`
	RoundTripUS float64 `json:"round_trip_us"`
	ConnectUS   float64 `json:"connect_us"`
	Transport   string  `json:"transport"`
	Provider    string  `json:"provider,omitempty"`
	Device      string  `json:"device,omitempty"`
	Version     int     `json:"rpc_rdma_version,omitempty"`
	Dialect     string  `json:"dialect,omitempty"`
	// With version 2: the common extensions, the transmissions in a message, and each side's
	// properties.
	Extensions         []string    `json:"extensions,omitzero"`
	CallTransmissions  int         `json:"call_transmissions,omitempty"`
	ReplyTransmissions int         `json:"reply_transmissions,omitempty"`
	Server             *sideResult `json:"server,omitempty"`
	Client             *sideResult `json:"client,omitempty"`

	// With --rfc5666: the alignment of padded calls.
	Padding  int  `json:"padding,omitempty"`
	ReadRead bool `json:"read_read,omitempty"`
	// Configured: the Connection Configuration Protocol has set the inline thresholds.
	Configured bool `json:"configured,omitempty"`

	InlineCall  int  `json:"inline_call,omitempty"`
	InlineReply int  `json:"inline_reply,omitempty"`
	Granted     int  `json:"credits_granted,omitempty"`
	Requested   int  `json:"credits_requested,omitempty"`
	IRD         int  `json:"ird,omitempty"`
	ORD         int  `json:"ord,omitempty"`
	CRC         bool `json:"crc,omitempty"`
	RemoteInv   bool `json:"remote_invalidation,omitempty"`

	windowless bool // the device cannot let the server invalidate
}

// negotiated returns the parameters of the connection, known after the first reply.
func (s *session) negotiated() pingResult {
	rdma, ok := s.conn.(*rpcrdma.Client)
	if !ok {
		return pingResult{URL: s.target.url, NFS: s.nfs.String(), Transport: "tcp"}
	}
	n := rdma.Negotiated()
	r := pingResult{
		URL: s.target.url, NFS: s.nfs.String(), Transport: "rdma", Provider: n.Attributes.Provider, Device: n.Attributes.Device,
		Version: n.Version, InlineCall: n.InlineCall, InlineReply: n.InlineReply, Granted: n.Granted, Requested: n.Requested,
		Padding: n.Padding, ReadRead: n.ReadRead, Configured: n.Configured, IRD: n.Attributes.IRD, ORD: n.Attributes.ORD, CRC: n.Attributes.CRC, RemoteInv: n.RemoteInvalidation,
		windowless: !n.Attributes.RemoteInvalidation,
	}
	if n.Version == wire.Version2 {
		r.CallTransmissions, r.ReplyTransmissions = n.MaxCallTransmissions, n.MaxReplyTransmissions
		r.Dialect, r.Extensions, r.Server, r.Client = dialects[n.Dialect], names.OfExtensions(n.Extensions), side(&n.Remote), side(&n.Own)
	}
	return r
}

// sideResult are the transport properties of one side, as JSON.
type sideResult struct {
	ReceiveSize int    `json:"receive_size"`
	Backward    string `json:"backward"`
	// CallTransmissions is the most of a call that it accepts, ReplyTransmissions the most of a
	// reply that it sends.
	CallTransmissions  int `json:"call_transmissions"`
	ReplyTransmissions int `json:"reply_transmissions"`
	// Placement is how many bytes of a receive bulk data may be placed in.
	Placement int `json:"placement"`
}

func side(p *rpcrdma.Properties) *sideResult {
	return &sideResult{
		ReceiveSize: p.ReceiveSize, Backward: names.Backward(p.Backward),
		CallTransmissions: p.RequestLimit, ReplyTransmissions: p.ResponseLimit, Placement: p.Targets,
	}
}
