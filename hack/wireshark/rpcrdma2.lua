-- A dissector of RPC-over-RDMA version 2, in RDMA Sends over iWARP, RoCE and InfiniBand. Wireshark itself knows version 1.
--
-- Version 2 has two dialects: RoundTrip, with transport properties and the round-trip extension (docs/protocol-v2.md), and
-- WorkingGroup (docs/protocol-v2-wg.md). The first messages of a connection show which one it is; the preference can say so, too.
--
--   wireshark -X lua_script:rpcrdma2.lua FILE
--
-- or put it in the folder of personal Lua plugins (Help, About, Folders). Display filters begin with rpcrdma2.

local p = Proto("rpcrdma2", "RPC-over-RDMA version 2")

local auto, round_trip, working_group = 0, 1, 2
p.prefs.dialect = Pref.enum("Dialect", auto, "Dialect of version 2", {
  { 1, "by the messages", auto }, { 2, "RoundTrip", round_trip }, { 3, "WorkingGroup", working_group },
}, false)

local procedures = {
  [0] = "RDMA2_MSG", [1] = "RDMA2_NOMSG", [4] = "RDMA2_ERROR", [5] = "RDMA2_OPTIONAL", [6] = "RDMA2_CONNPROP",
  [7] = "RDMA2_REQPROP", [8] = "RDMA2_RESPROP", [9] = "RDMA2_UPDPROP",
}
local types = {
  [4] = "ERROR", [5] = "GRANT", [6] = "CONNPROP_MIDDLE", [7] = "CONNPROP_FINAL", [8] = "CALL_EXTERNAL", [9] = "CALL_MIDDLE",
  [10] = "CALL_INLINE", [11] = "REPLY_EXTERNAL", [12] = "REPLY_MIDDLE", [13] = "REPLY_INLINE",
}
local wg_errors = {
  [1] = "ERR_VERS", [2] = "BAD_XDR", [3] = "BAD_PROPVAL", [4] = "INVAL_HTYPE", [5] = "INVAL_CONT", [6] = "READ_CHUNKS",
  [7] = "WRITE_CHUNKS", [8] = "SEGMENTS", [9] = "WRITE_RESOURCE", [10] = "REPLY_RESOURCE", [11] = "VERS_MISMATCH", [100] = "SYSTEM",
}
local wg_properties = { [1] = "SBSIZ", [2] = "RBSIZ", [3] = "RSSIZ", [4] = "RCSIZ", [5] = "BRS", [6] = "HOSTAUTH" }
local directions = { [0] = "Call", [1] = "Reply" }
local errors = {
  [1] = "ERR_VERS", [2] = "BAD_XDR", [3] = "INVALID_OPTION", [4] = "READ_CHUNKS", [5] = "WRITE_CHUNKS", [6] = "SEGMENTS",
  [7] = "WRITE_RESOURCE", [8] = "REPLY_RESOURCE", [9] = "INVALID_OPTION (draft -05)", [10] = "SYSTEM",
}
local operations = {
  [1] = "CONNPROP", [2] = "REQPROP", [3] = "RESPROP", [4] = "UPDPROP", [5] = "XMTREQ", [6] = "XMTRESP", [7] = "XMTCONT", [8] = "REPTERR",
}
local properties = { [1] = "RBSIZ", [2] = "BRS", [3] = "RTRSUPP", [4] = "RBSTRUCT", [5] = "REQRXLIM", [6] = "RESPSXLIM" }
local placements = { [1] = "EXRW", [2] = "TBSN", [3] = "CHOICE", [4] = "BYSIZE", [5] = "TOOSHORT", [6] = "NOITEM" }
local reports = {
  [1] = "BADHMT", [2] = "BADOMT", [3] = "BADCONT", [4] = "BADSEQ", [5] = "BADXID", [6] = "BADOFF", [7] = "BADTBSN", [8] = "BADPL",
}

local f, all = {}, {}
local function add(name, made)
  f[name] = made
  all[#all + 1] = made
end
local function dec(name, text, names) add(name, ProtoField.uint32("rpcrdma2." .. name, text, base.DEC, names)) end
local function hex(name, text) add(name, ProtoField.uint32("rpcrdma2." .. name, text, base.HEX)) end
local function bytes(name, text) add(name, ProtoField.bytes("rpcrdma2." .. name, text)) end

hex("xid", "XID")
dec("version", "Version")
dec("credit", "Credits")
dec("proc", "Procedure", procedures)
dec("direction", "Direction", directions)
hex("inv_handle", "Handle to invalidate")
dec("read.position", "Position")
dec("write.segments", "Segments of a Write chunk")
dec("reply.segments", "Segments of the Reply chunk")
hex("handle", "Handle")
dec("length", "Length")
add("offset", ProtoField.uint64("rpcrdma2.offset", "Offset", base.HEX))

dec("error", "Error", errors)
dec("error.low", "Lowest version")
dec("error.high", "Highest version")
dec("error.most", "The most that are accepted")
dec("error.index", "Write chunk, from 1")
dec("error.needed", "Bytes needed")

dec("operation", "Operation", operations)
dec("optinfo.length", "Length of optinfo")
bytes("optinfo.rest", "More optinfo")

dec("properties", "Properties")
dec("property", "Property", properties)
dec("property.length", "Length of the value")
dec("property.number", "Value")
bytes("property.value", "Value")
hex("property.fixed", "Never change")
hex("property.done", "Done")
hex("property.rejected", "Rejected")
dec("buffer.length", "Length of a receive buffer")
dec("buffer.count", "Segments in a row")
dec("buffer.segment", "Length of each")
dec("buffer.align", "Alignment")
hex("buffer.flags", "Flags (1: placement-targetable)")

dec("item.position", "Position")
dec("item.length", "Length")
dec("item.placement", "Placement", placements)
dec("item.offset", "Offset in the first buffer segment")
dec("item.number", "Buffer segment")
dec("set.begin", "Results of the request's bytes from")
dec("set.end", "up to and without")
dec("result.least", "Least length")
dec("result.placement", "Placement", placements)
dec("result.threshold", "Send-based below")
dec("count", "Transmissions of the group")
dec("rsbuf", "Transmissions that the reply may have")
dec("number", "Number of this transmission")
dec("initial", "Operation of the first transmission", operations)
dec("pslen", "Length of the payload part")

dec("report", "Report", reports)
hex("report.bad.xid", "Bad: XID")
dec("report.bad.direction", "Bad: direction", directions)
dec("report.bad.number", "Bad: transmission")
hex("report.lead.xid", "Lead: XID")
dec("report.lead.direction", "Lead: direction", directions)
dec("report.lead.number", "Lead: transmission")
dec("report.expected", "Expected")
dec("report.found", "Found")
dec("report.min", "Lowest")
dec("report.max", "Highest")

dec("limit", "Limit of messages sent")
dec("type", "Header type", types)
dec("remaining", "Bytes that remain")
dec("wg_error", "Error", wg_errors)
dec("wg_property", "Property", wg_properties)

bytes("payload", "Payload")
bytes("data", "Zeros and bulk data")
p.fields = all

local malformed = ProtoExpert.new("rpcrdma2.malformed", "Malformed header", expert.group.MALFORMED, expert.severity.ERROR)
p.experts = { malformed }

-- A reader goes through a message word by word. What is wrong is thrown as a table with the reason.
local Reader = {}
Reader.__index = Reader

function Reader:bad(...) error({ reason = string.format(...) }, 0) end

function Reader:need(n)
  if n > self.stop - self.at then self:bad("%d bytes are needed at %d, the %s ends at %d", n, self.at, self.what, self.stop) end
end

function Reader:peek()
  self:need(4)
  return self.buf(self.at, 4):uint()
end

-- u32 adds the next word to a tree.
function Reader:u32(tree, name)
  local v = self:peek()
  if tree and name then tree:add(f[name], self.buf(self.at, 4)) end
  self.at = self.at + 4
  return v
end

function Reader:raw(tree, name, n)
  self:need(n)
  if n > 0 then tree:add(f[name], self.buf(self.at, n)) end
  self.at = self.at + n
end

function Reader:present()
  local v = self:u32()
  if v > 1 then self:bad("the word at %d is %d, must be 0 or 1", self.at - 4, v) end
  return v == 1
end

-- counted reads a count, and as many of what read reads.
function Reader:counted(read, tree, name)
  for _ = 1, self:u32(tree, name) do
    self:need(4)
    read()
  end
end

-- branch makes a subtree of what read reads.
function Reader:branch(tree, text, read)
  local from, sub = self.at, tree:add(p, self.buf(self.at), text)
  read(sub)
  sub:set_len(self.at - from)
end

function Reader:segment(tree)
  self:branch(tree, "Segment", function(sub)
    self:u32(sub, "handle")
    self:u32(sub, "length")
    self:need(8)
    sub:add(f["offset"], self.buf(self.at, 8))
    self.at = self.at + 8
  end)
end

function Reader:segments(tree, name)
  self:counted(function() self:segment(tree) end, tree, name)
end

function Reader:reads(tree)
  while self:present() do
    self:branch(tree, "Read segment", function(sub)
      self:u32(sub, "read.position")
      self:segment(sub)
    end)
    self.chunks = true
  end
end

function Reader:writes(tree)
  while self:present() do
    self:branch(tree, "Write chunk", function(sub) self:segments(sub, "write.segments") end)
    self.chunks = true
  end
end

function Reader:reply(tree)
  if self:present() then
    self:branch(tree, "Reply chunk", function(sub) self:segments(sub, "reply.segments") end)
    self.chunks = true
  end
end

function Reader:lists(tree)
  self:u32(tree, "direction")
  self:u32(tree, "inv_handle")
  self:reads(tree)
  self:writes(tree)
  self:reply(tree)
end

-- fault reads an error. The codes of READ_CHUNKS to REPLY_RESOURCE begin at first.
function Reader:fault(tree, name, names, first)
  local code = self:u32(tree, name)
  if code == 1 then
    self:u32(tree, "error.low")
    self:u32(tree, "error.high")
  elseif code >= first and code <= first + 2 then
    self:u32(tree, "error.most")
  elseif code == first + 3 then
    self:u32(tree, "error.index")
    self:u32(tree, "error.needed")
  elseif code == first + 4 then
    self:u32(tree, "error.needed")
  end
  return names[code] or "error " .. code
end

function Reader:buffer(tree)
  self:u32(tree, "buffer.length")
  self:counted(function()
    self:branch(tree, "Group of segments", function(sub)
      for _, name in ipairs { "buffer.count", "buffer.segment", "buffer.align", "buffer.flags" } do self:u32(sub, name) end
    end)
  end)
end

function Reader:property(tree)
  local id = self:peek()
  local names, name = properties, "property"
  if self.group then names, name = wg_properties, "wg_property" end
  self:branch(tree, "Property " .. (names[id] or string.format("%#x", id)), function(sub)
    self:u32(sub, name)
    local n = self:u32(sub, "property.length")
    local stop = self.at + n
    self:need(n)
    if n == 0 then
      sub:append_text(": the default")
    elseif id == 4 and not self.group then
      local inner = setmetatable({ buf = self.buf, at = self.at, stop = stop, what = "property" }, Reader)
      inner:buffer(sub)
      self.at = stop
    elseif n == 4 and names[id] then
      self:u32(sub, "property.number")
    else
      self:raw(sub, "property.value", n)
    end
    self:need(-n % 4)
    self.at = self.at + -n % 4
  end)
end

function Reader:properties(tree)
  self:counted(function() self:property(tree) end, tree, "properties")
end

function Reader:subset(tree, name)
  self:counted(function() self:u32(tree, name) end)
end

Reader[6] = function(self, tree)
  self:properties(tree)
  self:subset(tree, "property.fixed")
end
Reader[7] = Reader.properties
Reader[8] = function(self, tree)
  self:subset(tree, "property.done")
  self:subset(tree, "property.rejected")
  self:properties(tree)
end
Reader[9] = Reader.properties

function Reader:items(tree)
  self:counted(function()
    self:branch(tree, "Bulk item", function(sub)
      self:u32(sub, "item.position")
      self:u32(sub, "item.length")
      local how = self:u32(sub, "item.placement")
      sub:append_text(": " .. (placements[how] or how))
      if how == 1 then
        self:segments(sub)
      elseif how == 2 then
        self:u32(sub, "item.offset")
        self:counted(function() self:u32(sub, "item.number") end)
      elseif how < 5 or how > 6 then
        self:bad("an item cannot be placed %d", how)
      end
      -- What is placed is missing in the payload stream.
      self.chunks = self.chunks or how <= 2
    end)
  end)
end

function Reader:sets(tree)
  self:counted(function()
    self:branch(tree, "Set of results", function(set)
      self:u32(set, "set.begin")
      self:u32(set, "set.end")
      self:counted(function()
        self:branch(set, "Result", function(sub)
          self:u32(sub, "result.least")
          local how = self:u32(sub, "result.placement")
          sub:append_text(": " .. (placements[how] or how))
          if how == 4 then self:u32(sub, "result.threshold") end
          if how == 1 or how == 3 or how == 4 then
            self:segments(sub)
          elseif how ~= 2 then
            self:bad("a result cannot be directed to %d", how)
          end
        end)
      end)
    end)
  end)
end

function Reader:transmission(tree, name)
  for _, part in ipairs { "xid", "direction", "number" } do self:u32(tree, "report." .. name .. "." .. part) end
end

-- Each of these returns the length of the payload part and whether it is a whole stream.
local transmit = {}

transmit[5] = function(self, tree)
  self:items(tree)
  self:sets(tree)
  local count = self:u32(tree, "count")
  self:u32(tree, "rsbuf")
  return self:u32(tree, "pslen"), count == 1
end

transmit[6] = function(self, tree)
  self:items(tree)
  local count = self:u32(tree, "count")
  return self:u32(tree, "pslen"), count == 1
end

transmit[7] = function(self, tree)
  self:u32(tree, "number")
  self:u32(tree, "initial")
  return self:u32(tree, "pslen"), false
end

transmit[8] = function(self, tree)
  self:transmission(tree, "bad")
  if self:present() then self:transmission(tree, "lead") end
  local code = self:u32(tree, "report")
  if code == 1 or code == 2 or code == 4 or code == 5 then
    self:u32(tree, "report.expected")
    self:u32(tree, "report.found")
  elseif code >= 6 and code <= 8 then
    for _, name in ipairs { "report.found", "report.min", "report.max" } do self:u32(tree, name) end
  elseif code ~= 3 then
    self:bad("report %d is not known", code)
  end
  return 0, false
end

function Reader:option(tree)
  self:u32(tree, "direction")
  local operation = self:u32(tree, "operation")
  local n = self:u32(tree, "optinfo.length")
  local stop = self.at + n
  self:need(n + -n % 4)
  local inner = setmetatable({ buf = self.buf, at = self.at, stop = stop, what = "optinfo" }, Reader)
  local size, whole = 0, false
  if transmit[operation] then
    size, whole = transmit[operation](inner, tree)
  elseif operation >= 1 and operation <= 4 then
    inner[operation + 5](inner, tree)
  end
  inner:raw(tree, "optinfo.rest", stop - inner.at)
  self.at, self.chunks = stop + -n % 4, inner.chunks
  return operation, size, whole
end

local rpc = Dissector.get("rpc")
local opcode = Field.new("iwarp_rdma.opcode")
local bth_opcode = Field.new("infiniband.bth.opcode")

-- stream shows n bytes of payload: as an RPC message if it is a whole one with nothing taken out.
function Reader:stream(tree, pinfo, root, n, whole)
  self:need(n)
  if n > 0 and whole and not self.chunks then
    rpc:call(self.buf(self.at, n):tvb(), pinfo, root)
    self.at = self.at + n
  else
    self:raw(tree, "payload", n)
  end
  self:raw(tree, "data", self.stop - self.at)
end

-- Each of these reads a header type of the working group's dialect, and returns whether a payload follows, and whether it is a whole
-- stream if no parts came before.
local header = {}

header[4] = function(self, tree) self.info = self.info .. " " .. self:fault(tree, "wg_error", wg_errors, 6) end
header[5] = function() end
header[6] = Reader.properties
header[7] = Reader.properties
header[8] = function(self, tree)
  self:u32(tree, "inv_handle")
  self:branch(tree, "Call chunk", function(sub) self:reads(sub) end)
  self:reads(tree)
  self:writes(tree)
  self:reply(tree)
end
header[9] = function(self, tree)
  self:u32(tree, "remaining")
  return true, false
end
header[10] = function(self, tree)
  self:u32(tree, "inv_handle")
  self:reads(tree)
  self:writes(tree)
  self:reply(tree)
  return true, true
end
header[11] = function(self, tree)
  self:writes(tree)
  self:reply(tree)
end
header[12] = header[9]
header[13] = function(self, tree)
  self:writes(tree)
  return true, true
end

function Reader:group_message(tree, pinfo, root)
  self.group = true
  self:u32(tree, "xid")
  self:u32(tree, "version")
  self:u32(tree, "limit")
  local kind = self:u32(tree, "type")
  self.info = "RDMA2_" .. types[kind]
  local payload, whole = header[kind](self, tree)
  tree:append_text(", " .. self.info)
  tree:set_len(self.at)
  pinfo.cols.protocol = "RPC/RDMA 2"
  pinfo.cols.info = self.info
  self:stream(tree, pinfo, root, payload and self.stop - self.at or 0, whole and self.complete)
end

function Reader:message(tree, pinfo, root)
  self:u32(tree, "xid")
  self:u32(tree, "version")
  self:u32(tree, "credit")
  local proc = self:u32(tree, "proc")
  local info = procedures[proc]
  if proc <= 1 then
    self:lists(tree)
  elseif proc == 4 then
    info = info .. " " .. self:fault(tree, "error", errors, 4)
  end
  local size, whole = 0, false
  if proc == 0 then
    size, whole = self.stop - self.at, true
  elseif proc == 5 then
    local operation
    operation, size, whole = self:option(tree)
    info = info .. " " .. (operations[operation] or operation)
  elseif proc >= 6 then
    self[proc](self, tree)
  end
  tree:append_text(", " .. info)
  tree:set_len(self.at)
  pinfo.cols.protocol = "RPC/RDMA 2"
  pinfo.cols.info = info
  self:stream(tree, pinfo, root, size, whole)
end

-- The dialects of connections, and the messages that end one of several parts, by their XIDs and senders.
local dialects, open, ends

function p.init() dialects, open, ends = {}, {}, {} end

-- connection is the same for both directions.
local function connection(pinfo)
  local a, b = tostring(pinfo.src) .. ":" .. pinfo.src_port, tostring(pinfo.dst) .. ":" .. pinfo.dst_port
  if pinfo.dst_port == 4791 then a, b = tostring(pinfo.src), tostring(pinfo.dst) end -- RoCE: the source port is any
  return a < b and a .. " " .. b or b .. " " .. a
end

-- dialect finds the dialect of a message. The numbers 4 to 9 are in both.
local function dialect(buf, pinfo)
  if p.prefs.dialect ~= auto then return p.prefs.dialect end
  local key, kind = connection(pinfo), buf(12, 4):uint()
  if kind <= 1 then
    dialects[key] = round_trip
  elseif kind >= 10 or kind == 5 and buf:len() == 16 then
    dialects[key] = working_group
  elseif not dialects[key] and kind == 7 then -- RDMA2_REQPROP is never the first
    dialects[key] = working_group
  end
  return dialects[key] or round_trip
end

-- complete reports whether an inline message is a whole one.
local function complete(buf, pinfo)
  local kind = buf(12, 4):uint()
  local key = tostring(pinfo.src) .. " " .. pinfo.src_port .. " " .. buf(0, 4):uint() .. (kind >= 11 and " reply" or " call")
  if not pinfo.visited then
    if kind == 9 or kind == 12 then
      open[key] = true
    elseif open[key] then
      open[key], ends[pinfo.number .. key] = nil, true
    end
  end
  return not ends[pinfo.number .. key]
end

function p.dissector(buf, pinfo, root)
  local tree = root:add(p, buf())
  local r = setmetatable({ buf = buf, at = 0, stop = buf:len(), what = "message" }, Reader)
  local read = r.message
  if dialect(buf, pinfo) == working_group then
    read, r.complete = r.group_message, complete(buf, pinfo)
  end
  local ok, err = pcall(read, r, tree, pinfo, root)
  if not ok then
    if type(err) ~= "table" then error(err, 0) end
    tree:add_proto_expert_info(malformed, err.reason)
  end
  return buf:len()
end

-- The beginning of a Send is taken for a message if its version and procedure are right. Other operations carry bare data.
local function message(buf, pinfo, root)
  if buf:len() < 16 or buf(4, 4):uint() ~= 2 then return false end
  local kind = buf(12, 4):uint()
  if not procedures[kind] and not types[kind] or buf:len() < 20 and kind ~= 5 then return false end
  if dialect(buf, pinfo) == round_trip and not procedures[kind] then return false end
  p.dissector(buf, pinfo, root)
  return true
end

p:register_heuristic("iwarp_ddp_rdmap", function(buf, pinfo, root)
  local ops = { opcode() }
  local op = #ops > 0 and ops[#ops].value or 3
  return op >= 3 and op <= 6 and message(buf, pinfo, root)
end)

-- Reliable connections: the first packet of a Send, or the only one, without and with immediate data or an invalidation.
local sends = { [0] = true, [4] = true, [5] = true, [23] = true }

p:register_heuristic("infiniband.payload", function(buf, pinfo, root)
  local op = bth_opcode()
  return op ~= nil and sends[op.value] == true and message(buf, pinfo, root)
end)
