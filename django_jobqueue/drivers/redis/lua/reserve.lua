-- now, queue, worker, token, rows, max_attempts, retry_after, seconds, then names and their averages. The last key is
-- the worker's own. Returns the moment, whether more may wait, and of each job its id, form and body; nothing when this
-- very call was answered before, and the answer was lost on its way.
local now, queue, worker, token = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local rows, most, retry_after = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local seconds = ARGV[8] == 'inf' and math.huge or tonumber(ARGV[8])
if last_answer(token) then return false end
go_on_when_full()
local averages = {}
for at = 9, #ARGV, 2 do averages[ARGV[at]] = tonumber(ARGV[at + 1]) end

local members = redis.call('ZRANGE', ready_key(1), 0, rows - 1)
local names = {}
for index, name in ipairs(members) do names[index] = string.sub(name, 18) end
local texts = fields(JOBS, names)
local ids, jobs, taken, spent, ended = {}, {}, {}, 0, false
local strays = 0
for index, name in ipairs(members) do
  local id = names[index]
  local job = read(texts[index])
  if not (job and job.state == 'ready' and job.queue == queue) then
    redis.call('ZREM', ready_key(1), name)
    if not job then set_aside(#id > 0 and id or name, queue) end
    strays = strays + 1
  elseif not ended then
    -- What may kill its worker takes no other job with it.
    local alone = tonumber(job.crashes) > 0
      or job.attempts + 1 >= (job.max_attempts == '' and most or tonumber(job.max_attempts))
    spent = spent + (averages[job.name] or seconds)
    if #ids > 0 and (alone or spent > seconds) then
      ended = true
    else
      ids[#ids + 1], jobs[#jobs + 1], taken[#taken + 1] = id, job, name
      ended = alone
    end
  end
end

local more = strays > 0 or #ids > 0 and (#members == rows or #ids < #members)
local found = {whole(now), more and 1 or 0}
local reserved_at, reserved_until = whole(now), whole(now + retry_after)
local bodies, forms, scores = fields(BODIES, ids), {}, {}
for index, id in ipairs(ids) do
  local job = jobs[index]
  job.state, job.attempts, job.worker, job.token = 'reserved', job.attempts + 1, worker, token
  job.alone, job.reserved_at, job.reserved_until = #ids == 1 and '1' or '0', reserved_at, reserved_until
  local text, at = write(job), 2 * index - 1
  forms[at], forms[at + 1] = id, text
  scores[at], scores[at + 1] = reserved_until, reserved_member(id, queue)
  found[3 * index], found[3 * index + 1], found[3 * index + 2] = id, text, bodies[index] or ''
end
call_for('HSET', JOBS, forms)
call_for('ZADD', RESERVED, scores)
call_for('ZREM', ready_key(1), taken)
if #ids > 0 then keep_answer(token, '', math.max(1, math.ceil(retry_after / 1000))) end
return found
