-- Take vectors into one bucket, each only when it is newer than what is held. One call, one moment: no reader sees half.
-- KEYS  bulk, ids, index, schema, then the node key of each vector
-- ARGV  the bulk's header (32 bytes), schema hash, writer's time in ms, life of a node key after t_end in ms,
--       life of the bucket's keys in ms, then name and bytes of each vector
-- Returns one letter per vector: a accepted, x accepted but already too old for a node key, s the same again,
--       o older than what is held, r refused because the node key holds something of another program.
local call, sub, unpack = redis.call, string.sub, struct.unpack
local bulk, ids, index = KEYS[1], KEYS[2], KEYS[3]
local header, schema = ARGV[1], ARGV[2]
local now, life, keep = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local size = unpack('<I4', header, 9)
local HEAD = #header
local STAMP = 32

local held = call('STRLEN', bulk)
local slots = call('HLEN', index)
if held > 0 and call('GETRANGE', bulk, 0, HEAD - 1) ~= header then
  return redis.error_reply('FOREIGN ' .. bulk)
end
if held ~= HEAD + slots * size or call('EXISTS', ids) == 0 then
  -- New, or one of the three was evicted: begin again, the next scrape fills it.
  call('DEL', bulk, ids, index)
  call('SET', bulk, header)
  call('SET', ids, '')
  slots = 0
end

-- 1 when the vector is newer than the stamp at `at`, 0 when it is the same, -1 when it is older. Halves of 64-bit
-- numbers are compared, because a Lua number holds 53 bits.
local function rank(old, at, raw)
  local tl, th, ol, oh, p = unpack('<I4I4I4I4I4', old, at)
  local ntl, nth, nol, noh, np = unpack('<I4I4I4I4I4', raw, STAMP + 1)
  if nth ~= th then return nth > th and 1 or -1 end
  if ntl ~= tl then return ntl > tl and 1 or -1 end
  if np ~= p then return 1 end
  if noh ~= oh then return noh > oh and 1 or -1 end
  if nol ~= ol then return nol > ol and 1 or -1 end
  return 0
end

local letters = {}
for i = 5, #KEYS do
  local key, name, raw = KEYS[i], ARGV[2 * i - 4], ARGV[2 * i - 3]
  local letter
  local old = redis.pcall('GETRANGE', key, 0, STAMP + 19)
  if type(old) == 'table' or (old ~= '' and sub(old, 1, 4) ~= 'FPV1') then
    letter = 'r'
  else
    local newer = 1
    if #old == STAMP + 20 then newer = rank(old, STAMP + 1, raw) end
    if name ~= '' then
      local slot = call('HGET', index, name)
      local entry = sub(raw, STAMP + 1, STAMP + size)
      if not slot then
        call('HSET', index, name, slots)
        call('APPEND', ids, name .. '\n')
        call('APPEND', bulk, entry)
        slots = slots + 1
      else
        local at = HEAD + slot * size
        local slot_newer = rank(call('GETRANGE', bulk, at, at + 19), 1, raw)
        if slot_newer == 1 then call('SETRANGE', bulk, at, entry) end
        if slot_newer < newer then newer = slot_newer end
      end
    end
    local low, high = unpack('<I4I4', raw, STAMP + 1)
    local left = math.floor((high * 4294967296 + low) / 1000000) + life - now
    if newer == 1 then
      letter = left > 0 and 'a' or 'x'
      if left > 0 then call('SET', key, raw, 'PX', left) end
    else
      letter = newer == 0 and 's' or 'o'
      -- The same again restores a key that was evicted; it cannot lengthen a life that is counted from t_end.
      if newer == 0 and left > 0 then call('SET', key, raw, 'PX', left, 'NX') end
    end
  end
  letters[#letters + 1] = letter
end

call('SET', KEYS[4], schema, 'PX', keep)
call('PEXPIRE', bulk, keep)
call('PEXPIRE', ids, keep)
call('PEXPIRE', index, keep)
return table.concat(letters)
