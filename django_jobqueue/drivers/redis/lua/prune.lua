-- now, limit. Deletes the results whose time is over, the oldest first; returns how many.
local old = redis.call('ZRANGEBYSCORE', EXPIRING, '-inf', whole(clock(ARGV[1])), 'LIMIT', 0, ARGV[2])
for _, id in ipairs(old) do
  redis.call('HDEL', RESULTS, id)
  redis.call('ZREM', EXPIRING, id)
end
return #old
