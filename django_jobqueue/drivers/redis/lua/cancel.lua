-- now, id, queue, the beginning of its result, for how long that is kept. Returns the form, body and errors of the job
-- that was removed, or nothing.
local now, id, job = clock(ARGV[1]), ARGV[2], find(ARGV[2])
if not job or job.state == 'reserved' or job.queue ~= ARGV[3] then return false end
local found = {write(job), redis.call('HGET', BODIES, id) or '', redis.call('HGET', ERRORS, id) or ''}
redis.call('ZREM', ready_key(1), member(id, job))
redis.call('ZREM', scheduled_key(1), id)
cancel_job(now, id, job, ARGV[4], ARGV[5])
if job.batch ~= '' then end_member(job.batch, id, CANCELLED) end
return found
