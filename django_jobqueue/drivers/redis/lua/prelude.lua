-- Stands before every script. KEYS are the sixteen of the connection, then two for each queue that the script may
-- touch, in the order of its places; no script makes a key of its own. All of them lie in one hash slot.
local JOBS, BODIES, ERRORS, QUEUES, RESERVED, UNREADABLE, RESULTS, EXPIRING = unpack(KEYS, 1, 8)
local BATCHES, MEMBERS, AWAITED, OVER, CANCELLED_OPEN, ENDED = unpack(KEYS, 9, 14)
local PROGRESS, REPORTED = KEYS[15], KEYS[16]
local KEPT_ERRORS = 20

local function ready_key(place) return KEYS[15 + 2 * place] end
local function scheduled_key(place) return KEYS[16 + 2 * place] end

-- Microseconds since 1970. A Lua number is exact up to the year 2255; what may be later stays text.
local function clock(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function whole(number) return string.format('%.0f', number) end

-- The stored form of a job, version 1: numbers and words separated by a space, the last of them the batch of which it is
-- a member, then queue, name and worker in lines of their own. Python reads it too.
local N, OPTIONAL = '(%-?%d+) ', '(%-?%d*) '
local FORM = '^1 (%l+) ' .. string.rep(N, 9) .. string.rep(OPTIONAL, 4) .. N .. '(%x*) (%x*)\n([^\n]*)\n([^\n]*)\n(.*)$'

-- What is longer than any number that we write is no moment and no score.
local LONGEST_LINE = 300
local STATES = {scheduled = true, ready = true, reserved = true}

-- nil for what is no job.
local function read(text)
  if not text or (string.find(text, '\n', 1, true) or 0) > LONGEST_LINE then return nil end
  local job = {}
  job.state, job.rank, job.ready_at, job.available_at, job.created_at, job.attempts, job.exceptions, job.crashes,
    job.retries, job.format, job.max_attempts, job.retry_until, job.reserved_at, job.reserved_until, job.alone,
    job.token, job.batch, job.queue, job.name, job.worker = string.match(text, FORM)
  if not STATES[job.state] or (job.state == 'reserved' and job.reserved_until == '') then return nil end
  return job
end

local function write(job)
  return table.concat({
    '1', job.state, job.rank, job.ready_at, job.available_at, job.created_at, job.attempts, job.exceptions,
    job.crashes, job.retries, job.format, job.max_attempts, job.retry_until, job.reserved_at, job.reserved_until,
    job.alone, job.token, job.batch,
  }, ' ') .. '\n' .. job.queue .. '\n' .. job.name .. '\n' .. job.worker
end

-- A server that is full refuses what may need memory, unless the script has written something by then. Dispatches are
-- refused; what moves jobs on, and out, must go on.
local function go_on_when_full() redis.call('ZREM', RESERVED, '') end

-- One call of Redis for many arguments; Lua's stack holds a little less than 8000. Returns how many it added or removed.
local LONGEST_CALL = 4000
local function call_for(name, key, arguments)
  local changed = 0
  for first = 1, #arguments, LONGEST_CALL do
    changed = changed + redis.call(name, key, unpack(arguments, first, math.min(first + LONGEST_CALL - 1, #arguments)))
  end
  return changed
end

-- The fields of many ids, false where there is none.
local function fields(key, ids)
  local found = {}
  for first = 1, #ids, LONGEST_CALL do
    local last = math.min(first + LONGEST_CALL - 1, #ids)
    for index, value in ipairs(redis.call('HMGET', key, unpack(ids, first, last))) do found[first + index - 1] = value end
  end
  return found
end

-- A client that has lost the answer to a call sends it again. Where that must not go wrong the last key holds, for some
-- minutes or as long as is said, the name of the caller's last call and the answer to it. Nothing where this call is
-- another.
local ANSWER_KEPT = 600000
local function last_answer(call)
  local text = redis.call('GET', KEYS[#KEYS])
  return text and string.sub(text, 1, #call) == call and string.sub(text, #call + 1)
end
local function keep_answer(call, text, milliseconds)
  redis.call('SET', KEYS[#KEYS], call .. text, 'PX', milliseconds or ANSWER_KEPT)
end

-- The same where the answer is positions.
local function last_positions(call)
  local text = last_answer(call)
  if not text then return nil end
  local positions = {}
  for position in string.gmatch(text, '%d+') do positions[#positions + 1] = tonumber(position) end
  return positions
end

local function find(id) return read(redis.call('HGET', JOBS, id)) end
local function keep(id, job) redis.call('HSET', JOBS, id, write(job)) end

-- Redis sorts by score, then by member: rank, ready_at, id.
local function member(id, job) return string.format('%017.0f', tonumber(job.ready_at)) .. id end
local function put_ready(place, id, job) redis.call('ZADD', ready_key(place), job.rank, member(id, job)) end
local function put_scheduled(place, id, job) redis.call('ZADD', scheduled_key(place), job.available_at, id) end

-- Of what is reserved the queue is known although its form may be unreadable.
local function reserved_member(id, queue) return id .. queue end
local function put_reserved(id, job)
  redis.call('ZADD', RESERVED, job.reserved_until, reserved_member(id, job.queue))
end
local function drop_reserved(id, queue) redis.call('ZREM', RESERVED, reserved_member(id, queue)) end

local function free(job)
  job.token, job.worker, job.alone, job.reserved_at, job.reserved_until = '', '', '0', '', ''
end

-- The job when this reservation is still valid.
local function held(id, token)
  local job = find(id)
  if job and job.state == 'reserved' and job.token == token then return job end
  return nil
end

-- Of a queue whose number is none there are at most as many jobs as in all: one that is looked at in vain costs little,
-- and one that is not listed may have jobs that nobody runs.
local function count(queue, change)
  local number = redis.pcall('HINCRBY', QUEUES, queue, change)
  if type(number) ~= 'number' then
    number = redis.call('HLEN', JOBS)
    redis.call('HSET', QUEUES, queue, number)
  end
  if number <= 0 then redis.call('HDEL', QUEUES, queue) end
end

-- A batch is a field of BATCHES, version 1: how many members it was given, and the moments of its creation, its end and
-- its cancellation, in one line; then what does not change, as JSON.
local HEAD = '^1 ' .. N .. N .. string.rep(OPTIONAL, 2) .. '\n(.*)$'

-- nil for what is no batch.
local function read_head(text)
  if not text then return nil end
  local head = {}
  head.total, head.created_at, head.finished_at, head.cancelled_at, head.rest = string.match(text, HEAD)
  return head.total and head or nil
end

local function find_batch(batch) return read_head(redis.call('HGET', BATCHES, batch)) end
local function keep_batch(batch, head)
  local line = table.concat({'1', head.total, head.created_at, head.finished_at, head.cancelled_at, ''}, ' ')
  redis.call('HSET', BATCHES, batch, line .. '\n' .. head.rest)
end

-- Members lie in one sorted set, all with the score 0, so by name: the batch, a digit for the state, the job. Those of
-- one state are beside each other, and counted at no cost. A member is awaited until its job is pushed, which counts as
-- pending; who succeeds leaves.
local WAITED_FOR, PENDING, FAILED, CANCELLED, NO_STATE = 0, 1, 2, 3, 4
local function range_of(batch, first, past) return '[' .. batch .. first, '(' .. batch .. past end
local function count_members(batch, first, past)
  return redis.call('ZLEXCOUNT', MEMBERS, range_of(batch, first, past))
end

-- True when the member was in the one state; it is in the other now, or gone where that is nil.
local function change(batch, id, from, to, successor)
  if redis.call('ZREM', MEMBERS, batch .. from .. id) == 0 then return false end
  if to then redis.call('ZADD', MEMBERS, 0, batch .. to .. (successor or id)) end
  return true
end

-- A batch without a pending member that has not ended is there to be closed.
local function note_over(batch)
  if count_members(batch, WAITED_FOR, FAILED) == 0 and not redis.call('ZSCORE', ENDED, batch) then
    redis.call('ZADD', OVER, 0, batch)
  end
end

local function end_member(batch, id, state)
  if change(batch, id, PENDING, state) then note_over(batch) end
end

-- Whether the job of a member may be stored: a new one when its batch waits for it, so that what is pushed again after a
-- crash, and has ended meanwhile, stays away. One that is retried is pending again.
local function enrol(batch, id, is_retried)
  if is_retried then
    if change(batch, id, FAILED, PENDING) then redis.call('ZREM', OVER, batch) end
    return true
  end
  return change(batch, id, WAITED_FOR, PENDING) or redis.call('HEXISTS', BATCHES, batch) == 0
end

local function forget(id, queue)
  redis.call('HDEL', BODIES, id)
  redis.call('HDEL', ERRORS, id)
  if redis.call('HDEL', JOBS, id) == 1 then count(queue, -1) end
end

local function keep_result(id, result, expires_at)
  redis.call('HSET', RESULTS, id, result .. '\n' .. (redis.call('HGET', ERRORS, id) or ''))
  redis.call('ZADD', EXPIRING, whole(expires_at), id)
end

-- A job that is cancelled goes. What is kept of it begins with `result`, which is empty for nothing.
local function cancel_job(now, id, job, result, keep_for)
  if result ~= '' then
    local line = result .. ', "attempts": ' .. job.attempts .. ', "finished_at": ' .. whole(now) .. '}'
    keep_result(id, line, now + tonumber(keep_for))
  end
  forget(id, job.queue)
end

-- What cannot be read, or has no job, leaves its queue, with all that is known of it, until a worker makes a dead letter of it.
local function set_aside(id, queue)
  local text = redis.call('HGET', JOBS, id)
  local body = redis.call('HGET', BODIES, id)
  local job = read(text)
  if job and job.batch ~= '' then end_member(job.batch, id, FAILED) end
  redis.call('HSET', UNREADABLE, id, queue .. '\n' .. (text or '') .. '\n' .. (body or ''))
  drop_reserved(id, queue)
  forget(id, queue)
end

-- Errors are kept as the number of all, then one record a line.
local function note_error(id, record)
  local lines, total = {}, 0
  for line in string.gmatch(redis.call('HGET', ERRORS, id) or '', '[^\n]+') do
    if #lines == 0 and total == 0 and tonumber(line) then total = tonumber(line) else lines[#lines + 1] = line end
  end
  lines[#lines + 1] = record
  while #lines > KEPT_ERRORS do table.remove(lines, 1) end
  redis.call('HSET', ERRORS, id, whole(total + 1) .. '\n' .. table.concat(lines, '\n'))
end

-- A hint: whoever may not publish stores jobs all the same.
local function tell(channel, queues)
  if channel == '' then return end
  for queue in pairs(queues) do redis.pcall('PUBLISH', channel, queue) end
end

-- A retry of a dead letter takes the place of the job that it was made of, which a crash has left, or a rescue that is
-- just removing it would leave nothing.
local function supersede(id, place, queue, retries)
  local job = find(id)
  if not job or job.queue ~= queue or tonumber(job.retries) >= tonumber(retries) then return false end
  redis.call('ZREM', ready_key(place), member(id, job))
  redis.call('ZREM', scheduled_key(place), id)
  drop_reserved(id, queue)
  forget(id, queue)
  return true
end

-- A job as fifteen arguments from ARGV[at] on; true when it was stored. Of the due time either the delay or the moment
-- is given, and until when it may be repeated is then seconds to go on from there, or the very moment. What follows
-- another job is a member of a batch already, in its place.
local JOB_ARGUMENTS = 15
local function add(at, now, queues, follows)
  local id, place, queue = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2]
  local batch, retries = ARGV[at + 13], ARGV[at + 11]
  if redis.call('HEXISTS', JOBS, id) == 1 and not supersede(id, place, queue, retries) then return false end
  if batch ~= '' and not follows and not enrol(batch, id, retries ~= '0') then return false end
  local delay, moment, retry = ARGV[at + 7], ARGV[at + 8], ARGV[at + 9]
  local job = {
    queue = queue, name = ARGV[at + 3], rank = ARGV[at + 4], max_attempts = ARGV[at + 5], format = ARGV[at + 6],
    created_at = ARGV[at + 10], retries = retries, attempts = '0', exceptions = '0', crashes = '0',
    available_at = moment, retry_until = retry, batch = batch,
  }
  free(job)
  if job.created_at == '' then job.created_at = whole(now) end
  if moment == '' then
    job.available_at = whole(now + tonumber(delay))
    if retry ~= '' then job.retry_until = whole(now + tonumber(delay) + tonumber(retry)) end
  end
  if tonumber(job.available_at) > now then
    job.state, job.ready_at = 'scheduled', job.available_at
    put_scheduled(place, id, job)
  else
    job.state, job.ready_at = 'ready', whole(now)
    put_ready(place, id, job)
    queues[queue] = true
  end
  keep(id, job)
  redis.call('HSET', BODIES, id, ARGV[at + 14])
  if ARGV[at + 12] ~= '' then redis.call('HSET', ERRORS, id, ARGV[at + 12]) end
  count(queue, 1)
  return true
end
