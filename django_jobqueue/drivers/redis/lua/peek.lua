-- limit. Returns of the first ready jobs the id, form, body and errors.
local found = {}
for _, name in ipairs(redis.call('ZRANGE', ready_key(1), 0, ARGV[1] - 1)) do
  local id, at = string.sub(name, 18), #found
  found[at + 1], found[at + 2] = id, redis.call('HGET', JOBS, id) or ''
  found[at + 3], found[at + 4] = redis.call('HGET', BODIES, id) or '', redis.call('HGET', ERRORS, id) or ''
end
return found
