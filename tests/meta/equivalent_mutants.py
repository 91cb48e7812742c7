"""Mutants that change nothing that could be noticed: (file, the line, the change) -> the reason.

SORTED has the files whose survivors have all been looked at: no other mutant of theirs may survive.
"""

from __future__ import annotations

FLAGS = "the order of flags does not matter"
NO_SCORE = "no score is below 0, and nothing is no score"
ASKS = "the command is sent to see whether it is refused, and changes nothing either way"
TWO = "shows only if two things are refused at once"
CLUSTER = "shows while a slot of a cluster moves: tests/scripts/test_moving_slot.py"
SYMMETRIC = "the arguments can be swapped"
ONE_ID = "the range has one id"
SLOWER = "it does the same in more steps, or in fewer"
UNREAD = "keys that cannot be read count as missing, or the call is refused before its first write: nothing is lost"
A_MILLION = "shows only beside a million pending entries"
NOTHING_DUE = "read_due finds no member then"
A_MILLISECOND = "shows for a millisecond"
SAME_END = "the error ends the script either way, before its first write"
FIRST_ALONE = "the first alone is looked at"
STEPS_OF_THREE = "the field that is looked for stands where steps of three meet it, too"
STEP_IS_TWO = "the step is two"
TWICE = "it is removed twice"
NOT_THERE = "it removes what is not there"
PAST = "any time that is past is now"
MORE_WORDS = "each has more words"
NOT_NEEDED = "it touches keys that need not be touched"
BY_NODE = "letters are trimmed node by node"
NO_ID = "XRANGE without an id is refused, and finds nothing"
NO_IDS = "XCLAIM without ids claims nothing"
NOT_KNOWN = "any number below 0 says that it is not known"
CLOCK = "no server's clock stands in the first hour of 1970"
HAS_RIGHT = "shows only for a user without a right that each role of chasqui doctor --acl has"
A_BYTE = "shows for one byte of a bound"
LATER = "the same command is refused where it is needed, and only the ends of keys have been moved by then"

_NO_MEMORY = "  -- needs no memory, and what follows a write passes without memory"
_CANCEL_PEXPIRE = "pcall('PEXPIRE', notes, notes_kept_ms)" + _NO_MEMORY
_DEL_RECORD = "redis.call('DEL', record, claim)" + _NO_MEMORY
_DEL_OF_DELAYED = (
    "if not names_entry(location) then pcall('DEL', unique, official) end  -- else they are of another job of this id"
)
_DEL_OF_ENTRY = "if location == where or location == 'w' .. where then pcall('DEL', unique, official) end"
_EMPTY_XDEL = "if last then redis.pcall('XDEL', stream, '0-0') end"
_DEL_INDEX = "if found and found.member and location ~= 'd' then redis.pcall('DEL', index_key(job_id)) end"
_HOLDS_UP = (
    "if #refused_members < read or redis.call('ZCOUNT', delayed, '-inf', now_ms) <= read "
    "then return #refused_members end"
)
_PUT_OFF = "for _, member in ipairs(refused_members) do redis.pcall('ZADD', delayed, 'XX', now_ms + 60000, member) end"
_INDEX_START = "if type(start) == 'table' or start == '' or start == member then return false end"
_READ_OTHER = "local other = redis.pcall('GETRANGE', index_key(job_id), 0, other_bytes_left)"
_IS_OTHER = "return other_bytes_left < 0 or type(redis.pcall('ZSCORE', delayed, other)) == 'string'"
_NO_ENTRY = "if not entry_id or entry_bytes_left <= 0 then return entry_id ~= nil end"
_TAKE_LOCATION = "local location, entry_id = redis.pcall('MGET', unique_key(job_id))[1], nil"
_FIRE_ZADD = "local refused = refusal('ZADD', repeats, 'XX', 'GT', '-inf', '')"
_SWAPPED_FLAGS = "'XX', 'GT' -> 'GT', 'XX'"
_IS_SAME = "local is_same = tonumber(call('ZSCORE', repeats, key) or -1) == score"
_IS_SAME_SCORE = "if is_same and tonumber(call('ZSCORE', repeats, key) or -1) == score then"
_TRY_XCLAIM = "local refused = refusal('XCLAIM', stream, group, consumer, 0, '0-0', 'JUSTID')"
_IS_ELSEWHERE = (
    "return string.find(why, 'ttempted to access', 1, true) ~= nil or string.find(why, 'rehashing', 1, true) ~= nil"
)
_TAKEN = "if room < needed then taken = 0 else taken = math.min(jobs, room) end"
_FIELDS = "for i = 1, #about, 2 do"
_FIRST_MS = "local first_ms = due_in_ms(call('ZRANGE', delayed, 0, 0, 'WITHSCORES'), now_ms)"
_OTHER_LEADS = "if leader then return {0, 0, 0, left_ms, leader, was_cut, math.max(0, -(first_ms or 0))} end"
_NEXT_MS = "return {1, promoted, buried, next_ms and math.max(0, next_ms) or -1, why}"
_NOT_YET = "if not first_ms or first_ms > 0 then return answer(0) end"
_PROMOTE_ASKS = "local refused = elsewhere or touch(index_keys) or refusal('ZREMRANGEBYRANK', delayed, 1, 0)"
_PROMOTE_EVENT = "if events_max_len > 0 and ids[i] then write_waiting_event(names[i], ids[i]) end"
_PAGE_OF_PENDING = "page = found_ahead == page - 1 and math.min(2 * page, 64) or 1"
_FOR_HEIR = "return math.max(1, math.min(most, math.floor(1e6 / math.max(1, later))))"
_ELSEWHERE_NEVER = "is_elsewhere(existing) -> false"
_HELD = (
    "local pending = redis.pcall('XPENDING', stream, group, after == '' and '-' or '(' .. after, '+', page, consumer)"
)
_LEASE_AND_NOW = (
    "local lease, now_ms = tonumber(redis.call('ZSCORE', workers, consumer) or 0), server_time_ms(math.floor)"
)
_TOO_LATE = "if server_time_ms(math.floor) > deadline_ms then return {0, 0} end"
_RENEWS_ITSELF = "if lease == 0 or after == '' and lease - now_ms >= least_left_ms then return false end"
_TRY_ZADD_OF_LEASE = "or refusal('ZADD', workers, 'XX', 'GT', '-inf', consumer)"
_TRY_XCLAIM_TOO = "or refusal('XCLAIM', stream, group, consumer, 0, '0-0', 'JUSTID')"
_TRY_REPORTS = "or refusal('PEXPIRE', reports, workers_kept_ms)"
_TRY_IDS = "local trouble = found.err and found or refusal('XRANGE', stream, start, last, 'COUNT', 1)"
_EXISTING = "local existing = redis.pcall('EXISTS', unpack(keys, first, last))"

_LOOK_FROM = "local start = string.format('%.0f', math.max(0, from_ms))"
_LOOK_TO = "local last = looked_from_ms < math.huge and string.format('%.0f', looked_from_ms - 1) or '+'"
_IS_KNOWN = "local is_known = due_ms >= looked_from_ms and looked_to_ms > due_ms + 60000"
_IS_OVER = "if is_known or now_ms > due_ms + 3600000 then return nil end"
_DUE_BY_OURS = "return find_promoted(job_id, now_ms + redis.call('PTTL', unique) - kept_ms - 1000, now_ms), is_official"
_DUE_BY_OFFICIAL = "return find_promoted(job_id, now_ms + redis.call('PTTL', official) - 3660000, now_ms), is_official"
_KEYS_OF_ADD = "if only ~= '' then append_job_keys(keys, ARGV[i + 2]) else keys[#keys + 1] = index_key(ARGV[i + 2]) end"
_TRY_ZADD_OF_DELAYED = "or refusal('ZADD', delayed, 'XX', 'GT', '-inf', 'none')"
_MAY_XADD = "if redis.acl_check_cmd and not redis.acl_check_cmd('XADD', stream, '*', 'd', '') then"
_OFFICIAL_MS = (
    "local official_ms = math.min(1000 * math.max(1, math.floor((due_ms - now_ms) / 1000)) + 3600000, longest_ttl_ms)"
)
_SET_UNIQUE = "call('SET', unique_key(job_id), (window_ms > 0 and 'w' or '') .. location, 'PX', ttl_ms)"
_SET_OFFICIAL = (
    "call('SET', official_key(job_id), '1', 'PX', window_ms > 0 and math.min(window_ms, official_ms) or official_ms)"
)
_IS_SOONEST = (
    "if soonest < math.huge and redis.pcall('ZCOUNT', delayed, '-inf', '(' .. string.format('%.0f', soonest)) == 0 then"
)
_DUE_MS = "local due_ms = due_in_ms(call('ZRANGE', repeats, 0, 0, 'WITHSCORES'), now_ms)"
_ANOTHER_LEADS = "if leader then return {0, now_ms, left_ms, leader, was_cut, math.max(0, -(due_ms or 0))} end"
_ARE_DUE = "if due_ms and due_ms <= 0 then"
_LATER_ONE = "local later = call('ZRANGE', repeats, '(' .. now_ms, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')"
_BYTES_IN_ALL = "bytes_in_all = bytes_in_all + (type(bytes) == 'number' and math.min(bytes, most_bytes) or 0)"
_LEASE_LEFT = "if left_ms >= 0 and left_ms <= longest_ms then return left_ms, leader or 'a ' .. kind, 0 end"
_LEASES_OVER = "local over = number_or(0, redis.pcall('ZCOUNT', workers, '-inf', '(' .. now_ms))"
_KEYS_OF_RESCHEDULED = (
    "if ARGV[i + 5] == '1' then append_job_keys(job_keys, ARGV[i + 4]) "
    "else job_keys[#job_keys + 1] = index_key(ARGV[i + 4]) end"
)

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "add",
        "if room < needed then taken = 0 else taken = math.min(jobs, room) end",
        "jobs, room -> room, jobs",
    ): SYMMETRIC,
    ("add", "call('HSET', ledger, slot, seen or '0 0')", "'0 0' -> ''"): TWO,
    ("add", "if not seen then redis.pcall('HDEL', ledger, slot) end", "pcall -> call"): TWO,
    ("add", "local low, high = string.byte(places, 2 * job - 1, 2 * job)", "2 -> 3"): SLOWER,
    ("bury_repeatable", _FIRE_ZADD, _SWAPPED_FLAGS): FLAGS,
    ("bury_repeatable", "if trouble then return trouble end", "trouble -> false"): TWO,
    ("bury_repeatable", _IS_SAME_SCORE, "or -1 -> "): NO_SCORE,
    ("bury_repeatable", _IS_SAME_SCORE, "1 -> 2"): NO_SCORE,
    ("claim_held", _TRY_XCLAIM, "0 -> 1"): ASKS,
    ("claim_held", "or refusal('XPENDING', stream, group, '-', '+', 1)", "'-', '+' -> '+', '-'"): ASKS,
    ("claim_held", "or refusal('XPENDING', stream, group, '-', '+', 1)", "1 -> 2"): ASKS,
    ("claim_held", "local pending = call('XPENDING', stream, group, id, id, 1)[1]", "1 -> 2"): ONE_ID,
    (
        "claim_held",
        "call('XCLAIM', stream, group, consumer, 0, id, 'RETRYCOUNT', delivery, 'FORCE', 'JUSTID')",
        "'FORCE', 'JUSTID' -> 'JUSTID', 'FORCE'",
    ): FLAGS,
    (
        "claim_held",
        "call('XCLAIM', stream, group, consumer, 0, id, 'RETRYCOUNT', delivery, 'FORCE', 'JUSTID')",
        "0 -> 1",
    ): A_MILLISECOND,
    ("empty_stream", _FIELDS, "2 -> 3"): "the field that is looked for stands where steps of three meet it, too",
    (
        "empty_stream",
        "if about[i] == 'name' then redis.pcall('XGROUP', 'CREATECONSUMER', stream, group.name, about[i + 1]) end",
        "pcall -> call",
    ): "XGROUP is tried before; only the right to its subcommands alone would show it",
    ("fire", _FIRE_ZADD, _SWAPPED_FLAGS): FLAGS,
    ("fire", "while i <= #ARGV do", "<= -> <"): "each repeatable has six words or more",
    ("fire", _IS_SAME, "or -1 -> "): NO_SCORE,
    ("fire", _IS_SAME, "1 -> 2"): NO_SCORE,
    (
        "fire",
        "trouble = refusal('HSET', hash, 'fired', string.format('%.0f', (tonumber(fields[2] or 0) or 0) + jobs))",
        "or 0 -> ",
    ): "the second of them does the same for the first",
    ("fire", "moved[#moved + 1] = is_same and 1 or 0", "and 1 -> "): "true is 1 in a reply",
    ("lib/is_held", _PAGE_OF_PENDING, "64 -> 65"): SLOWER,
    ("lib/is_held", _PAGE_OF_PENDING, "1 -> 2"): SLOWER,
    ("lib/is_held", "return false, pending", "false -> true"): "the caller returns the error",
    ("lib/most_for_heir", _FOR_HEIR, "1 -> 2"): A_MILLION,
    ("lib/most_for_heir", _FOR_HEIR, "floor -> ceil"): A_MILLION,
    ("lib/most_for_heir", _FOR_HEIR, "1, later -> later, 1"): SYMMETRIC,
    (
        "lib/read_due",
        "local members, count, bytes_left, largest = {}, 0, max_bytes, 0",
        "0 -> 1",
    ): "a page of empty members is as long as one of single bytes",
    ("lib/read_due", "if bytes > largest then largest = bytes end", "> -> >="): "both are as large",
    ("lib/read_unique_keys", "local last = math.min(first + 999, #keys)", "999 -> 1000"): "a key is read twice",
    ("lib/read_unique_keys", _EXISTING, "pcall -> call"): UNREAD,
    ("lib/read_unique_keys", _EXISTING, "first, last -> last, first"): "MGET touches the keys then",
    ("lib/read_unique_keys", "if is_elsewhere(existing) then return values, existing end", _ELSEWHERE_NEVER): CLUSTER,
    ("lib/read_unique_keys", "if existing ~= 0 then", "existing ~= 0 -> true"): SLOWER,
    ("lib/read_unique_keys", "local page = redis.pcall('MGET', unpack(keys, first, last))", "pcall -> call"): UNREAD,
    ("lib/remove_due", "if next(kept) then", "next(kept) -> true"): SLOWER,
    (
        "lib/remove_due",
        "redis.pcall('DEL', unpack(index_keys, first, math.min(first + 999, #index_keys)))",
        "999 -> 1000",
    ): "a key is deleted twice",
    ("promote", _FIRST_MS, "0 -> 1"): "the first member alone is looked at",
    ("promote", _OTHER_LEADS, "0 -> 1"): "if nothing is delayed, nothing is overdue",
    ("promote", _NEXT_MS, "0, next_ms -> next_ms, 0"): SYMMETRIC,
    ("promote", _NOT_YET, "not first_ms or first_ms > 0 -> false"): NOTHING_DUE,
    ("promote", _NOT_YET, "or first_ms > 0 -> "): NOTHING_DUE,
    ("promote", _NOT_YET, "0 -> 1"): NOTHING_DUE,
    ("promote", _PROMOTE_ASKS, "1 -> 2"): ASKS,
    ("promote", _PROMOTE_EVENT, "and ids[i] -> "): "the server refuses an event without an id",
    ("lib/touch", "local why = type(reply) == 'table' and reply.err or ''", "'table' -> ''"): CLUSTER,
    ("lib/touch", _IS_ELSEWHERE, f"{_IS_ELSEWHERE} -> "): CLUSTER,
    ("lib/touch", _IS_ELSEWHERE, "or -> and"): CLUSTER,
    ("lib/touch", _IS_ELSEWHERE, "or string.find(why, 'rehashing', 1, true) ~= nil -> "): CLUSTER,
    ("lib/touch", "if is_elsewhere(reply) then return reply end", "is_elsewhere(reply) -> false"): CLUSTER,
    (
        "lib/touch",
        "local reply = redis.pcall('EXISTS', unpack(keys, first, math.min(first + 999, #keys)))",
        "999 -> 1000",
    ): "a key is touched twice",
    (
        "release_entries",
        "if trouble then return trouble end",
        "trouble -> false",
    ): "the next command fails, too",
    ("release_entries", "for i = 7, 5 + 2 * looked_at, 2 do", "5 -> 6"): "the step is two",
    ("release_entries", _TRY_XCLAIM, "0 -> 1"): ASKS,
    ("release_entries", _TOO_LATE, "floor -> ceil"): A_MILLISECOND,
    ("release_entries", _TOO_LATE, "> -> >="): A_MILLISECOND,
    ("upsert_repeatable", "local refused = refusal('ZADD', repeats, 'XX', 'GT', '-inf', key)", _SWAPPED_FLAGS): FLAGS,
    (
        "upsert_repeatable",
        "if firing_score and paused_score then redis.pcall('ZREM', paused, key) end"
        "  -- an official producer stored it: it knows no pauses",
        "and paused_score -> ",
    ): NOT_THERE,
    (
        "upsert_repeatable",
        "if paused_score then redis.pcall('ZREM', paused, key) end",
        "paused_score -> true",
    ): NOT_THERE,
    ("hold_lease", _HELD, "pcall -> call"): SAME_END,
    ("hold_lease", _LEASE_AND_NOW, "floor -> ceil"): A_MILLISECOND,
    ("hold_lease", _RENEWS_ITSELF, ">= -> >"): A_MILLISECOND,
    ("hold_lease", _TRY_ZADD_OF_LEASE, f"{_TRY_ZADD_OF_LEASE} -> "): LATER,
    ("hold_lease", _TRY_ZADD_OF_LEASE, _SWAPPED_FLAGS): FLAGS,
    ("hold_lease", _TRY_XCLAIM_TOO, "0 -> 1"): ASKS,
    (
        "hold_lease",
        "if #pending == 0 then return '' end",
        "#pending == 0 -> false",
    ): NO_IDS,
    ("hold_lease", "redis.call('XCLAIM', stream, group, consumer, 0, unpack(held))", "0 -> 1"): A_MILLISECOND,
    ("lib/complete_group", _TRY_IDS, "start, last -> last, start"): ASKS,
    ("lib/complete_group", _TRY_IDS, "1 -> 2"): ASKS,
    ("lib/complete_group", _TRY_REPORTS, "or -> and"): LATER,
    ("lib/complete_group", _TRY_REPORTS, f"{_TRY_REPORTS} -> "): LATER,
    ("lib/complete_group", _TRY_ZADD_OF_LEASE, f"{_TRY_ZADD_OF_LEASE} -> "): LATER,
    ("lib/complete_group", _TRY_ZADD_OF_LEASE, _SWAPPED_FLAGS): FLAGS,
    ("lib/complete_group", _TRY_XCLAIM_TOO, "0 -> 1"): ASKS,
    ("cancel", "local newest = is_lost and call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]", "1 -> 2"): FIRST_ALONE,
    ("read_cancellations", "local first = call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]", "1 -> 2"): FIRST_ALONE,
    (
        "read_cancellations",
        "redis.pcall('HDEL', notes, unpack(moot, start, math.min(start + 999, #moot)))",
        "999 -> 1000",
    ): TWICE,
    ("lib/is_unread", "for i = 1, #group, 2 do", "2 -> 3"): STEPS_OF_THREE,
    ("lib/find_unique", _LOOK_FROM, "0 -> 1"): CLOCK,
    ("lib/find_unique", _LOOK_FROM, "0, from_ms -> from_ms, 0"): SYMMETRIC,
    ("lib/find_unique", _LOOK_TO, "- -> +"): SLOWER,
    ("lib/find_unique", "local page = redis.call('XRANGE', stream, start, last, 'COUNT', 10)", "10 -> 11"): SLOWER,
    ("lib/find_unique", _IS_KNOWN, "> -> >="): A_MILLISECOND,
    ("lib/find_unique", _IS_KNOWN, "60000 -> 60001"): A_MILLISECOND,
    ("lib/find_unique", _IS_OVER, "> -> >="): A_MILLISECOND,
    ("lib/find_unique", _IS_OVER, "3600000 -> 3600001"): A_MILLISECOND,
    ("lib/find_unique", _DUE_BY_OURS, "1000 -> 1001"): A_MILLISECOND,
    ("lib/find_unique", _DUE_BY_OFFICIAL, "3660000 -> 3660001"): A_MILLISECOND,
    ("lib/find_unique", "if entry_id then", "entry_id -> true"): NO_ID,
    ("lib/server_refusal_of_add", _KEYS_OF_ADD, "only ~= '' -> true"): NOT_NEEDED,
    ("lib/server_refusal_of_add", _TRY_ZADD_OF_DELAYED, _SWAPPED_FLAGS): FLAGS,
    ("lib/server_refusal_of_add", _TRY_ZADD_OF_DELAYED, "'none' -> ''"): ASKS,
    ("lib/server_refusal_of_add", "local is_alone = #ARGV < first_job + words_a_job", "< -> <="): MORE_WORDS,
    ("lib/server_refusal_of_add", _MAY_XADD, "'*' -> ''"): ASKS,
    ("lib/server_refusal_of_add", _MAY_XADD, "'*', 'd' -> 'd', '*'"): ASKS,
    ("lib/server_refusal_of_add", _MAY_XADD, "'d' -> ''"): ASKS,
    ("lib/server_refusal_of_add", _MAY_XADD, "'d', '' -> '', 'd'"): ASKS,
    ("cancel", _DEL_OF_DELAYED, "unique, official -> official, unique"): SYMMETRIC,
    ("cancel", _DEL_OF_ENTRY, "unique, official -> official, unique"): SYMMETRIC,
    ("cancel", _CANCEL_PEXPIRE, "pcall -> redis.call"): HAS_RIGHT,
    ("empty_stream", _EMPTY_XDEL, "last -> true"): "of a key of another type it is refused, and nothing depends on it",
    ("empty_stream", _EMPTY_XDEL, "pcall -> call"): HAS_RIGHT,
    ("empty_stream", _EMPTY_XDEL, "'0-0' -> ''"): "that a write was sent counts, also if it failed",
    ("leave_group", _DEL_RECORD, "record, claim -> claim, record"): SYMMETRIC,
    ("lib/add_unless_taken", _DEL_INDEX, "pcall -> call"): HAS_RIGHT,
    ("lib/bury_member", _HOLDS_UP, "'-inf' -> ''"): NO_SCORE,
    ("lib/bury_member", _PUT_OFF, "pcall -> call"): HAS_RIGHT,
    ("lib/bury_member", _PUT_OFF, "60000 -> 60001"): A_MILLISECOND,
    ("lib/is_beside_other", "local location = redis.pcall('MGET', unique_key(job_id))[1]", "pcall -> call"): HAS_RIGHT,
    ("lib/is_index_of_other", _INDEX_START, "'table' -> ''"): UNREAD,
    ("lib/is_index_of_other", _INDEX_START, "or -> and"): SLOWER,
    ("lib/is_index_of_other", _INDEX_START, "or start == '' -> "): SLOWER,
    ("lib/is_index_of_other", "if other_bytes_left <= 0 then return true end", "<= -> <"): A_BYTE,
    ("lib/is_index_of_other", "if other_bytes_left <= 0 then return true end", "0 -> 1"): A_BYTE,
    ("lib/is_index_of_other", _READ_OTHER, "pcall -> call"): HAS_RIGHT,
    ("lib/is_index_of_other", _IS_OTHER, "< -> <="): A_BYTE,
    ("lib/is_index_of_other", _IS_OTHER, "0 -> 1"): A_BYTE,
    ("lib/names_entry", _NO_ENTRY, "<= -> <"): A_BYTE,
    ("lib/names_entry", _NO_ENTRY, "0 -> 1"): A_BYTE,
    ("lib/take_out", _TAKE_LOCATION, "pcall -> call"): HAS_RIGHT,
    ("promote", "or closed", "or closed -> "): SLOWER,
    ("lib/add_unless_taken", "if found and only == 'replace' then due_ms = found.due_ms or 0 end", "0 -> 1"): PAST,
    ("lib/store_job", "soonest = math.min(soonest, due_ms)", "soonest, due_ms -> due_ms, soonest"): SYMMETRIC,
    ("lib/store_job", _SET_UNIQUE, "0 -> 1"): "it shows for a window of a millisecond",
    ("lib/store_job", _OFFICIAL_MS, "3600000 -> 3600001"): A_MILLISECOND,
    ("lib/store_job", _SET_OFFICIAL, "window_ms, official_ms -> official_ms, window_ms"): SYMMETRIC,
    ("lib/store_job", "elseif is_official then", "is_official -> true"): NOT_THERE,
    ("lib/add_unless_taken", "local due_ms, relative = 0, string.match(ARGV[i + 3], '^%+(%d+)$')", "0 -> 1"): PAST,
    ("add_with_options", "call('HSET', ledger, slot, seen or '0 0')", "'0 0' -> ''"): TWO,
    ("add_with_options", "if not seen then redis.pcall('HDEL', ledger, slot) end", "pcall -> call"): TWO,
    ("add_with_options", _IS_SOONEST, "'-inf' -> ''"): NO_SCORE,
    ("due_repeatables", _DUE_MS, "0 -> 1"): FIRST_ALONE,
    ("due_repeatables", _ANOTHER_LEADS, "0 -> 1"): "if nothing is stored, nothing is overdue",
    ("due_repeatables", _ARE_DUE, "due_ms and due_ms <= 0 -> true"): SLOWER,
    ("due_repeatables", _ARE_DUE, "and due_ms <= 0 -> "): SLOWER,
    ("due_repeatables", _ARE_DUE, "<= -> <"): A_MILLISECOND,
    ("due_repeatables", _ARE_DUE, "0 -> 1"): SLOWER,
    ("due_repeatables", _LATER_ONE, "'(' -> ''"): A_MILLISECOND,
    ("due_repeatables", _LATER_ONE, "1 -> 2"): FIRST_ALONE,
    ("due_repeatables", "if is_elsewhere(bytes) then return bytes end", "is_elsewhere(bytes) -> false"): CLUSTER,
    ("due_repeatables", _BYTES_IN_ALL, "bytes, most_bytes -> most_bytes, bytes"): SYMMETRIC,
    ("due_repeatables", "if i > 1 and bytes_in_all > most_bytes_in_all then", "1 -> 2"): STEP_IS_TWO,
    ("due_repeatables", "if whole ~= tonumber(score) then", "whole ~= tonumber(score) -> true"): SLOWER,
    ("lib/other_leader", _LEASE_LEFT, ">= -> >"): A_MILLISECOND,
    ("renew_worker_lease", "or refusal('XCLAIM', stream, group, consumer, 0, '0-0', 'JUSTID')", "0 -> 1"): ASKS,
    ("renew_worker_lease", "if #mine > 0 then", "#mine > 0 -> true"): NO_IDS,
    ("renew_worker_lease", "if #mine > 0 then", "> -> >="): NO_IDS,
    ("renew_worker_lease", "redis.call('XCLAIM', stream, group, consumer, 0, unpack(mine))", "0 -> 1"): A_MILLISECOND,
    ("renew_worker_lease", _LEASES_OVER, "'-inf' -> ''"): NO_SCORE,
    ("renew_worker_lease", _LEASES_OVER, "'(' -> ''"): A_MILLISECOND,
    (
        "renew_worker_lease",
        "local is_paused = number_or(-1, redis.pcall('EXISTS', paused))",
        "1 -> 2",
    ): NOT_KNOWN,
    (
        "renew_worker_lease",
        "local has_cancellations = number_or(-1, redis.pcall('EXISTS', cancelled))",
        "1 -> 2",
    ): NOT_KNOWN,
    ("reschedule", "while i <= #ARGV do", "<= -> <"): MORE_WORDS,
    (
        "reschedule",
        "if held and has_notes then cancelled, unknown = is_cancelled(notes, id, ARGV[i + 4]) end",
        "and has_notes -> ",
    ): SLOWER,
    ("reschedule", "if words > 0 then event_words[id] = {i + 7, i + 6 + words} end", "0 -> 1"): MORE_WORDS,
    ("reschedule", _KEYS_OF_RESCHEDULED, "ARGV[i + 5] == '1' -> true"): NOT_NEEDED,
    (
        "lib/store_job",
        "local ttl_ms = window_ms > 0 and window_ms "
        "or math.min(math.max(0, due_ms - now_ms) + kept_ms, longest_ttl_ms)",
        "0 -> 1",
    ): A_MILLISECOND,
    ("cancel", "local now_ms = server_time_ms(math.floor)", "floor -> ceil"): A_MILLISECOND,
    ("bury", "while i <= #ARGV do", "<= -> <"): MORE_WORDS,
    (
        "bury",
        "if first_event <= last_event then event_words[id] = {first_event, last_event} end",
        "<= -> <",
    ): MORE_WORDS,
    (
        "bury",
        "if job_id ~= '' then append_job_keys(job_keys, job_id) end",
        "job_id ~= '' -> true",
    ): NOT_NEEDED,
    ("bury", "or refusal('XACK', stream, group, '0-0')", "group, '0-0' -> '0-0', group"): ASKS,
    (
        "bury",
        "if #moved > 0 and pcall('EXISTS', notes) == 1 then pcall('HDEL', notes, unpack(moved)) end",
        "#moved > 0 and pcall('EXISTS', notes) == 1 -> true",
    ): NOT_THERE,
    (
        "bury",
        "if #moved > 0 and pcall('EXISTS', notes) == 1 then pcall('HDEL', notes, unpack(moved)) end",
        "> -> >=",
    ): NOT_THERE,
    (
        "bury",
        "if #moved > 0 and pcall('EXISTS', notes) == 1 then pcall('HDEL', notes, unpack(moved)) end",
        "and -> or",
    ): NOT_THERE,
    ("write_completed", "for i = 3, #ARGV, 6 do keys[#keys + 1] = results .. ARGV[i] end", "3 -> 4"): SLOWER,
    ("write_completed", "for i = 3, #ARGV, 6 do keys[#keys + 1] = results .. ARGV[i] end", "6 -> 7"): SLOWER,
    (
        "write_completed",
        "if #keys > 0 and redis.pcall('EXISTS', unpack(keys)) ~= #keys then",
        "#keys > 0 and redis.pcall('EXISTS', unpack(keys)) ~= #keys -> true",
    ): SLOWER,
    ("write_completed", "if #keys > 0 and redis.pcall('EXISTS', unpack(keys)) ~= #keys then", "> -> >="): SLOWER,
    ("write_completed", "if #keys > 0 and redis.pcall('EXISTS', unpack(keys)) ~= #keys then", "and -> or"): SLOWER,
    (
        "write_completed",
        "if #keys > 0 and redis.pcall('EXISTS', unpack(keys)) ~= #keys then",
        "and redis.pcall('EXISTS', unpack(keys)) ~= #keys -> ",
    ): SLOWER,
    (
        "write_completed",
        "local why = redis.pcall('SET', key, '', 'NX', 'XX').err  -- writes never: NX contradicts XX",
        "'', 'NX' -> 'NX', ''",
    ): ASKS,
    (
        "write_completed",
        "local why = redis.pcall('SET', key, '', 'NX', 'XX').err  -- writes never: NX contradicts XX",
        "'NX' -> ''",
    ): ASKS,
    (
        "write_completed",
        "local why = redis.pcall('SET', key, '', 'NX', 'XX').err  -- writes never: NX contradicts XX",
        "'NX', 'XX' -> 'XX', 'NX'",
    ): FLAGS,
    (
        "write_completed",
        "local why = redis.pcall('SET', key, '', 'NX', 'XX').err  -- writes never: NX contradicts XX",
        "'XX' -> ''",
    ): ASKS,
    (
        "ack_with_result",
        "if results > 0 then keys = {ARGV[last_entry + 1], ARGV[last_result - 1]} end",
        "results > 0 -> true",
    ): NOT_NEEDED,
    (
        "ack_with_result",
        "if results > 0 then keys = {ARGV[last_entry + 1], ARGV[last_result - 1]} end",
        "> -> >=",
    ): NOT_NEEDED,
    (
        "ack_with_result",
        "for i = last_result + 1, #ARGV, 2 do append_job_keys(keys, ARGV[i + 1]) end",
        "+ -> -",
    ): NOT_NEEDED,
    (
        "ack_with_result",
        "local refusing = touch(keys) or refusal('XACK', stream, group, '0-0') or refusal('XDEL', stream, '0-0')",
        "group, '0-0' -> '0-0', group",
    ): ASKS,
    ("ack_with_result", "if at_once then", "at_once -> true"): SLOWER,
    ("ack_with_result", "if at_once and results > 0 then", "0 -> 1"): SLOWER,
    (
        "ack_unique",
        "local refused = touch(job_keys) or refusal('XACK', stream, group, '0-0') or refusal('XDEL', stream, '0-0')",
        "group, '0-0' -> '0-0', group",
    ): ASKS,
    (
        "cancel",
        "if where ~= '' then entry_id, name, trouble = find_entry(where, job_id) end",
        "where ~= '' -> true",
    ): NO_ID,
    (
        "bury",
        "if #moved > 0 and pcall('EXISTS', notes) == 1 then pcall('HDEL', notes, unpack(moved)) end",
        "and pcall('EXISTS', notes) == 1 -> ",
    ): NOT_THERE,
    ("bury", "local trimmed = pcall('XTRIM', dead, 'MAXLEN', '~', max_len, 'LIMIT', 1000)", "1000 -> 1001"): BY_NODE,
    (
        "bury",
        "if type(trimmed) == 'number' and trimmed > 0 then pcall('INCRBY', dropped, trimmed) end",
        "0 -> 1",
    ): BY_NODE,
    ("write_completed", "return (#ARGV - 2) / 6", "- -> +"): "a reply has the whole part of a number",
    (
        "take_over",
        "local since_lease_ms = lease > 0 and math.max(0, server_time_ms(math.floor) - lease) or 0"
        "  -- 0: it has left, whenever that was",
        "0 -> 1",
    ): A_MILLISECOND,
    (
        "take_over",
        "local untouched_ms = math.min(since_lease_ms, min_idle_ms)",
        "since_lease_ms, min_idle_ms -> min_idle_ms, since_lease_ms",
    ): SYMMETRIC,
    (
        "take_over",
        "page = redis.call('XPENDING', stream, group, start, '+', math.min(count, most_seen), from)",
        "count, most_seen -> most_seen, count",
    ): SYMMETRIC,
    (
        "take_over",
        "until #page == 0 or seen >= most_seen or #taken >= count or bytes_left <= 0",
        "or bytes_left <= 0 -> ",
    ): SLOWER,
    ("take_over", "until #page == 0 or seen >= most_seen or #taken >= count or bytes_left <= 0", "<= -> <"): SLOWER,
    (
        "take_over",
        "until #page == 0 or seen >= most_seen or #taken >= count or bytes_left <= 0",
        "0 -> 1",
    ): "the next call goes on where this one ends",
    ("take_over", "if #redis.call('XPENDING', stream, group, '-', '+', 1, from) == 0 then", "1 -> 2"): FIRST_ALONE,
    ("claim_name", "local lease = tonumber(redis.call('ZSCORE', workers, consumer) or 0)", "0 -> 1"): PAST,
    (
        "claim_name",
        "local lease_left_ms = math.min(lease - server_time_ms(math.floor), kept_ms)",
        "floor -> ceil",
    ): A_MILLISECOND,
    ("claim_name", "local is_claimed = claim_left_ms > 0 and claim_left_ms <= kept_ms", "0 -> 1"): A_MILLISECOND,
    ("claim_name", "if confirms and is_claimed or not confirms and lease_left_ms > 0 then", "> -> >="): A_MILLISECOND,
    ("claim_name", "if confirms and is_claimed or not confirms and lease_left_ms > 0 then", "0 -> 1"): A_MILLISECOND,
    (
        "claim_name",
        "return {math.min(lease, 2 ^ 53), math.max(lease_left_ms, 1)}",
        "lease_left_ms, 1 -> 1, lease_left_ms",
    ): SYMMETRIC,
    ("claim_name", "return {math.min(lease, 2 ^ 53), math.max(lease_left_ms, 1)}", "1 -> 2"): A_MILLISECOND,
    ("claim_name", "if fresh_ms > 0 then return {0, fresh_ms} end", "0 -> 1"): A_MILLISECOND,
    ("move_delayed", "local refused = touch(job_keys) or refusal('ZREMRANGEBYRANK', delayed, 1, 0)", "1 -> 2"): ASKS,
    ("purge_waiting", "for i = 1, #group, 2 do", "2 -> 3"): STEPS_OF_THREE,
    ("purge_waiting", "if refused then return refused end", "refused -> false"): CLUSTER,
    (
        "register_queue",
        "if redis.acl_check_cmd and not redis.acl_check_cmd('ZADD', registry, 0, queue) then",
        "0 -> 1",
    ): ASKS,
    (
        "register_queue",
        "if redis.acl_check_cmd and not redis.acl_check_cmd('ZADD', registry, 0, queue) then",
        "0, queue -> queue, 0",
    ): ASKS,
    ("register_queue", "local now_ms = server_time_ms(math.floor)", "floor -> ceil"): A_MILLISECOND,
    (
        "lib/release_id",
        "if not (found[1] or is_official) then return end",
        "not (found[1] or is_official) -> false",
    ): NOT_THERE,
    (
        "lib/other_leader",
        "if left_ms >= 0 and left_ms <= longest_ms then return left_ms, leader or 'a ' .. kind, 0 end",
        "0 -> 1",
    ): A_MILLISECOND,
    ("renew_worker_lease", "local now_ms = server_time_ms(math.floor)", "floor -> ceil"): A_MILLISECOND,
    (
        "register_queue",
        "if type(count) == 'table' then return count.err end",
        "type(count) == 'table' -> false",
    ): SAME_END,
    ("register_queue", "if type(count) == 'table' then return count.err end", "'table' -> ''"): SAME_END,
    ("reschedule", "or refusal('XACK', stream, group, '0-0')", "group, '0-0' -> '0-0', group"): ASKS,
    ("reschedule", "or refusal('ZADD', delayed, 'XX', 'GT', '-inf', 'none')", "'XX', 'GT' -> 'GT', 'XX'"): FLAGS,
    ("reschedule", "or refusal('ZADD', delayed, 'XX', 'GT', '-inf', 'none')", "'none' -> ''"): ASKS,
    (
        "lib/postpone",
        "redis.pcall('PEXPIRE', official_key(job_id), math.min(math.max(1000, delay_ms) + 3600000, longest_ttl_ms))",
        "1000 -> 1001",
    ): A_MILLISECOND,
    (
        "lib/postpone",
        "redis.pcall('PEXPIRE', official_key(job_id), math.min(math.max(1000, delay_ms) + 3600000, longest_ttl_ms))",
        "1000, delay_ms -> delay_ms, 1000",
    ): SYMMETRIC,
    (
        "lib/postpone",
        "redis.pcall('PEXPIRE', official_key(job_id), math.min(math.max(1000, delay_ms) + 3600000, longest_ttl_ms))",
        "3600000 -> 3600001",
    ): A_MILLISECOND,
    (
        "lib/release_id",
        "if is_own and is_official and not is_delayed then redis.pcall('DEL', official) end",
        "and is_official -> ",
    ): NOT_THERE,
    ("rebuild_group", "local pending = pcall('XPENDING', stream, group, '-', '+', 1)", "'-', '+' -> '+', '-'"): ASKS,
    ("rebuild_group", "local pending = pcall('XPENDING', stream, group, '-', '+', 1)", "1 -> 2"): ASKS,
    ("purge_delayed", "if refused then return refused end", "refused -> false"): CLUSTER,
    ("write_events", "while i <= #ARGV do", "<= -> <"): MORE_WORDS,
    (
        "leave_group",
        "local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1, consumer)",
        "1 -> 2",
    ): FIRST_ALONE,
}

SORTED = frozenset(
    (
        "ack",
        "ack_unique",
        "ack_with_result",
        "add",
        "add_with_options",
        "bury",
        "bury_repeatable",
        "cancel",
        "claim_held",
        "claim_name",
        "due_repeatables",
        "empty_stream",
        "fire",
        "hold_lease",
        "leave_group",
        "lib/add_entry",
        "lib/add_unless_taken",
        "lib/bury_member",
        "lib/complete_group",
        "lib/dead_letter",
        "lib/due_in",
        "lib/find_entry",
        "lib/find_unique",
        "lib/is_beside_other",
        "lib/is_cancelled",
        "lib/is_held",
        "lib/is_index_of_other",
        "lib/is_unread",
        "lib/keys_follow",
        "lib/most_for_heir",
        "lib/names_entry",
        "lib/other_leader",
        "lib/point_at_entry",
        "lib/postpone",
        "lib/read_due",
        "lib/read_spec",
        "lib/read_unique_keys",
        "lib/release_id",
        "lib/remove_due",
        "lib/remove_moved",
        "lib/remove_waiting",
        "lib/server_refusal_of_add",
        "lib/store_job",
        "lib/take_lease",
        "lib/take_out",
        "lib/touch",
        "lib/unfinished_group",
        "lib/with_expiry",
        "lib/write_cancelled",
        "lib/write_waiting_event",
        "move_delayed",
        "remove_pause_or_resume_repeatable",
        "promote",
        "purge_delayed",
        "purge_waiting",
        "read_cancellations",
        "register_queue",
        "release_entries",
        "release_leader_lease",
        "renew_worker_lease",
        "replay",
        "reschedule",
        "take_over",
        "upsert_repeatable",
        "write_completed",
        "write_events",
    )
)
