-- queue, limit. Removes what is no job, and returns how many; then of the first that wait, the ready ones first, their
-- name in their set, the id, and the name of the job.
local queue, limit, found = ARGV[1], tonumber(ARGV[2]), {0}
local function look(key, names, first)
  local ids = {}
  for index, name in ipairs(names) do ids[index] = string.sub(name, first) end
  for index, text in ipairs(fields(JOBS, ids)) do
    local job, at = read(text), #found
    if job then
      found[at + 1], found[at + 2], found[at + 3] = names[index], ids[index], job.name
    else
      redis.call('ZREM', key, names[index])
      forget(ids[index], queue)
      found[1] = found[1] + 1
    end
  end
end
local ready = redis.call('ZRANGE', ready_key(1), 0, limit - 1)
look(ready_key(1), ready, 18)
if #ready < limit then
  look(scheduled_key(1), redis.call('ZRANGE', scheduled_key(1), 0, limit - #ready - 1), 1)
end
return found
