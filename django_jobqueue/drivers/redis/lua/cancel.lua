-- id, queue. Returns the form, body and errors of the job that was removed, or nothing.
local id, job = ARGV[1], find(ARGV[1])
if not job or job.state == 'reserved' or job.queue ~= ARGV[2] then return false end
local found = {write(job), redis.call('HGET', BODIES, id) or '', redis.call('HGET', ERRORS, id) or ''}
redis.call('ZREM', ready_key(1), member(id, job))
redis.call('ZREM', scheduled_key(1), id)
forget(id, job.queue)
return found
