-- ids and tokens of reservations whose body cannot be read.
go_on_when_full()
for at = 1, #ARGV, 2 do
  local job = held(ARGV[at], ARGV[at + 1])
  if job then set_aside(ARGV[at], job.queue) end
end
return 1
