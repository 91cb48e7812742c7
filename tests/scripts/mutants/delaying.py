"""Mutants of the scripts about delayed jobs."""

from __future__ import annotations

from tests.scripts.mutants.mutant import (
    CALL_TIME,
    CEIL,
    CLOCK_AHEAD,
    CLOCK_BEHIND,
    FLOOR,
    Mutant,
    leads_alone,
    reads_ids,
)

KEPT_SIGN = "(sub(marker, 1, 1) == 'w' and 'w' or '') .. entry_id, 'KEEPTTL'"

PROMOTE = [
    Mutant("promote", "members stay delayed", "call('ZREMRANGEBYRANK', delayed, 0, #members - 1)", ""),
    Mutant("promote", "the last member stays delayed", "0, #members - 1)", "0, #members - 2)"),
    Mutant("promote", "one that is not due goes too", "0, #members - 1)", "0, #members)"),
    Mutant("promote", "bad members are promoted", "if size and 4 + size < #member then", "if size then"),
    Mutant("promote", "short members end the script", "#member >= 4 and struct.unpack", "struct.unpack"),
    Mutant("promote", "an empty envelope is an envelope", "4 + size < #member", "4 + size <= #member"),
    Mutant(
        "promote",
        "one bad member stops the others",
        "'detail', 'not a delayed member')",
        "'detail', 'not a delayed member')\n      break",
    ),
    Mutant(
        "promote",
        "bad members vanish",
        "call('XADD', dead, '*', 'd', member, 'source_id', '', 'reason', 'malformed', 'detail', "
        "'not a delayed member')",
        "",
    ),
    Mutant("promote", "bad members are not counted", "bad = bad + 1", ""),
    Mutant("promote", "bad members count as promoted", "return #members - bad, bad", "return #members, bad"),
    Mutant("promote", "lengths of one byte", "struct.unpack('<I4', member)", "byte(member)"),
    Mutant("promote", "lengths the other way round", "'<I4'", "'>I4'"),
    Mutant("promote", "a clock that is behind", CALL_TIME, CLOCK_BEHIND),
    Mutant("promote", "a clock that is ahead", CALL_TIME, CLOCK_AHEAD),
    Mutant("promote", "early by a part of a millisecond", FLOOR, CEIL),
    *leads_alone("promote"),
    Mutant("promote", "overdue is not told", "math.max(0, overdue() or 0)", "0"),
    Mutant("promote", "what is not due is overdue", "math.max(0, overdue() or 0)", "overdue() or 0"),
    Mutant("promote", "far away is an overflow", "math.max(-9e15, math.min(", "math.max(-9e99, math.min("),
    Mutant("promote", "long ago is an overflow", "tonumber(first[2]), 9e15)", "tonumber(first[2]), 9e99)"),
    Mutant("promote", "the batch is ignored", "math.min(1000, batch - promoted - set_aside)", "1000"),
    Mutant("promote", "a page ends beyond its bytes", "if bytes_left <= 0 then break end", ""),
    Mutant("promote", "a page is read twice", "ZRANGE', delayed, #members,", "ZRANGE', delayed, 0,"),
    Mutant("promote", "a page brings what is not due", "math.min(#members + page, due) - 1", "#members + page - 1"),
    Mutant("promote", "bytes are not counted", "bytes_left = bytes_left - #member", ""),
    Mutant("promote", "bad ones do not count towards the batch", "batch - promoted - set_aside)", "batch - promoted)"),
    Mutant(
        "promote",
        "only one thousand are moved",
        "until good + bad < most or promoted + set_aside >= batch",
        "until true",
    ),
    Mutant("promote", "an empty name is a name", "if name == '' then return", "if false then return"),
    Mutant(
        "promote",
        "the stream is trimmed",
        "call('XADD', stream, '*', 'd', envelope) end",
        "call('XADD', stream, 'MAXLEN', 2, '*', 'd', envelope) end",
    ),
    Mutant("promote", "the last is taken for the next", "'ZRANGE', delayed, 0, 0,", "'ZRANGE', delayed, -1, -1,"),
    Mutant("promote", "overdue is told as negative", "math.max(0, -overdue_ms)", "-overdue_ms"),
    Mutant("promote", "the stream's type is found out too late", "call('XLEN', stream)", ""),
    Mutant("promote", "the letters' type is found out too late", "if bad > 0 then call('XLEN', dead) end", ""),
    Mutant("promote", "the index stays", "call('DEL', unpack(indexes))", ""),
    *reads_ids("promote"),
    Mutant("promote", "a job without an id has a marker", "ids[i] and markers[i]", "markers[i]"),
    Mutant("promote", "the marker does not know the place", "if marker then call('SET'", "if false then call('SET'"),
    Mutant("promote", "the marker has no end", KEPT_SIGN, KEPT_SIGN.replace(", 'KEEPTTL'", "")),
    Mutant("promote", "a window ends", KEPT_SIGN, "entry_id, 'KEEPTTL'"),
    Mutant("promote", "everything is a window", KEPT_SIGN, "'w' .. entry_id, 'KEEPTTL'"),
    Mutant("promote", "every marker shows", "marker and #id >= 26)", "marker)"),
    Mutant("promote", "every id like ours shows a marker", "marker and #id >= 26)", "id and #id == 26)"),
    Mutant("promote", "letters are taken for bytes", "marker and #id >= 26)", "marker and #id == 26)"),
    Mutant("promote", "a marker does not show", "marker and #id >= 26)", "false)"),
    Mutant("promote", "a marked job loses its name", "name ~= '' and words or", "false and words or"),
    Mutant("promote", "a marked job has an empty name", "name ~= '' and words or", "words or"),
    Mutant("promote", "events are always told", "if events_max_len > 0 and id then", "if id then"),
    Mutant("promote", "events are never told", "if events_max_len > 0 and id then", "if false then"),
    Mutant("promote", "events are not bounded", "'MAXLEN', '~', events_max_len, '*'", "'*'"),
    Mutant("promote", "events have no name", "if name ~= '' then words[7]", "if false then words[7]"),
    Mutant("promote", "events have an empty name", "if name ~= '' then words[7]", "if true then words[7]"),
    Mutant("promote", "events of another type stop it", "redis.pcall('XADD', events", "redis.call('XADD', events"),
]

STILL_DELAYED = "if not member or not call('ZSCORE', delayed, member) then"
IS_WINDOW = "(string.sub(marker, 1, 1) == 'w' and 'w' or '') .. entry_id, 'KEEPTTL'"

MOVE_DELAYED = [
    Mutant("move_delayed", "the index is enough", STILL_DELAYED, "if not member then"),
    Mutant("move_delayed", "the type is found out too late", "kind ~= 'none' and kind ~= 'stream'", "false"),
    Mutant("move_delayed", "there must be a stream", "kind ~= 'none' and kind ~= 'stream'", "kind ~= 'stream'"),
    Mutant("move_delayed", "a clock that is behind", CALL_TIME, CLOCK_BEHIND),
    Mutant("move_delayed", "a clock that is ahead", CALL_TIME, CLOCK_AHEAD),
    Mutant("move_delayed", "early by a part of a millisecond", CEIL, FLOOR),
    Mutant("move_delayed", "the job stays delayed", "call('ZREM', delayed, member)", ""),
    Mutant("move_delayed", "the index stays", "call('DEL', index)", ""),
    Mutant("move_delayed", "a cancelled job's marker stays", "else call('DEL', marker, official) end", "end"),
    Mutant("move_delayed", "only our own marker goes", "call('DEL', marker, official)", "call('DEL', marker)"),
    Mutant(
        "move_delayed", "what is run is lost", "if what == 'run' then run(id, member) else", "if what ~= 'run' then"
    ),
    Mutant(
        "move_delayed",
        "what is cancelled runs",
        "if what == 'run' then run(id, member)",
        "if true then run(id, member)",
    ),
    Mutant("move_delayed", "one that is gone stops the others", "found[#found + 1] = 0", "break"),
    Mutant("move_delayed", "what was not found is told as found", "found[#found + 1] = 0", "found[#found + 1] = 1"),
    Mutant("move_delayed", "lengths of one byte", "struct.unpack('<I4', member)", "string.byte(member)"),
    Mutant("move_delayed", "an empty name is a name", "if name ~= '' then", "if true then"),
    Mutant("move_delayed", "the name is lost", "if name ~= '' then", "if false then"),
    Mutant(
        "move_delayed", "letters are taken for bytes", "if marker and #id >= 26 then", "if marker and #id == 26 then"
    ),
    Mutant("move_delayed", "a marker does not show", "if marker and #id >= 26 then", "if false then"),
    Mutant("move_delayed", "every id like ours shows a marker", "if marker and #id >= 26", "if #id == 26"),
    Mutant("move_delayed", "every marker shows", "if marker and #id >= 26", "if marker"),
    Mutant("move_delayed", "the marker does not know the place", "  if marker then\n", "  if false then\n"),
    Mutant("move_delayed", "a marker is made", "  if marker then\n", "  marker = marker or ''\n  if true then\n"),
    Mutant("move_delayed", "a window ends", IS_WINDOW, "entry_id, 'KEEPTTL'"),
    Mutant("move_delayed", "everything is a window", IS_WINDOW, "'w' .. entry_id, 'KEEPTTL'"),
    Mutant("move_delayed", "the marker has no end", IS_WINDOW, IS_WINDOW.replace(", 'KEEPTTL'", "")),
    Mutant(
        "move_delayed",
        "the delay is ignored",
        "call('ZADD', delayed, now_ms + delay_ms",
        "call('ZADD', delayed, now_ms",
    ),
    Mutant(
        "move_delayed",
        "a job cannot be brought forward",
        "call('ZADD', delayed, now",
        "call('ZADD', delayed, 'GT', now",
    ),
    Mutant("move_delayed", "the index ends when it did", "call('PEXPIRE', index, ttl_ms)", ""),
    Mutant("move_delayed", "the index ends before", "math.min(delay_ms + kept_ms,", "math.min(kept_ms,"),
    Mutant("move_delayed", "the marker ends when it did", "call('PEXPIRE', marker, ttl_ms)", ""),
    Mutant("move_delayed", "a window is lengthened", "if place == 'd' then", "if true then"),
    Mutant("move_delayed", "official producers see a window for longer", "if place ~= 'wd' then", "if true then"),
    Mutant("move_delayed", "official producers see it as before", "if place ~= 'wd' then", "if false then"),
    Mutant("move_delayed", "they see a short delay no longer", "math.max(1000, delay_ms) + ", "delay_ms - 5000 + "),
    Mutant("move_delayed", "nobody is told", "redis.pcall('PUBLISH', prefix .. ':due', delay_ms)", ""),
]

YIELD = [
    Mutant("yield", "anybody's lease is let go", "if redis.call('GET', lease) == holder then", "if true then"),
    Mutant("yield", "the lease is kept", "return redis.call('DEL', lease)", "return 1"),
]
