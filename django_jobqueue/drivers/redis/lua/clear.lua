-- queue, limit. Returns how many jobs were removed.
local queue, limit = ARGV[1], tonumber(ARGV[2])
local ready = redis.call('ZRANGE', ready_key(1), 0, limit - 1)
local removed = {}
for _, name in ipairs(ready) do
  redis.call('ZREM', ready_key(1), name)
  removed[#removed + 1] = string.sub(name, 18)
end
if #ready < limit then
  for _, id in ipairs(redis.call('ZRANGE', scheduled_key(1), 0, limit - #ready - 1)) do
    redis.call('ZREM', scheduled_key(1), id)
    removed[#removed + 1] = id
  end
end
local texts = fields(JOBS, removed)
for index, id in ipairs(removed) do
  local job = read(texts[index])
  forget(id, queue)
  if job and job.batch ~= '' then end_member(job.batch, id, CANCELLED) end
end
return #removed
