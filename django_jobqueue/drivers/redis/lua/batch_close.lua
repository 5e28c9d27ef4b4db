-- now, channel, id, the stored batch, how many members have failed and how many are cancelled, jobs that follow.
-- Returns whether it has ended by this call: not when it is no longer what the jobs were made of.
local now, channel, batch = clock(ARGV[1]), ARGV[2], ARGV[3]
go_on_when_full()
local text = redis.call('HGET', BATCHES, batch)
local head = read_head(text)
if not head or text ~= ARGV[4] or head.finished_at ~= '' then return 0 end
if count_members(batch, WAITED_FOR, FAILED) > 0
  or count_members(batch, FAILED, CANCELLED) ~= tonumber(ARGV[5])
  or count_members(batch, CANCELLED, NO_STATE) ~= tonumber(ARGV[6]) then
  return 0
end
head.finished_at = whole(now)
keep_batch(batch, head)
redis.call('ZREM', OVER, batch)
redis.call('ZREM', CANCELLED_OPEN, batch)
redis.call('ZREM', AWAITED, batch)
redis.call('ZADD', ENDED, head.finished_at, batch)
local queues = {}
for at = 7, #ARGV, JOB_ARGUMENTS do add(at, now, queues, true) end
tell(channel, queues)
return 1
