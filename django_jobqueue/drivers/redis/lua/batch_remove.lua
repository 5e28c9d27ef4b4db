-- id, then ids of members and the places of their queues. Returns how many were removed: those that no worker has taken
-- meanwhile.
local batch, removed = ARGV[1], 0
go_on_when_full()
for at = 2, #ARGV, 2 do
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
      forget(id, job.queue)
    end
  end
end
note_over(batch)
return removed
