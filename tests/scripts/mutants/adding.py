"""Mutants of the scripts that add jobs."""

from __future__ import annotations

from tests.scripts.mutants.mutant import CALL_TIME, CEIL, CLOCK_AHEAD, CLOCK_BEHIND, FLOOR, Mutant, compares_ids

ADD = [
    Mutant("add", "the ledger is not asked", "if seen then", "if false then"),
    Mutant("add", "the ledger lets the same number pass", "tonumber(last) >= number", "tonumber(last) > number"),
    Mutant("add", "the ledger lets older numbers pass", "tonumber(last) >= number", "tonumber(last) == number"),
    Mutant("add", "numbers are compared as text", "tonumber(last) >= number", "last >= ARGV[2]"),
    Mutant("add", "the ledger is not written", "call('HSET', ledger, slot, ARGV[2] .. ' ' .. taken)", ""),
    Mutant("add", "the other kind of batch has no late copies", "tonumber(taken) or 0", "tonumber(taken) or jobs"),
    Mutant("add", "the other kind of batch is not known", "(%w+)$", "(%d+)$"),
    Mutant("add", "the ledger forgets how many were taken", "ARGV[2] .. ' ' .. taken", "ARGV[2] .. ' ' .. jobs"),
    Mutant("add", "the ledger has no end", "pcall('PEXPIRE', ledger, ledger_ttl_ms)", ""),
    Mutant("add", "what is refused is remembered as taken", "call('HSET', ledger, slot, seen or '0 0')", ""),
    Mutant(
        "add", "what is refused in part is remembered whole", "call('HSET', ledger, slot, ARGV[2] .. ' ' .. added)", ""
    ),
    Mutant("add", "what is refused is not told", "return trouble", "return 0"),
    Mutant("add", "all slots are one", "call('HGET', ledger, slot)", "call('HGET', ledger, '0')"),
    Mutant("add", "needed is ignored", "if room < needed then", "if false then"),
    Mutant("add", "the bound is ignored", "if max_stream_len > 0 then", "if false then"),
    Mutant("add", "a bound of one is none", "if max_stream_len > 0 then", "if max_stream_len > 1 then"),
    Mutant("add", "a run is added whole though there is no room", "math.min(run, taken - added)", "run"),
    Mutant("add", "an empty name is a name", "if name == '' then", "if false then"),
    Mutant("add", "the stream is trimmed", "'*', 'd', ARGV[i], 'n', name", "'MAXLEN', 2, '*', 'd', ARGV[i], 'n', name"),
]

ADD_ON_TERMS = [
    Mutant("add_on_terms", "the ledger is not asked", "if last and tonumber", "if false and tonumber"),
    Mutant(
        "add_on_terms", "the ledger lets the same number pass", "tonumber(last) >= number", "tonumber(last) > number"
    ),
    Mutant(
        "add_on_terms", "the ledger lets older numbers pass", "tonumber(last) >= number", "tonumber(last) == number"
    ),
    Mutant("add_on_terms", "numbers are compared as text", "tonumber(last) >= number", "last >= ARGV[2]"),
    Mutant("add_on_terms", "the other kind of batch is not known", "(%w*)$", "(%a*)$"),
    Mutant(
        "add_on_terms", "the ledger is not written", "redis.pcall('HSET', ledger, slot, ARGV[2] .. ' ' .. answer)", ""
    ),
    Mutant("add_on_terms", "the ledger has no end", "redis.pcall('PEXPIRE', ledger, ledger_ttl_ms)", ""),
    Mutant("add_on_terms", "all slots are one", "call('HGET', ledger, slot)", "call('HGET', ledger, '0')"),
    Mutant(
        "add_on_terms",
        "the set's type is found out too late",
        "  or refusal('ZADD', delayed, 'XX', 'GT', '-inf', 'none')\n",
        "",
    ),
    Mutant(
        "add_on_terms",
        "a user who may not mark is told so too late",
        "  or refusal('SET', prefix .. ':unique:', '', 'XX')\n",
        "",
    ),
    Mutant(
        "add_on_terms",
        "a user who may not remove from the stream is told so too late",
        "refusal('XDEL', stream, '0-0') or ",
        "",
    ),
    Mutant(
        "add_on_terms",
        "a user who may not remove what is delayed is told so too late",
        " or refusal('ZREM', delayed, '')",
        "",
    ),
    Mutant("add_on_terms", "who keeps needs to remove", "if may_replace then refused", "if true then refused"),
    Mutant("add_on_terms", "a clock that is behind", CALL_TIME, CLOCK_BEHIND),
    Mutant("add_on_terms", "a clock that is ahead", CALL_TIME, CLOCK_AHEAD),
    Mutant("add_on_terms", "early by a part of a millisecond", CEIL, FLOOR),
    Mutant("add_on_terms", "the bound is ignored", "if max_stream_len > 0 then", "if false then"),
    Mutant("add_on_terms", "a bound of one is none", "if max_stream_len > 0 then", "if max_stream_len > 1 then"),
    Mutant("add_on_terms", "needed is ignored", "local is_refused = room < needed", "local is_refused = false"),
    Mutant("add_on_terms", "what fits exactly is refused", "room < needed", "room <= needed"),
    Mutant("add_on_terms", "a batch is torn", "if needed > 0 then room = math.huge end", ""),
    Mutant("add_on_terms", "all are taken whole", "if needed > 0 then", "if true then"),
    Mutant("add_on_terms", "what is due now is delayed", "if due_ms > now_ms then", "if due_ms >= 0 then"),
    Mutant("add_on_terms", "members have no frame", "struct.pack('<I4', #name) .. name .. envelope", "envelope"),
    Mutant("add_on_terms", "lengths the other way round", "'<I4'", "'>I4'"),
    Mutant("add_on_terms", "there is no index", "call('SET', prefix .. ':didx:' .. id, member, 'PX',", "math.min(1,"),
    Mutant("add_on_terms", "the index ends when the job is due", "due_ms - now_ms + kept_ms, l", "due_ms - now_ms, l"),
    Mutant("add_on_terms", "the index ends before", "math.min(due_ms - now_ms + kept_ms,", "math.min(kept_ms,"),
    Mutant("add_on_terms", "a TTL that Redis does not take", "longest_ms = 9e15", "longest_ms = 9e300"),
    Mutant("add_on_terms", "nobody is told", "soonest = math.min(soonest, due_ms)", ""),
    Mutant(
        "add_on_terms", "the last is taken for the soonest", "soonest = math.min(soonest, due_ms)", "soonest = due_ms"
    ),
    Mutant("add_on_terms", "there is always room", "elseif room >= 1 or found then", "else"),
    Mutant("add_on_terms", "a replacement is lost for want of room", "room >= 1 or found then", "room >= 1 then"),
    Mutant("add_on_terms", "room is not used up", "    room = room - 1\n", ""),
    Mutant("add_on_terms", "an empty name is a name", "if name ~= '' then", "if true then"),
    Mutant("add_on_terms", "the name is lost", "if name ~= '' then", "if false then"),
    Mutant(
        "add_on_terms", "letters are taken for bytes", "if is_only and #id >= 26 then", "if is_only and #id == 26 then"
    ),
    Mutant("add_on_terms", "a marker does not show", "if is_only and #id >= 26 then", "if false then"),
    Mutant("add_on_terms", "every id like ours shows a marker", "if is_only and #id >= 26", "if #id == 26"),
    Mutant("add_on_terms", "every marker shows", "if is_only and #id >= 26", "if is_only"),
    Mutant(
        "add_on_terms",
        "the stream is trimmed",
        "'XADD', stream, '*', unpack",
        "'XADD', stream, 'MAXLEN', 2, '*', unpack",
    ),
    Mutant("add_on_terms", "a used up stream is no trouble", "  failure = entry_id\n", ""),
    Mutant("add_on_terms", "a used up stream tears the batch", "not string.find(answer, '[nr]')", "true"),
    *[mutant for mutant in compares_ids("add_on_terms") if "as numbers" not in mutant.title],
    Mutant("add_on_terms", "what runs is replaced", "group[i + 1]) then return false end", "group[i + 1]) then end"),
    Mutant("add_on_terms", "nothing waits", "  return true\nend", "  return false\nend"),
    Mutant("add_on_terms", "the replaced stays in the stream", "redis.call('XDEL', stream, found.entry)", ""),
    Mutant("add_on_terms", "the replaced stays delayed", "redis.call('ZREM', delayed, found.member)", ""),
    Mutant("add_on_terms", "the same again is lost", "(found.entry or found.member ~= member)", "true"),
    Mutant("add_on_terms", "the replaced keeps its room", "if found and found.entry then room = room + 1 end", ""),
    Mutant("add_on_terms", "one in the stream is due at its old time", "found.due_ms or 0", "found.due_ms or 9e12"),
    Mutant(
        "add_on_terms", "a stale index is enough", "member and redis.call('ZSCORE', delayed, member)", "member and 0"
    ),
    Mutant("add_on_terms", "a stale marker stays", "if entry[1] then return {entry", "if true then return {entry"),
    Mutant("add_on_terms", "a window hides the place", "'^w?(%d+-%d+)$'", "'^(%d+-%d+)$'"),
    Mutant("add_on_terms", "a window goes stale", "== 'w' then return {}, is_official end", "== 'w' then end"),
    Mutant("add_on_terms", "their markers are none", "if not (place or is_official) then", "if not place then"),
    Mutant(
        "add_on_terms",
        "official promotion frees the id",
        "  if place == 'd' then\n    return",
        "  if false then\n    return",
    ),
    Mutant("add_on_terms", "their markers last an hour too long", "- 3660000, now", "+ 3660000, now"),
    Mutant("add_on_terms", "a promoted job is looked for too late", "- kept_ms - 1000, now", "+ 5000, now"),
    Mutant("add_on_terms", "only the first page is looked at", "until #page < 10", "until true"),
    Mutant("add_on_terms", "the look has no bound", "entries_left = entries_left - #page", ""),
    Mutant("add_on_terms", "what was looked through is forgotten", "entries_by_id[id] = entry[1]", "do end"),
    Mutant(
        "add_on_terms",
        "an earlier time is not looked at",
        "if due_ms < looked_from_ms and",
        "if looked_from_ms == math.huge and",
    ),
    Mutant("add_on_terms", "what is beyond the look is done", " and looked_to_ms > due_ms + 60000", ""),
    Mutant("add_on_terms", "promotion is never late", "looked_to_ms > due_ms + 60000", "looked_to_ms > due_ms"),
    Mutant(
        "add_on_terms", "nothing is known of later times", "looked_to_ms > due_ms + 60000", "looked_to_ms == math.huge"
    ),
    Mutant("add_on_terms", "an unknown place has no end", " or now_ms > due_ms + 3600000 then", " then"),
    Mutant("add_on_terms", "large entries are looked at for ever", "bytes_left = bytes_left - #entry[2][i + 1]", ""),
    Mutant("add_on_terms", "what was not found is done", "  return {}\nend", "  return nil\nend"),
    Mutant("add_on_terms", "a window is none", "(window_ms > 0 and 'w' or '')", "''"),
    Mutant("add_on_terms", "everything is a window", "(window_ms > 0 and 'w' or '')", "'w'"),
    Mutant("add_on_terms", "a window lasts as long as any", "window_ms > 0 and window_ms or", "false or"),
    Mutant("add_on_terms", "the marker ends with the due time", "now_ms) + kept_ms, longest", "now_ms), longest"),
    Mutant(
        "add_on_terms",
        "the marker ends before",
        "math.min(math.max(0, due_ms - now_ms) + kept_ms,",
        "math.min(kept_ms,",
    ),
    Mutant("add_on_terms", "overdue takes from it", "math.max(0, due_ms - now_ms)", "(due_ms - now_ms)"),
    Mutant("add_on_terms", "the marker has no end", ".. place, 'PX', ttl_ms)", ".. place)"),
    Mutant(
        "add_on_terms",
        "official producers see everything",
        "  if place == 'd' then\n    local",
        "  if true then\n    local",
    ),
    Mutant(
        "add_on_terms",
        "official producers see nothing",
        "  if place == 'd' then\n    local",
        "  if false then\n    local",
    ),
    Mutant("add_on_terms", "they see a short delay no longer", "1000 * math.max(1, ", "1000 * math.max(-1, -1 + "),
    Mutant(
        "add_on_terms",
        "they see a window for longer",
        "window_ms > 0 and math.min(window_ms, official_ms) or official_ms",
        "official_ms",
    ),
    Mutant("add_on_terms", "a stale one of theirs stays", "redis.pcall('DEL', prefix .. ':dlid:' .. id)", "do end"),
    Mutant("add_on_terms", "every id is unique", "if only ~= '' then found,", "if true then found,"),
    Mutant("add_on_terms", "no id is", "if only ~= '' then found,", "if false then found,"),
    Mutant(
        "add_on_terms", "no room is no trouble", "if not place then return 'f' end", "if not place then return 'n' end"
    ),
    Mutant("add_on_terms", "the kept is replaced", "only == 'keep' or not is_waiting", "not is_waiting"),
    Mutant("add_on_terms", "replacing moves the time", "if found and only == 'replace' then", "if false then"),
    Mutant("add_on_terms", "postponing does not", "if found and only == 'replace' then", "if found then"),
    Mutant("add_on_terms", "there is no marker", "if only ~= '' then mark(", "if false then mark("),
    Mutant("add_on_terms", "a replacement is told as new", "return found and 'r' or 'n'", "return 'n'"),
    Mutant("add_on_terms", "no room leaves a marker", "if not place then return 'f' end", "place = place or 'd'"),
    Mutant(
        "add_on_terms",
        "from now is taken for a time",
        "due_ms = now_ms + tonumber(relative)",
        "due_ms = tonumber(relative)",
    ),
    Mutant(
        "add_on_terms",
        "a time is taken for from now",
        "due_ms = tonumber(ARGV[i + 3])",
        "due_ms = now_ms + tonumber(ARGV[i + 3])",
    ),
    Mutant("add_on_terms", "refused are added", "if is_refused then", "if false then"),
    Mutant("add_on_terms", "every job is told of", "if tonumber(first[2]) >= soonest then", "if true then"),
    Mutant("add_on_terms", "one due with the first is not told of", ">= soonest then", "> soonest then"),
    Mutant("add_on_terms", "the time itself is told", "soonest - now_ms)", "soonest)"),
    Mutant(
        "add_on_terms",
        "jobs that are due now are told of",
        "if soonest < math.huge then",
        "soonest = math.min(soonest, now_ms)\nif true then",
    ),
]
