-- now, channel, queue, limit. Returns how many became ready.
local now, channel, queue = clock(ARGV[1]), ARGV[2], ARGV[3]
go_on_when_full()
local due = redis.call('ZRANGEBYSCORE', scheduled_key(1), '-inf', whole(now), 'LIMIT', 0, ARGV[4])
local staged = 0
for _, id in ipairs(due) do
  local job = find(id)
  redis.call('ZREM', scheduled_key(1), id)
  if job and job.state == 'scheduled' and job.queue == queue then
    -- Not the due time, or a late job would overtake those that waited in the queue.
    job.state, job.ready_at = 'ready', whole(now)
    keep(id, job)
    put_ready(1, id, job)
    staged = staged + 1
  elseif not job then
    set_aside(id, queue)
  end
end
if staged > 0 then tell(channel, {[queue] = true}) end
return staged
