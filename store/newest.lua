-- Set fields of a hash, each only when its time is not older than that of what is held.
-- KEYS  the hash
-- ARGV  life of the hash in ms, then of each field: name, time in ms, text. A value is the time, a space, the text.
-- Returns how many were taken.
local taken = 0
for i = 2, #ARGV, 3 do
  local old = redis.call('HGET', KEYS[1], ARGV[i])
  local held = old and tonumber(string.match(old, '^(%d+) '))
  if not held or tonumber(ARGV[i + 1]) >= held then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1] .. ' ' .. ARGV[i + 2])
    taken = taken + 1
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return taken
