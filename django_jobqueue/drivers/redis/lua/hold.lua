-- now, lease, ids and tokens: hold on at least so long to what is about to be written down elsewhere.
-- Returns the moment, and of each that is still held its id, form and errors.
local now = clock(ARGV[1])
go_on_when_full()
local least, found = now + tonumber(ARGV[2]), {whole(now)}
for at = 3, #ARGV, 2 do
  local id = ARGV[at]
  local job = held(id, ARGV[at + 1])
  if job then
    if tonumber(job.reserved_until) < least then
      job.reserved_until = whole(least)
      keep(id, job)
      put_reserved(id, job)
    end
    local next = #found
    found[next + 1], found[next + 2], found[next + 3] = id, write(job), redis.call('HGET', ERRORS, id) or ''
  end
end
return found
