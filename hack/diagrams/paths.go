package main

// Lanes of several paths.
var (
	client    = lane{"client", "Linux"}
	responder = lane{"responder", "pkg/rpcrdma"}
	nfsServer = lane{"NFS server", "pkg/nfs/server"}
)

// sequences are the paths of docs/design.md, by file name.
var sequences = map[string]sequence{
	"read": {
		title: "A READ of a volume by RPC-over-RDMA version 1",
		lanes: []lane{
			client,
			{"provider", "pkg/rdma/iwarp"},
			responder,
			nfsServer,
			{"file system", "pkg/nfs/vfs"},
		},
		steps: []step{
			{from: 0, to: 1, text: "Send: READ, Write chunk"},
			{from: 1, to: 2, text: "batch of completions"},
			{from: 2, to: 2, text: "wire: parse and bound", more: "binding: plan the reply"},
			{from: 2, to: 2, text: "bufpool: reserve bulk bytes"},
			{from: 2, to: 3, text: "call, reply plan"},
			{from: 3, to: 4, text: "pread"},
			{from: 4, to: 3, text: "data, into a pooled buffer", data: true},
			{from: 3, to: 2, text: "reply, data as an item"},
			{from: 2, to: 1, text: "RDMA Writes, Send: one batch"},
			{from: 1, to: 0, text: "RDMA Write", data: true},
			{from: 1, to: 0, text: "Send: reply, invalidates"},
			{from: 1, to: 2, text: "completion of the Send"},
			{from: 2, to: 2, text: "release buffer and reservation"},
		},
	},
	"write": {
		title: "A WRITE through the proxy by RPC-over-RDMA version 1",
		lanes: []lane{
			client,
			responder,
			{"proxy", "pkg/nfs/proxy"},
			{"backend connection", "pkg/nfs/proxy/upstream"},
			{"NFS server", "TCP"},
		},
		steps: []step{
			{from: 0, to: 1, text: "Send: WRITE, Read chunk"},
			{from: 1, to: 1, text: "wire: parse and bound", more: "bufpool: reserve bulk bytes"},
			{from: 1, to: 0, text: "RDMA Read"},
			{from: 0, to: 1, text: "data, into pooled memory", data: true},
			{from: 1, to: 2, text: "call, data as an item"},
			{from: 2, to: 2, text: "access rules; rewrite:", more: "roots, handles, identities"},
			{from: 2, to: 3, text: "call; no goroutine waits"},
			{from: 3, to: 4, text: "one vectored write, same XID", data: true},
			{from: 4, to: 3, text: "reply, in any order"},
			{from: 3, to: 2, text: "reply"},
			{from: 2, to: 2, text: "rewrite: handles, masks"},
			{from: 2, to: 1, text: "reply"},
			{from: 1, to: 0, text: "Send: reply"},
			{from: 1, to: 1, text: "release memory and credit"},
		},
	},
	"group": {
		title: "A WRITE and its reply as transmission groups of version 2",
		lanes: []lane{
			{"requester", "pkg/rpcrdma"},
			{"planner", "pkg/rpcrdma/group"},
			{"assembler", "pkg/rpcrdma/group"},
			responder,
			nfsServer,
		},
		steps: []step{
			{from: 0, to: 0, text: "binding: items of the call,", more: "bound of the reply"},
			{from: 0, to: 1, text: "payload, items, receives"},
			{from: 1, to: 1, text: "place items in the targets", more: "of the peer's receives"},
			{from: 1, to: 2, text: "XMTREQ: payload, placement"},
			{from: 1, to: 2, text: "XMTCONT: data", data: true},
			{from: 2, to: 2, text: "check order and bounds,", more: "collect slices, copy nothing"},
			{from: 2, to: 3, text: "call, data as items"},
			{from: 3, to: 4, text: "call, reply plan"},
			{from: 4, to: 3, text: "reply"},
			{from: 3, to: 0, text: "XMTRESP: one Send, or more with XMTCONT"},
			{from: 0, to: 0, text: "receives return", more: "to the queue"},
		},
	},
	"export": {
		title: "From an NFSExport to a listener",
		lanes: []lane{
			{"API server", "NFSExport"},
			{"operator", "internal/operator"},
			{"kubelet", "node"},
			{"gateway", "internal/gateway"},
			client,
		},
		steps: []step{
			{from: 0, to: 1, text: "watch: NFSExport, NFSGateway"},
			{from: 1, to: 1, text: "plan: accept, address, port", more: "objects: Service, ConfigMap"},
			{from: 1, to: 0, text: "apply objects; annotate pods"},
			{from: 0, to: 2, text: "ConfigMap, refreshed because of the annotation"},
			{from: 2, to: 3, text: "new file"},
			{from: 3, to: 3, text: "api/config: decode, check", more: "then, for each export:"},
			{from: 3, to: 3, text: "memory, domain, backend,", more: "servers, listeners"},
			{from: 1, to: 3, text: "GET /status: hash, listeners, backend"},
			{from: 1, to: 1, text: "report: conditions"},
			{from: 1, to: 0, text: "status: Ready, mount"},
			{from: 4, to: 3, text: "mount by Service IP"},
		},
	},
}
