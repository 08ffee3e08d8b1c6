-- A dissector of RPC-over-RDMA version 2 with transport properties and the round-trip extension, as docs/protocol-v2.md has it,
-- in RDMA Sends over iWARP. Wireshark itself knows version 1.
--
--   wireshark -X lua_script:rpcrdma2.lua FILE
--
-- or put it in the folder of personal Lua plugins (Help, About, Folders). Display filters begin with rpcrdma2.

local p = Proto("rpcrdma2", "RPC-over-RDMA version 2")

local procedures = {
  [0] = "RDMA2_MSG", [1] = "RDMA2_NOMSG", [4] = "RDMA2_ERROR", [5] = "RDMA2_OPTIONAL", [6] = "RDMA2_CONNPROP",
  [7] = "RDMA2_REQPROP", [8] = "RDMA2_RESPROP", [9] = "RDMA2_UPDPROP",
}
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

function Reader:lists(tree)
  self:u32(tree, "direction")
  self:u32(tree, "inv_handle")
  while self:present() do
    self:branch(tree, "Read segment", function(sub)
      self:u32(sub, "read.position")
      self:segment(sub)
    end)
    self.chunks = true
  end
  while self:present() do
    self:branch(tree, "Write chunk", function(sub) self:segments(sub, "write.segments") end)
    self.chunks = true
  end
  if self:present() then
    self:branch(tree, "Reply chunk", function(sub) self:segments(sub, "reply.segments") end)
    self.chunks = true
  end
end

function Reader:fault(tree)
  local code = self:u32(tree, "error")
  if code == 1 then
    self:u32(tree, "error.low")
    self:u32(tree, "error.high")
  elseif code >= 4 and code <= 6 then
    self:u32(tree, "error.most")
  elseif code == 7 then
    self:u32(tree, "error.index")
    self:u32(tree, "error.needed")
  elseif code == 8 then
    self:u32(tree, "error.needed")
  end
  return errors[code] or "error " .. code
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
  self:branch(tree, "Property " .. (properties[id] or string.format("%#x", id)), function(sub)
    self:u32(sub, "property")
    local n = self:u32(sub, "property.length")
    local stop = self.at + n
    self:need(n)
    if n == 0 then
      sub:append_text(": the default")
    elseif id == 4 then
      local inner = setmetatable({ buf = self.buf, at = self.at, stop = stop, what = "property" }, Reader)
      inner:buffer(sub)
      self.at = stop
    elseif n == 4 and properties[id] then
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

function Reader:message(tree, pinfo, root)
  self:u32(tree, "xid")
  self:u32(tree, "version")
  self:u32(tree, "credit")
  local proc = self:u32(tree, "proc")
  local info = procedures[proc]
  if proc <= 1 then
    self:lists(tree)
  elseif proc == 4 then
    info = info .. " " .. self:fault(tree)
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

function p.dissector(buf, pinfo, root)
  local tree = root:add(p, buf())
  local r = setmetatable({ buf = buf, at = 0, stop = buf:len(), what = "message" }, Reader)
  local ok, err = pcall(r.message, r, tree, pinfo, root)
  if not ok then
    if type(err) ~= "table" then error(err, 0) end
    tree:add_proto_expert_info(malformed, err.reason)
  end
  return buf:len()
end

-- The beginning of a Send is taken for a message if its version and procedure are right. Other operations carry bare data.
local function heuristic(buf, pinfo, root)
  if buf:len() < 20 or buf(4, 4):uint() ~= 2 or not procedures[buf(12, 4):uint()] then return false end
  local ops = { opcode() }
  local op = #ops > 0 and ops[#ops].value or 3
  if op < 3 or op > 6 then return false end
  p.dissector(buf, pinfo, root)
  return true
end

p:register_heuristic("iwarp_ddp_rdmap", heuristic)
