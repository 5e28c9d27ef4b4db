-- now, queue, then of each job its name in its set, the id, the beginning of its result, and for how long that is kept.
-- Returns how many were removed: those that no worker has taken meanwhile.
local now, queue, removed = clock(ARGV[1]), ARGV[2], 0
for at = 3, #ARGV, 4 do
  local name, id = ARGV[at], ARGV[at + 1]
  local waited = redis.call('ZREM', ready_key(1), name) + redis.call('ZREM', scheduled_key(1), name) > 0
  local job = waited and find(id)
  if job and job.state ~= 'reserved' and job.queue == queue then
    cancel_job(now, id, job, ARGV[at + 2], ARGV[at + 3])
    if job.batch ~= '' then end_member(job.batch, id, CANCELLED) end
    removed = removed + 1
  end
end
return removed
