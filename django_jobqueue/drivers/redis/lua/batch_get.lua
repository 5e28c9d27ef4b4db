-- now, id. Returns the moment, the stored batch, and how many of its members are pending, failed and cancelled; or nothing.
local batch = ARGV[2]
local text = redis.call('HGET', BATCHES, batch)
if not text then return false end
return {
  whole(clock(ARGV[1])), text, count_members(batch, WAITED_FOR, FAILED), count_members(batch, FAILED, CANCELLED),
  count_members(batch, CANCELLED, NO_STATE),
}
