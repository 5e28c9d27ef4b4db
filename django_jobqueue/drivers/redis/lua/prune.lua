-- now, age, limit, what. Deletes results whose time is over, or reports that are so old, the oldest first; returns how
-- many.
local values, moments = RESULTS, EXPIRING
if ARGV[4] == 'progress' then values, moments = PROGRESS, REPORTED end
local before = whole(clock(ARGV[1]) - tonumber(ARGV[2]))
local old = redis.call('ZRANGEBYSCORE', moments, '-inf', before, 'LIMIT', 0, ARGV[3])
for _, id in ipairs(old) do
  redis.call('HDEL', values, id)
  redis.call('ZREM', moments, id)
end
return #old
