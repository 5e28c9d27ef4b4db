-- now, id, queue, the beginning of its result, for how long that is kept, the name of the call, for whose answer the last
-- key is. Returns the form, body and errors of the job that was removed, or nothing; of one that this very call has
-- removed before its form only. Who hears of nothing takes the job for one that a worker has.
local answer = last_answer(ARGV[6])
if answer then return {answer} end
local now, id, job = clock(ARGV[1]), ARGV[2], find(ARGV[2])
if not job or job.state == 'reserved' or job.queue ~= ARGV[3] then return false end
local found = {write(job), redis.call('HGET', BODIES, id) or '', redis.call('HGET', ERRORS, id) or ''}
redis.call('ZREM', ready_key(1), member(id, job))
redis.call('ZREM', scheduled_key(1), id)
cancel_job(now, id, job, ARGV[4], ARGV[5])
if job.batch ~= '' then end_member(job.batch, id, CANCELLED) end
keep_answer(ARGV[6], found[1])
return found
