-- Removes the first members of the delayed set, one for each of `index_keys`, and these keys. A member stays if its place is in
-- `kept`.
-- Hot: one command removes all members if none stays, and a command of its own for each takes 1.5 us longer.
local function remove_due(delayed, index_keys, kept)
  local removed = index_keys
  if next(kept) then
    removed = {}
    for i = #index_keys, 1, -1 do
      if not kept[i] then
        redis.call('ZREMRANGEBYRANK', delayed, i - 1, i - 1)
        removed[#removed + 1] = index_keys[i]
      end
    end
  elseif #index_keys > 0 then
    redis.call('ZREMRANGEBYRANK', delayed, 0, #index_keys - 1)
  end
  for first = 1, #removed, 1000 do
    redis.pcall('DEL', unpack(removed, first, math.min(first + 999, #removed)))
  end
end
