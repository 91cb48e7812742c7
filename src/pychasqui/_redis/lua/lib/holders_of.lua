-- Reads the reports of workers, each "entry id delivery ...". Returns the holder and the delivery of each entry, by its id,
-- and the last id that any of them holds. A worker that lost an entry may still run it: the one that took it over has it by
-- a later delivery.
local function holders_of(reports_by_name)
  local holders, deliveries, last = {}, {}, '0-0'
  for name, report in pairs(reports_by_name) do
    for id, delivery in string.gmatch(report, '(%d+%-%d+) (%d+)') do
      delivery = math.min(tonumber(delivery), 1e9)
      if delivery > (deliveries[id] or -1) then holders[id], deliveries[id] = name, delivery end
      if is_after(id, last) then last = id end
    end
  end
  return holders, deliveries, last
end
