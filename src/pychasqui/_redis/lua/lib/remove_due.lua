-- Removes the first `count` members of the delayed set, and these keys of their jobs. A member stays if its place is in `kept`.
-- Hot: one command removes all members if none stays, and a command of its own for each takes 1.5 us longer.
local function remove_due(delayed, count, kept, index_keys)
  if next(kept) then
    for i = count, 1, -1 do
      if not kept[i] then redis.call('ZREMRANGEBYRANK', delayed, i - 1, i - 1) end
    end
  elseif count > 0 then
    redis.call('ZREMRANGEBYRANK', delayed, 0, count - 1)
  end
  for first = 1, #index_keys, 1000 do
    redis.pcall('DEL', unpack(index_keys, first, math.min(first + 999, #index_keys)))
  end
end
