-- now, id. Returns the result of a job whose time is not over, or nothing.
local expires_at = redis.call('ZSCORE', EXPIRING, ARGV[2])
if not expires_at or tonumber(expires_at) <= clock(ARGV[1]) then return false end
return redis.call('HGET', RESULTS, ARGV[2])
