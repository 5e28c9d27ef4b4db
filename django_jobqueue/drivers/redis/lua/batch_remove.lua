-- now, id, then ids of members, the places of their queues, the beginnings of their results, and for how long these are
-- kept. Returns how many were removed: those that no worker has taken meanwhile.
local now, batch, removed = clock(ARGV[1]), ARGV[2], 0
go_on_when_full()
for at = 3, #ARGV, 4 do
  local id, place = ARGV[at], tonumber(ARGV[at + 1])
  local job = find(id)
  local is_cancelled = false
  if not (job and job.state == 'reserved') then
    is_cancelled = change(batch, id, PENDING, CANCELLED) or change(batch, id, WAITED_FOR, CANCELLED)
  end
  if is_cancelled then
    removed = removed + 1
    if job then
      redis.call('ZREM', ready_key(place), member(id, job))
      redis.call('ZREM', scheduled_key(place), id)
      cancel_job(now, id, job, ARGV[at + 2], ARGV[at + 3])
    end
  end
end
note_over(batch)
return removed
