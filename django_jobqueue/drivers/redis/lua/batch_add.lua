-- now, id, what, what does not change, ids: more members of an open batch; or, where what is 'new', of one that begins
-- with this call; or, where it is 'part', of one that begins with a later call. Returns whether they are members now, also
-- when they were before: the client may send a call twice.
local now, batch, what = whole(clock(ARGV[1])), ARGV[2], ARGV[3]
local head = find_batch(batch)
if what == 'more' then
  if not head or head.finished_at ~= '' or head.cancelled_at ~= '' then return 0 end
elseif head then
  return 1
end
local added = 0
if #ARGV > 4 then
  local ids, members = {unpack(ARGV, 5)}, {}
  for index, job in ipairs(fields(JOBS, ids)) do
    members[2 * index - 1], members[2 * index] = 0, batch .. (job and PENDING or WAITED_FOR) .. ids[index]
  end
  added = redis.call('ZADD', MEMBERS, unpack(members))
  redis.call('ZADD', AWAITED, now, batch)
  redis.call('ZREM', OVER, batch)
end
if what == 'more' then
  head.total = whole(head.total + added)
  keep_batch(batch, head)
elseif what == 'new' then
  -- None has left: their jobs are pushed afterwards.
  local total = whole(count_members(batch, WAITED_FOR, NO_STATE))
  keep_batch(batch, {total = total, created_at = now, finished_at = '', cancelled_at = '', rest = ARGV[4]})
  note_over(batch)
end
return 1
