-- now, retry_after, ids and tokens. Returns the ids that are no longer held.
local now = clock(ARGV[1])
go_on_when_full()
local reserved_until, lost = whole(now + tonumber(ARGV[2])), {}
for at = 3, #ARGV, 2 do
  local id = ARGV[at]
  local job = held(id, ARGV[at + 1])
  if job then
    job.reserved_until = reserved_until
    keep(id, job)
    put_reserved(id, job)
  else
    lost[#lost + 1] = id
  end
end
return lost
