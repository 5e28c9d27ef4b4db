-- now, channel, the name of the call, for whose answer the last key is, then for each reservation: id, token, place, what
-- becomes of it, how many arguments follow, and these. Returns the positions of those that were still held. Nothing
-- follows from one that was not. Nor is it held when its call comes again: its end would be told as lost, and a dead
-- letter of it taken back.
local now, channel, call = clock(ARGV[1]), ARGV[2], ARGV[3]
local answer = last_positions(call)
if answer then return answer end
go_on_when_full()
local queues, following = {}, {}
local gone, members, removed, fewer, leaving = {}, {}, {}, {}, {}

local function back(id, job, place, ready_at)
  free(job)
  job.state, job.ready_at = 'ready', ready_at
  keep(id, job)
  put_ready(place, id, job)
  queues[job.queue] = true
end

local ends = {}

-- What it returned is kept, when there is something to keep, and the jobs that follow are stored when all others have
-- ended.
local function go(id, job, first, after)
  local result = ARGV[first]
  if result ~= '' then keep_result(id, result, now + tonumber(ARGV[first + 1])) end
  gone[id], removed[#removed + 1] = true, id
  fewer[job.queue] = (fewer[job.queue] or 0) + 1
  for at = first + 3, after - 1, JOB_ARGUMENTS do following[#following + 1] = at end
end

-- It is over. A member of a batch leaves it, or the job that follows takes its place.
function ends.remove(id, job, place, first, after)
  local batch, next = ARGV[first + 2], first + 3
  if batch ~= '' and next < after then
    change(batch, id, PENDING, PENDING, ARGV[next])
  elseif batch ~= '' then
    leaving[batch] = leaving[batch] or {}
    table.insert(leaving[batch], batch .. PENDING .. id)
  end
  go(id, job, first, after)
end

-- It is a dead letter.
function ends.bury(id, job, place, first, after)
  local batch = ARGV[first + 2]
  if batch ~= '' then end_member(batch, id, FAILED) end
  go(id, job, first, after)
end

-- Nothing was begun: the attempt and the place are as they were.
function ends.hand_back(id, job, place)
  job.attempts = job.attempts - 1
  back(id, job, place, job.ready_at)
end

-- Again after a delay; with a record the attempt is spent.
function ends.release(id, job, place, first)
  local delay, record = tonumber(ARGV[first]), ARGV[first + 1]
  if record == '' then
    job.attempts = job.attempts - 1
  else
    job.exceptions = job.exceptions + 1
    note_error(id, record)
  end
  job.available_at = whole(now + delay)
  if delay == 0 then return back(id, job, place, whole(now)) end
  free(job)
  job.state, job.ready_at = 'scheduled', job.available_at
  keep(id, job)
  put_scheduled(place, id, job)
end

-- Its worker was lost: without a record the attempt is given back.
function ends.recover(id, job, place, first)
  local record = ARGV[first + 1]
  job.crashes = job.crashes + tonumber(ARGV[first])
  if record == '' then job.attempts = job.attempts - 1 else note_error(id, record) end
  back(id, job, place, whole(now))
end

local ours, at, position = {}, 4, 0
while at <= #ARGV do
  local id, place, first = ARGV[at], tonumber(ARGV[at + 2]), at + 5
  local after = first + tonumber(ARGV[at + 4])
  local job = not gone[id] and held(id, ARGV[at + 1])
  if job then
    members[#members + 1] = reserved_member(id, job.queue)
    ends[ARGV[at + 3]](id, job, place, first, after)
    ours[#ours + 1] = position
  end
  at, position = after, position + 1
end
call_for('ZREM', RESERVED, members)
for _, key in ipairs({JOBS, BODIES, ERRORS}) do call_for('HDEL', key, removed) end
for batch, names in pairs(leaving) do
  if call_for('ZREM', MEMBERS, names) > 0 then note_over(batch) end
end
for queue, less in pairs(fewer) do count(queue, -less) end
for _, at in ipairs(following) do add(at, now, queues, true) end
if #ours > 0 then keep_answer(call, table.concat(ours, ' ')) end
tell(channel, queues)
return ours
