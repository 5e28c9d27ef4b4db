-- limit. Returns of the first jobs that are not reserved, the ready ones first, the id, form, body and errors.
local limit, found = tonumber(ARGV[1]), {}
local function show(id)
  local at = #found
  found[at + 1], found[at + 2] = id, redis.call('HGET', JOBS, id) or ''
  found[at + 3], found[at + 4] = redis.call('HGET', BODIES, id) or '', redis.call('HGET', ERRORS, id) or ''
end
local ready = redis.call('ZRANGE', ready_key(1), 0, limit - 1)
for _, name in ipairs(ready) do show(string.sub(name, 18)) end
if #ready < limit then
  for _, id in ipairs(redis.call('ZRANGE', scheduled_key(1), 0, limit - #ready - 1)) do show(id) end
end
return found
