"""Mutants of the scripts that add jobs."""

from __future__ import annotations

from tests.scripts.mutants.mutant import CALL_TIME, CEIL, CLOCK_AHEAD, CLOCK_BEHIND, FLOOR, Mutant

ADD = [
    Mutant("add", "the ledger is not asked", "if seen then", "if false then"),
    Mutant("add", "the ledger lets the same number pass", "tonumber(last) >= number", "tonumber(last) > number"),
    Mutant("add", "the ledger lets older numbers pass", "tonumber(last) >= number", "tonumber(last) == number"),
    Mutant("add", "numbers are compared as text", "tonumber(last) >= number", "last >= ARGV[2]"),
    Mutant("add", "the ledger is not written", "call('HSET', ledger, slot, ARGV[2] .. ' ' .. taken)", ""),
    Mutant("add", "the other kind of batch has no late copies", "tonumber(taken) or 0", "tonumber(taken) or jobs"),
    Mutant("add", "the other kind of batch is not known", "(%w+)$", "(%d+)$"),
    Mutant("add", "the ledger forgets how many were taken", "ARGV[2] .. ' ' .. taken", "ARGV[2] .. ' ' .. jobs"),
    Mutant("add", "the ledger has no end", "call('PEXPIRE', ledger, ledger_ttl_ms)", ""),
    Mutant("add", "all slots are one", "call('HGET', ledger, slot)", "call('HGET', ledger, '0')"),
    Mutant("add", "needed is ignored", "if room < needed then", "if false then"),
    Mutant("add", "the bound is ignored", "if max_stream_len > 0 then", "if false then"),
    Mutant("add", "a bound of one is none", "if max_stream_len > 0 then", "if max_stream_len > 1 then"),
    Mutant("add", "a run is added whole though there is no room", "math.min(run, left)", "run"),
    Mutant("add", "an empty name is a name", "if name == '' then", "if false then"),
    Mutant("add", "the stream is trimmed", "'*', 'd', ARGV[i], 'n', name", "'MAXLEN', 2, '*', 'd', ARGV[i], 'n', name"),
]

ADD_ON_TERMS = [
    Mutant("add_on_terms", "the ledger is not asked", "if seen then", "if false then"),
    Mutant(
        "add_on_terms", "the ledger lets the same number pass", "tonumber(last) >= number", "tonumber(last) > number"
    ),
    Mutant(
        "add_on_terms", "the ledger lets older numbers pass", "tonumber(last) >= number", "tonumber(last) == number"
    ),
    Mutant("add_on_terms", "numbers are compared as text", "tonumber(last) >= number", "last >= ARGV[2]"),
    Mutant("add_on_terms", "the other kind of batch is not known", "(%w*)$", "(%a*)$"),
    Mutant("add_on_terms", "the ledger is not written", "call('HSET', ledger, slot, ARGV[2] .. ' ' .. answer)", ""),
    Mutant("add_on_terms", "the ledger has no end", "call('PEXPIRE', ledger, ledger_ttl_ms)", ""),
    Mutant("add_on_terms", "all slots are one", "call('HGET', ledger, slot)", "call('HGET', ledger, '0')"),
    Mutant("add_on_terms", "the stream's type is found out too late", "{[stream] = 'stream', [delayed]", "{[delayed]"),
    Mutant("add_on_terms", "the set's type is found out too late", "'stream', [delayed] = 'zset'}", "'stream'}"),
    Mutant("add_on_terms", "there must be something already", "found ~= 'none' and found ~= kind", "found ~= kind"),
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
    Mutant("add_on_terms", "there is always room", "if room < 1 and not has_place then return nil end", ""),
    Mutant("add_on_terms", "a replacement is lost for want of room", " and not has_place", ""),
    Mutant("add_on_terms", "room is not used up", "room = room - 1", ""),
    Mutant("add_on_terms", "an empty name is a name", "if name ~= '' then", "if true then"),
    Mutant("add_on_terms", "the name is lost", "if name ~= '' then", "if false then"),
    Mutant(
        "add_on_terms", "letters are taken for bytes", "if is_only and #id >= 26 then", "if is_only and #id == 26 then"
    ),
    Mutant("add_on_terms", "a marker does not show", "if is_only and #id >= 26 then", "if false then"),
    Mutant("add_on_terms", "every id like ours shows a marker", "if is_only and #id >= 26", "if #id == 26"),
    Mutant("add_on_terms", "every marker shows", "if is_only and #id >= 26", "if is_only"),
    Mutant(
        "add_on_terms", "the stream is trimmed", "call('XADD', stream, '*'", "call('XADD', stream, 'MAXLEN', 2, '*'"
    ),
    Mutant("add_on_terms", "a later millisecond is not later", "ms > other_ms or (", "("),
    Mutant("add_on_terms", "milliseconds do not matter", "ms == other_ms and ", ""),
    Mutant("add_on_terms", "sequences do not matter", " and tonumber(sequence) > tonumber(other_sequence)", ""),
    Mutant(
        "add_on_terms",
        "sequences are text",
        "tonumber(sequence) > tonumber(other_sequence)",
        "sequence > other_sequence",
    ),
    Mutant("add_on_terms", "milliseconds are text", "ms, other_ms = tonumber(ms), tonumber(other_ms)", ""),
    Mutant("add_on_terms", "the last delivered waits", "tonumber(sequence) >", "tonumber(sequence) >="),
    Mutant("add_on_terms", "what runs is replaced", "group[i + 1]) then return false end", "group[i + 1]) then end"),
    Mutant("add_on_terms", "nothing waits", "  return true\nend", "  return false\nend"),
    Mutant("add_on_terms", "what is gone waits", "#call('XRANGE', stream, place, place) == 0 or ", ""),
    Mutant("add_on_terms", "the replaced stays in the stream", "call('XDEL', stream, place)", ""),
    Mutant("add_on_terms", "the replaced keeps its room", "    room = room + 1\n", ""),
    Mutant("add_on_terms", "one in the stream is due at its old time", "    return 0\n", "    return now_ms + 1000\n"),
    Mutant("add_on_terms", "the replaced stays delayed", "if due_ms then call('ZREM', delayed, member) end", ""),
    Mutant("add_on_terms", "a stale index is enough", "member and call('ZSCORE', delayed, member)", "member and 0"),
    Mutant(
        "add_on_terms", "a stale marker stays", "== 0\nend\n\nlocal function mark", "< 0\nend\n\nlocal function mark"
    ),
    Mutant("add_on_terms", "a window goes stale", "'^%d+-') and", "'%d+-') and"),
    Mutant("add_on_terms", "a window is none", "local sign = window_ms > 0 and 'w' or ''", "local sign = ''"),
    Mutant("add_on_terms", "everything is a window", "local sign = window_ms > 0 and 'w' or ''", "local sign = 'w'"),
    Mutant("add_on_terms", "a window lasts as long as any", "window_ms > 0 and window_ms or", "false or"),
    Mutant("add_on_terms", "the marker ends with the due time", "now_ms) + kept_ms, longest", "now_ms), longest"),
    Mutant(
        "add_on_terms",
        "the marker ends before",
        "math.min(math.max(0, due_ms - now_ms) + kept_ms,",
        "math.min(kept_ms,",
    ),
    Mutant("add_on_terms", "overdue takes from it", "math.max(0, due_ms - now_ms)", "(due_ms - now_ms)"),
    Mutant("add_on_terms", "the marker has no end", ", sign .. place, 'PX', ttl_ms)", ", sign .. place)"),
    Mutant("add_on_terms", "every id is unique", "if only == '' then return put", "if false then return put"),
    Mutant("add_on_terms", "no id is", "if only == '' then return put", "if true then return put"),
    Mutant("add_on_terms", "no room is no trouble", "and 'n' or 'f' end", "and 'n' or 'n' end"),
    Mutant("add_on_terms", "staleness is not asked", "if marker and not is_stale(marker) then", "if marker then"),
    Mutant("add_on_terms", "a window hides the place", "string.gsub(marker, '^w', '')", "marker"),
    Mutant("add_on_terms", "the kept is replaced", "only ~= 'keep' and take_away", "take_away"),
    Mutant("add_on_terms", "replacing moves the time", "if only == 'replace' then due_ms = was_due_ms end", ""),
    Mutant("add_on_terms", "postponing does not", "if only == 'replace' then", "if true then"),
    Mutant(
        "add_on_terms",
        "a replacement has no marker",
        "mark(id, put(name, envelope, id, due_ms, true, true), due_ms, window_ms)",
        "put(name, envelope, id, due_ms, true, true)",
    ),
    Mutant("add_on_terms", "a replacement shows no marker", "due_ms, true, true)", "due_ms, false, true)"),
    Mutant("add_on_terms", "a replacement is told as new", "return 'r'", "return 'n'"),
    Mutant("add_on_terms", "no room leaves a marker", "if not place then return 'f' end", "place = place or 'd'"),
    Mutant(
        "add_on_terms", "the new have no marker", "  mark(id, place, due_ms, window_ms)\n  return 'n'", "  return 'n'"
    ),
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
