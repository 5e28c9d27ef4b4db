-- now, channel, jobs. Returns the positions of those that were stored.
local now, channel = clock(ARGV[1]), ARGV[2]
local stored, queues = {}, {}
for at = 3, #ARGV, JOB_ARGUMENTS do
  if add(at, now, queues) then stored[#stored + 1] = (at - 3) / JOB_ARGUMENTS end
end
tell(channel, queues)
return stored
