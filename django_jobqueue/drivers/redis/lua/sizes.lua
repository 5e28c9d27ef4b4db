-- now, how many ranks to look at, and at least one of each queue, then of each queue its name and the rank that was looked at last, empty at first.
-- Returns the moment, and of each queue how many jobs it has in all, how many are ready and scheduled, since when the
-- oldest ready one of these ranks waits, and the rank from which to go on, empty when all were looked at.
local found, left = {whole(clock(ARGV[1]))}, tonumber(ARGV[2])
for place = 1, (#ARGV - 2) / 2 do
  local queue, before, oldest = ARGV[2 * place + 1], ARGV[2 * place + 2], ''
  local rank = before
  -- The first of each rank has waited longest of it; there are few ranks, as a rule.
  while true do
    local after = rank == '' and '-inf' or '(' .. rank
    local first = redis.call('ZRANGEBYSCORE', ready_key(place), after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if #first == 0 then
      rank = ''
      break
    elseif left <= 0 and rank ~= before then
      break
    end
    local since = string.match(first[1], '^' .. string.rep('%d', 17))
    if since and (oldest == '' or since < oldest) then oldest = since end
    rank, left = first[2], left - 1
  end
  local at = #found
  found[at + 1] = tonumber(redis.call('HGET', QUEUES, queue) or 0) or 0
  found[at + 2] = redis.call('ZCARD', ready_key(place))
  found[at + 3] = redis.call('ZCARD', scheduled_key(place))
  found[at + 4], found[at + 5] = oldest, rank
end
return found
