-- now, then of each report the id, the token and the text. Without a token the job has ended, and nobody holds it.
local now = whole(clock(ARGV[1]))
for at = 2, #ARGV, 3 do
  local id, token = ARGV[at], ARGV[at + 1]
  if token == '' or held(id, token) then
    redis.call('HSET', PROGRESS, id, now .. ' ' .. ARGV[at + 2])
    redis.call('ZADD', REPORTED, now, id)
  end
end
return 1
