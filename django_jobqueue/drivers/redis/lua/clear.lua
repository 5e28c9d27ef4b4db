-- queue, limit. Returns how many jobs were removed.
local queue, limit = ARGV[1], tonumber(ARGV[2])
local ready = redis.call('ZRANGE', ready_key(1), 0, limit - 1)
for _, name in ipairs(ready) do
  redis.call('ZREM', ready_key(1), name)
  forget(string.sub(name, 18), queue)
end
if #ready == limit then return limit end
local scheduled = redis.call('ZRANGE', scheduled_key(1), 0, limit - #ready - 1)
for _, id in ipairs(scheduled) do
  redis.call('ZREM', scheduled_key(1), id)
  forget(id, queue)
end
return #ready + #scheduled
