-- Keep a chunk among its node's recent ones; the oldest go when they are too old or too many bytes.
-- KEYS  the node's hash of chunks
-- ARGV  start of the span in ns, the chunk, how much older than the newest a chunk may be in ns, bytes allowed,
--       life of the hash in ms
-- Returns 1 when the chunk is kept. Starts are compared as Lua numbers: they are whole seconds, far apart.
if #ARGV[2] > tonumber(ARGV[4]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
local starts = redis.call('HKEYS', KEYS[1])
table.sort(starts, function(a, b) return tonumber(a) > tonumber(b) end)
local oldest = tonumber(starts[1]) - tonumber(ARGV[3])
local left = tonumber(ARGV[4])
for i = 1, #starts do
  left = left - redis.call('HSTRLEN', KEYS[1], starts[i])
  if left < 0 or tonumber(starts[i]) < oldest then redis.call('HDEL', KEYS[1], starts[i]) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return redis.call('HEXISTS', KEYS[1], ARGV[1])
