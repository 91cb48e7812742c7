"""Mutants of the scripts that end a run."""

from __future__ import annotations

from tests.scripts.mutants.mutant import (
    ASK_NOBODY,
    ASK_OWNER,
    CALL_TIME,
    CEIL,
    CLOCK_AHEAD,
    CLOCK_BEHIND,
    FLOOR,
    NO_GROUP,
    PASSES,
    Mutant,
    deliveries,
    tells,
    unmarks,
)

ACK = [
    Mutant("ack", "one who may not delete acks", "redis.call('XDEL', stream, '0-0')", ""),
    Mutant("ack", "entries stay in the stream", "redis.call('XDEL', stream, unpack(ids))", ""),
    Mutant("ack", "entries stay pending", "redis.call('XACK', stream, group, unpack(ids))", "#ids"),
]

ACK_UNIQUE = [
    Mutant("ack_unique", "one who may not delete acks", " or refusal('XDEL', stream, '0-0')", ""),
    Mutant("ack_unique", "the entry stays pending", "redis.pcall('XACK', stream, group, id)", "1"),
    Mutant("ack_unique", "the entry stays in the stream", "redis.call('XDEL', stream, id)", ""),
    Mutant(
        "ack_unique",
        "without a group nothing is done",
        "redis.pcall('XACK', stream, group, id)",
        "redis.call('XACK', stream, group, id)\n  if pending == 0 then return acked end",
    ),
    Mutant("ack_unique", "it is not told how many", "acked = acked + pending", ""),
    Mutant("ack_unique", "what was asked for is counted", "acked = acked + pending", "acked = acked + 1"),
    Mutant("ack_unique", "only the first is finished", "for i = 3, #ARGV, 2 do", "for i = 3, math.min(4, #ARGV), 2 do"),
    Mutant("ack_unique", "all have the first one's marker", "ARGV[i], ARGV[i + 1]", "ARGV[i], ARGV[4]"),
    *unmarks("ack_unique"),
]

RESCHEDULE = [
    Mutant("reschedule", "no gate", PASSES, "if not ours[id] then"),
    *deliveries("reschedule"),
    Mutant("reschedule", "pending for anybody will do", ASK_OWNER, ASK_NOBODY),
    Mutant("reschedule", "one is moved twice", " and not ours[id]", ""),
    Mutant(
        "reschedule",
        "written before the gate",
        "local held, trouble =",
        "call('ZADD', delayed, 1, ARGV[i + 3])\n  local held, trouble =",
    ),
    Mutant("reschedule", "the entries stay pending", "call('XACK', stream, group, unpack(moved))", ""),
    Mutant("reschedule", "the entries stay in the stream", "call('XDEL', stream, unpack(moved))", ""),
    Mutant(
        "reschedule",
        "only the first leaves the stream",
        "call('XDEL', stream, unpack(moved))",
        "call('XDEL', stream, moved[1])",
    ),
    Mutant("reschedule", "not written at all", "call('ZADD', delayed, now_ms + delay_ms, member)", ""),
    Mutant("reschedule", "a clock that is behind", CALL_TIME, CLOCK_BEHIND),
    Mutant("reschedule", "a clock that is ahead", CALL_TIME, CLOCK_AHEAD),
    Mutant("reschedule", "early by a part of a millisecond", CEIL, FLOOR),
    Mutant("reschedule", "the delay is ignored", "now_ms + delay_ms", "now_ms"),
    Mutant("reschedule", "without a group it is somebody else's", NO_GROUP, ""),
    Mutant("reschedule", "the type is found out too late", "refusal('ZADD'", "nil and refusal('ZADD'"),
    Mutant(
        "reschedule", "what is not ours is told as moved", "answers[#answers + 1] = '0'", "answers[#answers + 1] = '1'"
    ),
    Mutant("reschedule", "what is moved is told as lost", "answers[n] = '1'", "answers[n] = '0'"),
    Mutant("reschedule", "what is refused is told as moved", "answers[n], why = 'x', index.err", "answers[n] = '1'"),
    Mutant("reschedule", "why it is refused is not told", "why = 'x', index.err", "why = 'x', ''"),
    Mutant(
        "reschedule",
        "there is no index",
        "pcall('SET', prefix .. ':didx:' .. job_id, member, 'PX', ttl_ms)",
        "{}",
    ),
    *tells("reschedule", "+ 6] ~= '0'"),
    Mutant("reschedule", "the index has no end", "member, 'PX', ttl_ms)", "member)"),
    Mutant(
        "reschedule", "the index ends when the job is due", "math.min(delay_ms + kept_ms,", "math.min(delay_ms + 1,"
    ),
    Mutant("reschedule", "the index ends before", "math.min(delay_ms + kept_ms,", "math.min(kept_ms,"),
    Mutant("reschedule", "every marker is moved", "if ARGV[i + 5] == '1' then mark", "if true then mark"),
    Mutant("reschedule", "no marker is moved", "if ARGV[i + 5] == '1' then mark", "if false then mark"),
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
        "local held, trouble =",
        "call('XADD', dead, '*', 'd', id)\n  local held, trouble =",
    ),
    Mutant("bury", "the entries stay pending", "call('XACK', stream, group, unpack(moved))", ""),
    Mutant("bury", "the entries stay in the stream", "call('XDEL', stream, unpack(moved))", ""),
    Mutant("bury", "the last value is cut off", "unpack(ARGV, i + 5, i + 4 +", "unpack(ARGV, i + 5, i + 2 +"),
    Mutant("bury", "there is no bound", "if max_len > 0 then", "if false then"),
    Mutant(
        "bury",
        "a call that buries nothing trims",
        "local untold = 0",
        "if #moved == 0 then call('XTRIM', dead, 'MAXLEN', 0) end\nlocal untold = 0",
    ),
    Mutant("bury", "what is dropped is not counted", "pcall('INCRBY', dropped, trimmed)", ""),
    Mutant("bury", "drops count as one", "pcall('INCRBY', dropped, trimmed)", "pcall('INCR', dropped)"),
    Mutant("bury", "without a group it is somebody else's", NO_GROUP, ""),
    Mutant("bury", "what is not ours is told as buried", "answers[#answers + 1] = '0'", "answers[#answers + 1] = '1'"),
    Mutant("bury", "what is buried is told as lost", "answers[n] = '1'", "answers[n] = '0'"),
    Mutant("bury", "what is refused is told as buried", "answers[n], why = 'x', letter.err", "answers[n] = '1'"),
    Mutant("bury", "what is refused is lost", "why = 'x', letter.err", "why, moved[#moved + 1] = 'x', letter.err, id"),
    Mutant("bury", "why it is refused is not told", "why = 'x', letter.err", "why = 'x', ''"),
    *tells("bury", "+ 4] ~= '0'"),
    *unmarks("bury"),
    Mutant("bury", "every marker is asked for", "if job_id ~= '' then release_id", "if true then release_id"),
    Mutant("bury", "no marker goes", "if job_id ~= '' then release_id", "if false then release_id"),
    Mutant("bury", "what was not carried is lost", "own['d'] or ''", "''"),
    Mutant("bury", "the name of what was not carried is lost", "if own['n'] and own['n'] ~= '' then", "if false then"),
    Mutant("bury", "no letter is taken from its entry", "if ARGV[i + 5] == '' then letters", "if false then letters"),
]
