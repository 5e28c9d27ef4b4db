-- id. Returns the form, body and errors of a job, empty where there are none.
local id = ARGV[1]
return {
  redis.call('HGET', JOBS, id) or '', redis.call('HGET', BODIES, id) or '', redis.call('HGET', ERRORS, id) or '',
}
