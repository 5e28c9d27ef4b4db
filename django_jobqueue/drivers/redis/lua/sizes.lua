-- now, queues. Returns the moment, and of each queue how many jobs it has in all, how many are ready and scheduled,
-- and since when the oldest ready one waits.
local found = {whole(clock(ARGV[1]))}
for place = 1, #ARGV - 1 do
  local ready, oldest, rank = ready_key(place), '', '-inf'
  -- The first of each rank has waited longest of it; there are few ranks.
  while true do
    local first = redis.call('ZRANGEBYSCORE', ready, rank, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if #first == 0 then break end
    local since = string.sub(first[1], 1, 17)
    if oldest == '' or since < oldest then oldest = since end
    rank = '(' .. first[2]
  end
  local at = #found
  found[at + 1] = tonumber(redis.call('HGET', QUEUES, ARGV[place + 1]) or 0)
  found[at + 2] = redis.call('ZCARD', ready)
  found[at + 3] = redis.call('ZCARD', scheduled_key(place))
  found[at + 4] = oldest
end
return found
