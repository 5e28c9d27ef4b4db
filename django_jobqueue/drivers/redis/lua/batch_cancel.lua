-- now, id, limit: from now on nothing is added to an open batch. Returns of pending members that are not reserved the
-- ids, queues and names, of which the last two are empty where there is no job.
local batch, limit = ARGV[2], tonumber(ARGV[3])
go_on_when_full()
local head = find_batch(batch)
if not head or head.finished_at ~= '' then return {} end
if head.cancelled_at == '' then
  head.cancelled_at = whole(clock(ARGV[1]))
  keep_batch(batch, head)
  redis.call('ZADD', CANCELLED_OPEN, head.cancelled_at, batch)
end
local found, seen = {}, 0
local first, past = range_of(batch, WAITED_FOR, FAILED)
while #found < 3 * limit do
  local page = redis.call('ZRANGEBYLEX', MEMBERS, first, past, 'LIMIT', seen, limit)
  if #page == 0 then break end
  local ids = {}
  for index, name in ipairs(page) do ids[index] = string.sub(name, #batch + 2) end
  for index, text in ipairs(fields(JOBS, ids)) do
    local job = read(text)
    if #found < 3 * limit and not (job and job.state == 'reserved') then
      local at = #found
      found[at + 1], found[at + 2], found[at + 3] = ids[index], job and job.queue or '', job and job.name or ''
    end
  end
  seen = seen + #page
end
return found
