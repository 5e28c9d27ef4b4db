-- now, age, limit, most: deletes batches that ended so long ago, with at most so many members, so that one that has many
-- goes in several calls. Returns how many batches were deleted.
local before, limit, left = whole(clock(ARGV[1]) - tonumber(ARGV[2])), ARGV[3], tonumber(ARGV[4])
local pruned = 0
for _, batch in ipairs(redis.call('ZRANGEBYSCORE', ENDED, '-inf', before, 'LIMIT', 0, limit)) do
  local first, past = range_of(batch, WAITED_FOR, NO_STATE)
  local members = redis.call('ZRANGEBYLEX', MEMBERS, first, past, 'LIMIT', 0, left)
  call_for('ZREM', MEMBERS, members)
  left = left - #members
  if left == 0 then break end
  redis.call('HDEL', BATCHES, batch)
  redis.call('ZREM', ENDED, batch)
  redis.call('ZREM', OVER, batch)
  pruned = pruned + 1
end
return pruned
