-- id, ids. Returns those of the members whose jobs were never pushed.
local found = {}
for at = 2, #ARGV do
  if redis.call('ZSCORE', MEMBERS, ARGV[1] .. WAITED_FOR .. ARGV[at]) then found[#found + 1] = ARGV[at] end
end
return found
