-- Free the slots of nodes that have been silent for long, measured against the newest node of the bucket.
-- KEYS  bulk, ids, index, events, verdicts
-- ARGV  the bulk's header, how much older than the newest a node may be in ms
-- Returns how many nodes were dropped.
local bulk, ids, index = KEYS[1], KEYS[2], KEYS[3]
local header, allowed = ARGV[1], tonumber(ARGV[2])
local size = struct.unpack('<I4', header, 9)
local raw = redis.call('GET', bulk)
if not raw or string.sub(raw, 1, #header) ~= header then return 0 end

local names = {}
for name in string.gmatch(redis.call('GET', ids) or '', '([^\n]*)\n') do names[#names + 1] = name end
if #raw ~= #header + #names * size then return 0 end

local times, newest = {}, 0
for i = 1, #names do
  local low, high = struct.unpack('<I4I4', raw, #header + (i - 1) * size + 1)
  times[i] = (high * 4294967296 + low) / 1000000
  if times[i] > newest then newest = times[i] end
end

local kept, parts = {}, {header}
for i = 1, #names do
  if times[i] >= newest - allowed then
    kept[#kept + 1] = names[i]
    local at = #header + (i - 1) * size
    parts[#parts + 1] = string.sub(raw, at + 1, at + size)
  else
    redis.call('HDEL', KEYS[4], names[i])
    redis.call('HDEL', KEYS[5], names[i])
  end
end
if #kept == #names then return 0 end

local left = redis.call('PTTL', bulk)
redis.call('SET', bulk, table.concat(parts))
redis.call('SET', ids, table.concat(kept, '\n') .. '\n')
redis.call('DEL', index)
for i = 1, #kept do redis.call('HSET', index, kept[i], i - 1) end
for i = 1, 3 do
  if left > 0 then redis.call('PEXPIRE', KEYS[i], left) end
end
return #names - #kept
