-- now, channel, the name of the call, for whose answer the last key is, jobs. Returns the positions of those that were
-- stored. A job may have ended before its call comes again, and is no longer there to say that it was stored.
local now, channel, call = clock(ARGV[1]), ARGV[2], ARGV[3]
local answer = last_positions(call)
if answer then return answer end
local stored, queues = {}, {}
for at = 4, #ARGV, JOB_ARGUMENTS do
  if add(at, now, queues) then stored[#stored + 1] = (at - 4) / JOB_ARGUMENTS end
end
if #stored > 0 then keep_answer(call, table.concat(stored, ' ')) end
tell(channel, queues)
return stored
