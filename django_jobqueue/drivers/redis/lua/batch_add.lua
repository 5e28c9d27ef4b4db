-- now, id, what does not change, ids: a new batch with its members; or without the third, more members of one that is
-- open. Returns whether they are members now, also when they were before: the client may send a call twice.
local now, batch, rest = whole(clock(ARGV[1])), ARGV[2], ARGV[3]
local head = find_batch(batch)
if rest ~= '' then
  if head then return 1 end
  head = {total = '0', created_at = now, finished_at = '', cancelled_at = '', rest = rest}
elseif not head or head.finished_at ~= '' or head.cancelled_at ~= '' then
  return 0
end
local total = tonumber(head.total)
for first = 4, #ARGV, LONGEST_CALL do
  local ids = {unpack(ARGV, first, math.min(first + LONGEST_CALL - 1, #ARGV))}
  local members = {}
  for index, job in ipairs(fields(JOBS, ids)) do
    members[2 * index - 1], members[2 * index] = 0, batch .. (job and PENDING or WAITED_FOR) .. ids[index]
  end
  for at = 1, #members, LONGEST_CALL do
    local last = math.min(at + LONGEST_CALL - 1, #members)
    total = total + redis.call('ZADD', MEMBERS, unpack(members, at, last))
  end
end
head.total = whole(total)
keep_batch(batch, head)
if #ARGV > 3 then
  redis.call('ZADD', AWAITED, now, batch)
  redis.call('ZREM', OVER, batch)
else
  note_over(batch)
end
return 1
