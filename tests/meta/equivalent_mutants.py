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

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "add",
        "if room < needed then taken = 0 else taken = math.min(jobs, room) end",
        "jobs, room -> room, jobs",
    ): SYMMETRIC,
    ("add", "call('HSET', ledger, slot, seen or '0 0')", "'0 0' -> ''"): TWO,
    ("add", "if not seen then pcall('HDEL', ledger, slot) end", "pcall -> redis.call"): TWO,
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
    ): "shows for a millisecond",
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
    ("release_entries", "for i = 6, 4 + 2 * looked_at, 2 do", "4 -> 5"): "the step is two",
    ("release_entries", _TRY_XCLAIM, "0 -> 1"): ASKS,
    ("upsert_repeatable", "local refused = refusal('ZADD', repeats, 'XX', 'GT', '-inf', key)", _SWAPPED_FLAGS): FLAGS,
    (
        "upsert_repeatable",
        "if firing_score and paused_score then redis.pcall('ZREM', paused, key) end"
        "  -- an official producer stored it: it knows no pauses",
        "and paused_score -> ",
    ): "it removes what is not there",
    (
        "upsert_repeatable",
        "if paused_score then redis.pcall('ZREM', paused, key) end",
        "paused_score -> true",
    ): "it removes what is not there",
}

SORTED = frozenset(
    (
        "add",
        "bury_repeatable",
        "claim_held",
        "empty_stream",
        "fire",
        "lib/remove_moved",
        "lib/touch",
        "lib/unfinished_group",
        "move_repeatable",
        "release_entries",
        "upsert_repeatable",
    )
)
