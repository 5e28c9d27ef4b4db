-- Ids and tokens. Returns the places, from 0, of those whose reservation is still that one.
local found = {}
for at = 1, #ARGV, 2 do
  if held(ARGV[at], ARGV[at + 1]) then found[#found + 1] = (at - 1) / 2 end
end
return found
