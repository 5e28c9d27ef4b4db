-- now, age, limit: members whose jobs were to be pushed so long ago are cancelled, or gone where their batch never
-- began. Returns batches that are cancelled and open.
local before, limit = whole(clock(ARGV[1]) - tonumber(ARGV[2])), tonumber(ARGV[3])
go_on_when_full()
for _, batch in ipairs(redis.call('ZRANGEBYSCORE', AWAITED, '-inf', before, 'LIMIT', 0, limit)) do
  local first, past = range_of(batch, WAITED_FOR, PENDING)
  local lost = redis.call('ZRANGEBYLEX', MEMBERS, first, past, 'LIMIT', 0, limit)
  local has_begun = redis.call('HEXISTS', BATCHES, batch) == 1
  for _, name in ipairs(lost) do
    change(batch, string.sub(name, #batch + 2), WAITED_FOR, has_begun and CANCELLED or nil)
  end
  if #lost < limit then redis.call('ZREM', AWAITED, batch) end
  if #lost > 0 and has_begun then note_over(batch) end
end
return redis.call('ZRANGE', CANCELLED_OPEN, 0, limit - 1)
