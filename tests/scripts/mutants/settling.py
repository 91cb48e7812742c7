"""Mutants of the scripts that end a run."""

from __future__ import annotations

from tests.scripts.mutants.mutant import (
    ASK_NOBODY,
    ASK_OWNER,
    CEIL,
    CLOCK_AHEAD,
    CLOCK_BEHIND,
    FLOOR,
    NO_GROUP,
    PASSES,
    TIME,
    Mutant,
    deliveries,
    unmarks,
)

ACK = [
    Mutant("ack", "entries stay in the stream", "redis.call('XDEL', stream, unpack(ids))", ""),
    Mutant("ack", "entries stay pending", "redis.call('XACK', stream, group, unpack(ids))", "#ids"),
]

FINISH = [
    Mutant("finish", "the entry stays pending", "redis.pcall('XACK', stream, group, id)", "1"),
    Mutant("finish", "the entry stays in the stream", "redis.call('XDEL', stream, id)", ""),
    Mutant(
        "finish",
        "without a group nothing is done",
        "redis.pcall('XACK', stream, group, id)",
        "redis.call('XACK', stream, group, id)\n  if pending == 0 then return acked end",
    ),
    Mutant("finish", "it is not told how many", "acked = acked + pending", ""),
    Mutant("finish", "what was asked for is counted", "acked = acked + pending", "acked = acked + 1"),
    Mutant("finish", "only the first is finished", "for i = 3, #ARGV, 2 do", "for i = 3, math.min(4, #ARGV), 2 do"),
    Mutant("finish", "all have the first one's marker", "ARGV[i], ARGV[i + 1]", "ARGV[i], ARGV[4]"),
    *unmarks("finish"),
]

RESCHEDULE = [
    Mutant("reschedule", "no gate", PASSES, "if not ours[id] then"),
    *deliveries("reschedule"),
    Mutant("reschedule", "pending for anybody will do", ASK_OWNER, ASK_NOBODY),
    Mutant("reschedule", "one is moved twice", " and not ours[id]", ""),
    Mutant(
        "reschedule",
        "written before the gate",
        "local pending =",
        "redis.call('ZADD', delayed, now_ms, ARGV[i + 3])\n  local pending =",
    ),
    Mutant("reschedule", "the entries stay pending", "redis.call('XACK', stream, group, unpack(ids))", ""),
    Mutant("reschedule", "the entries stay in the stream", "redis.call('XDEL', stream, unpack(ids))", ""),
    Mutant(
        "reschedule",
        "only the first leaves the stream",
        "redis.call('XDEL', stream, unpack(ids))",
        "redis.call('XDEL', stream, ids[1])",
    ),
    Mutant("reschedule", "not written at all", "redis.call('ZADD', delayed, now_ms + delay_ms, member)", ""),
    Mutant("reschedule", "a clock that is behind", TIME, CLOCK_BEHIND),
    Mutant("reschedule", "a clock that is ahead", TIME, CLOCK_AHEAD),
    Mutant("reschedule", "early by a part of a millisecond", CEIL, FLOOR),
    Mutant("reschedule", "the delay is ignored", "now_ms + delay_ms", "now_ms"),
    Mutant("reschedule", "without a group it is somebody else's", NO_GROUP, ""),
    Mutant("reschedule", "the type is found out too late", "kind ~= 'none' and kind ~= 'zset'", "false"),
    Mutant("reschedule", "what was asked for is counted", "return #ids", "return (#ARGV - 4) / 6"),
    Mutant(
        "reschedule", "there is no index", "redis.call('SET', prefix .. ':didx:' .. job_id, member, 'PX', ttl_ms)", ""
    ),
    Mutant("reschedule", "the index has no end", "member, 'PX', ttl_ms)", "member)"),
    Mutant(
        "reschedule", "the index ends when the job is due", "math.min(delay_ms + kept_ms,", "math.min(delay_ms + 1,"
    ),
    Mutant("reschedule", "the index ends before", "math.min(delay_ms + kept_ms,", "math.min(kept_ms,"),
    Mutant("reschedule", "every marker is moved", "if is_marked == '1' then", "if true then"),
    Mutant("reschedule", "no marker is moved", "if is_marked == '1' then", "if false then"),
    Mutant("reschedule", "another's marker is moved", "if place == id or place == 'd'", "if place"),
    Mutant("reschedule", "its own marker stays", "if place == id or place == 'd'", "if place == 'd'"),
    Mutant("reschedule", "a marker without a place ends when it did", "place == id or place == 'd'", "place == id"),
    Mutant("reschedule", "a job of an official producer gets none", " or (is_official and not place) then", " then"),
    Mutant("reschedule", "every job gets one", "(is_official and not place)", "not place"),
    Mutant("reschedule", "the marker ends when it did", "'d', 'PX', ttl_ms)", "'d', 'KEEPTTL')"),
    Mutant("reschedule", "a window is not known", "elseif place == 'w' .. id then", "elseif false then"),
    Mutant(
        "reschedule",
        "another's window is moved",
        "elseif place == 'w' .. id then",
        "elseif place then",
    ),
    Mutant("reschedule", "a window is lengthened", "'wd', 'KEEPTTL')", "'wd', 'PX', ttl_ms)"),
]

BURY = [
    Mutant("bury", "no gate", PASSES, "if not ours[id] then"),
    *deliveries("bury"),
    Mutant("bury", "pending for anybody will do", ASK_OWNER, ASK_NOBODY),
    Mutant("bury", "one is buried twice", " and not ours[id]", ""),
    Mutant(
        "bury",
        "written before the gate",
        "local pending =",
        "redis.call('XADD', dead, '*', 'd', id)\n  local pending =",
    ),
    Mutant("bury", "the entries stay pending", "redis.call('XACK', stream, group, unpack(ids))", ""),
    Mutant("bury", "the entries stay in the stream", "redis.call('XDEL', stream, unpack(ids))", ""),
    Mutant("bury", "the last value is cut off", "i + 3 + words)", "i + 1 + words)"),
    Mutant("bury", "there is no bound", "if max_len > 0 then", "if false then"),
    Mutant(
        "bury",
        "a call that buries nothing trims",
        "if #ids == 0 then return 0 end",
        "if #ids == 0 then\n  redis.call('XTRIM', dead, 'MAXLEN', 0)\n  return 0\nend",
    ),
    Mutant("bury", "what is dropped is not counted", "redis.call('INCRBY', dropped, trimmed)", ""),
    Mutant("bury", "drops count as one", "redis.call('INCRBY', dropped, trimmed)", "redis.call('INCR', dropped)"),
    Mutant("bury", "without a group it is somebody else's", NO_GROUP, ""),
    Mutant("bury", "the type is found out too late", "kind ~= 'none' and kind ~= 'stream'", "false"),
    *unmarks("bury"),
    Mutant("bury", "every marker is asked for", "if job_id ~= '' then unmark", "if true then unmark"),
    Mutant("bury", "no marker goes", "if job_id ~= '' then unmark", "if false then unmark"),
    Mutant("bury", "what was not carried is lost", "own['d'] or ''", "''"),
    Mutant("bury", "the name of what was not carried is lost", "if own['n'] and own['n'] ~= '' then", "if false then"),
    Mutant("bury", "every letter is taken from its entry", "if letter[1] ~= '' then return letter end", ""),
]
