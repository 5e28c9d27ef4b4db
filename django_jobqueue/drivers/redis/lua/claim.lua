-- now, lease, limit, token: take expired reservations over, so that their worker can no longer settle them.
-- Returns the moment, how many entries could not be read, and of each job its id and form.
local now = clock(ARGV[1])
go_on_when_full()
local reserved_until, found = whole(now + tonumber(ARGV[2])), {whole(now), 0}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', RESERVED, '-inf', whole(now), 'LIMIT', 0, ARGV[3])) do
  local id, queue = string.sub(name, 1, 32), string.sub(name, 33)
  local job = find(id)
  if job and job.state == 'reserved' and job.queue == queue then
    job.token, job.reserved_until = ARGV[4], reserved_until
    local text = write(job)
    redis.call('HSET', JOBS, id, text)
    put_reserved(id, job)
    found[#found + 1] = id
    found[#found + 1] = text
  elseif job then
    redis.call('ZREM', RESERVED, name)
    if job.state == 'reserved' then put_reserved(id, job) end
  else
    set_aside(id, queue)
  end
end
found[2] = redis.call('HLEN', UNREADABLE)
return found
