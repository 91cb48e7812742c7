"""Mutants of the scripts about repeatables."""

from __future__ import annotations

from tests.scripts.mutants.mutant import CALL_TIME, CEIL, CLOCK_AHEAD, CLOCK_BEHIND, FLOOR, Mutant

DUE_REPEATABLES = [
    Mutant("due_repeatables", "the lease is stolen", "if leader and leader ~= holder then", "if false then"),
    Mutant("due_repeatables", "the holder cannot renew", "if leader and leader ~= holder then", "if leader then"),
    Mutant("due_repeatables", "the lease has no end", "'SET', lease, holder, 'PX', lease_ms", "'SET', lease, holder"),
    Mutant("due_repeatables", "its end is not told", "call('PTTL', lease)", "-1"),
    Mutant("due_repeatables", "a clock that is behind", CALL_TIME, CLOCK_BEHIND),
    Mutant("due_repeatables", "a clock that is ahead", CALL_TIME, CLOCK_AHEAD),
    Mutant("due_repeatables", "early by a part of a millisecond", FLOOR, CEIL),
    Mutant("due_repeatables", "what is not due comes", "'-inf', now_ms, 'BYSCORE'", "'-inf', '+inf', 'BYSCORE'"),
    Mutant("due_repeatables", "the batch is ignored", "'LIMIT', 0, batch, 'W", "'LIMIT', 0, -1, 'W"),
    Mutant("due_repeatables", "one without a spec stays", "call('ZREM', repeats, key)", ""),
    Mutant(
        "due_repeatables",
        "one without a spec stops the others",
        "call('ZREM', repeats, key)",
        "call('ZREM', repeats, key)\n    break",
    ),
    Mutant(
        "due_repeatables",
        "one without a spec comes",
        "if fields[1] then",
        "fields[1] = fields[1] or ''\n  if true then",
    ),
    Mutant("due_repeatables", "fires are not told", "fields[2] or '0'", "'0'"),
    Mutant("due_repeatables", "the override is not told", "fields[3] or ''", "''"),
    Mutant("due_repeatables", "never fired is nothing", "fields[2] or '0'", "fields[2]"),
    Mutant("due_repeatables", "the next is not told", "found[3] = tonumber(first[2]) - now_ms", ""),
    Mutant(
        "due_repeatables",
        "nor behind what is due",
        "elseif next[2] then found[3] = tonumber(next[2]) - now_ms end",
        "end",
    ),
    Mutant(
        "due_repeatables", "the last is taken for the next", "'ZRANGE', repeats, 0, 0,", "'ZRANGE', repeats, -1, -1,"
    ),
    Mutant("due_repeatables", "a full batch is all", "if #due >= 2 * batch then found[3] = 0 elseif", "if"),
    Mutant("due_repeatables", "a batch is full too soon", "#due >= 2 * batch", "#due >= batch"),
    Mutant("due_repeatables", "the time is not told", "local found = {1, now_ms, -1}", "local found = {1, 0, -1}"),
    Mutant("due_repeatables", "a score that is no time stays", "call('ZADD', repeats, score, key)", ""),
    Mutant(
        "due_repeatables", "a score that is no time is told", "score = string.format('%.0f', whole)", "score = score"
    ),
    Mutant(
        "due_repeatables",
        "a score before all times is told",
        "math.max(0, math.floor(tonumber(score)))",
        "math.floor(tonumber(score))",
    ),
    Mutant("due_repeatables", "a spec of another type stops the others", "redis.pcall('HMGET'", "call('HMGET'"),
]

SAME_SCORE = "tonumber(call('ZSCORE', repeats, key) or -1) == score"
SAME_SPEC = "call('HGET', hash, 'spec') == spec"

FIRE = [
    Mutant("fire", "the score is not compared", f"{SAME_SCORE} and ", ""),
    Mutant("fire", "a later score will do", SAME_SCORE, SAME_SCORE.replace("==", ">=")),
    Mutant("fire", "one that is gone has a score", "or -1)", "or 0)"),
    Mutant("fire", "the spec is not compared", f" and {SAME_SPEC}", ""),
    Mutant(
        "fire",
        "fired before the gate",
        "  if is_same then\n",
        "  if jobs > 0 then call('XADD', stream, '*', 'd', ARGV[i + 6]) end\n  if is_same then\n",
    ),
    Mutant("fire", "the last job is lost", "i + 5 + jobs do", "i + 4 + jobs do"),
    Mutant(
        "fire",
        "only the first job is added",
        "for j = i + 6, i + 5 + jobs do",
        "for j = i + 6, i + 5 + math.min(1, jobs) do",
    ),
    Mutant("fire", "an empty name is a name", "if name == '' then", "if false then"),
    Mutant("fire", "the name is lost", "if name == '' then", "if true then"),
    Mutant(
        "fire", "the stream is trimmed", "'*', 'd', ARGV[j], 'n', name", "'MAXLEN', 2, '*', 'd', ARGV[j], 'n', name"
    ),
    Mutant("fire", "it does not move on", "call('ZADD', repeats, next_score, key)", ""),
    Mutant("fire", "fires are not counted", "if jobs > 0 then call('HINCRBY', hash, 'fired', jobs) end", ""),
    Mutant("fire", "several fires count as one", "'fired', jobs)", "'fired', 1)"),
    Mutant("fire", "moving on is counted", "if jobs > 0 then call('HINCRBY'", "if true then call('HINCRBY'"),
    Mutant("fire", "after the last it stays", "      call('ZREM', repeats, key)\n", ""),
    Mutant("fire", "its spec stays", "      call('DEL', hash)\n", ""),
    Mutant(
        "fire",
        "one in vain stops the others",
        "  moved[#moved + 1] =",
        "  if not is_same then break end\n  moved[#moved + 1] =",
    ),
    Mutant("fire", "what was in vain is told as done", "is_same and 1 or 0", "1"),
    Mutant("fire", "the type is found out too late", "kind ~= 'none' and kind ~= 'stream'", "false"),
    Mutant("fire", "there must be a stream", "kind ~= 'none' and kind ~= 'stream'", "kind ~= 'stream'"),
]

SET_ASIDE = [
    Mutant("set_aside", "the score is not compared", f"{SAME_SCORE} and ", ""),
    Mutant("set_aside", "one that is gone has a score", "or -1)", "or 0)"),
    Mutant("set_aside", "the spec is not compared", " and stored == spec", ""),
    Mutant("set_aside", "it stays", "call('ZREM', repeats, key)", ""),
    Mutant("set_aside", "its spec stays", "call('DEL', hash)", ""),
    Mutant(
        "set_aside",
        "it vanishes",
        "call('XADD', dead, '*', 'd', spec, 'source_id', '', 'reason', 'malformed', 'detail', detail)",
        "",
    ),
    Mutant("set_aside", "letters are trimmed", "call('XADD', dead, '*'", "call('XADD', dead, 'MAXLEN', 1, '*'"),
    Mutant("set_aside", "it is not said what is wrong", "'detail', detail)", "'detail', '')"),
    Mutant("set_aside", "moves are not counted", "moved = moved + 1", ""),
    Mutant("set_aside", "one in vain stops the others", "moved + 1\n  end", "moved + 1\n  else break end"),
    Mutant("set_aside", "the type is found out too late", "kind ~= 'none' and kind ~= 'stream'", "false"),
    Mutant("set_aside", "there must be letters", "kind ~= 'none' and kind ~= 'stream'", "kind ~= 'stream'"),
    Mutant(
        "set_aside", "a key of another type stops it", "redis.pcall('HGET', hash, 'spec')", "call('HGET', hash, 'spec')"
    ),
    Mutant("set_aside", "a key of another type stays", "if type(stored) == 'table' then stored = '' end", ""),
]

UPSERT_REPEATABLE = [
    Mutant("upsert_repeatable", "one that was paused stays", "redis.call('ZREM', paused, key)", ""),
    Mutant(
        "upsert_repeatable",
        "the old spec stays",
        "redis.call('HSET', hash, 'spec', spec)",
        "redis.call('HSETNX', hash, 'spec', spec)",
    ),
    Mutant(
        "upsert_repeatable",
        "old fires count",
        "redis.call('HDEL', hash, 'fired', 'retry')",
        "redis.call('HDEL', hash, 'retry')",
    ),
    Mutant(
        "upsert_repeatable",
        "the old override stays",
        "redis.call('HDEL', hash, 'fired', 'retry')",
        "redis.call('HDEL', hash, 'fired')",
    ),
    Mutant("upsert_repeatable", "the override is lost", "if retry ~= '' then", "if false then"),
    Mutant("upsert_repeatable", "no override is one", "if retry ~= '' then", "if true then"),
    Mutant(
        "upsert_repeatable",
        "the old time stays",
        "redis.call('ZADD', repeats, score, key)",
        "redis.call('ZADD', repeats, 'NX', score, key)",
    ),
    Mutant(
        "upsert_repeatable",
        "only a later time is taken",
        "redis.call('ZADD', repeats, score, key)",
        "redis.call('ZADD', repeats, 'GT', score, key)",
    ),
    Mutant("upsert_repeatable", "it is always new", "return added", "return 1"),
    Mutant(
        "upsert_repeatable",
        "nobody is told",
        "redis.pcall('PUBLISH', prefix .. ':repeat:due', tonumber(score) - now_ms)",
        "",
    ),
    Mutant("upsert_repeatable", "the time itself is told", "tonumber(score) - now_ms)", "tonumber(score))"),
]

MOVE_REPEATABLE = [
    Mutant(
        "move_repeatable",
        "what is removed fires",
        "  redis.call('ZREM', repeats, key)\n  redis.call('ZREM', paused, key)",
        "  redis.call('ZREM', paused, key)",
    ),
    Mutant(
        "move_repeatable",
        "what is removed is still paused",
        "  redis.call('ZREM', paused, key)\n  redis.call('DEL'",
        "  redis.call('DEL'",
    ),
    Mutant("move_repeatable", "its spec stays", "redis.call('DEL', hash)", ""),
    Mutant(
        "move_repeatable", "only one that fires was there", "(firing_score or paused_score) and", "firing_score and"
    ),
    Mutant(
        "move_repeatable", "only one that is paused was there", "(firing_score or paused_score) and", "paused_score and"
    ),
    Mutant("move_repeatable", "everything was there", "(firing_score or paused_score) and 1 or 0", "1"),
    Mutant(
        "move_repeatable",
        "what does not fire is paused",
        "if not firing_score then return 0 end",
        "firing_score = firing_score or 0",
    ),
    Mutant(
        "move_repeatable",
        "what is paused fires",
        "  redis.call('ZREM', repeats, key)\n  redis.call('ZADD'",
        "  redis.call('ZADD'",
    ),
    Mutant("move_repeatable", "what is paused is forgotten", "redis.call('ZADD', paused, firing_score, key)", ""),
    Mutant(
        "move_repeatable",
        "what is paused loses its time",
        "redis.call('ZADD', paused, firing_score, key)",
        "redis.call('ZADD', paused, score, key)",
    ),
    Mutant("move_repeatable", "what was removed is resumed", "if not paused_score then return 0 end", ""),
    Mutant(
        "move_repeatable",
        "what is resumed is still paused",
        "return 0 end\nredis.call('ZREM', paused, key)",
        "return 0 end",
    ),
    Mutant(
        "move_repeatable",
        "what is resumed keeps its time",
        "redis.call('ZADD', repeats, score, key)",
        "redis.call('ZADD', repeats, paused_score, key)",
    ),
    Mutant(
        "move_repeatable",
        "nobody is told",
        "redis.pcall('PUBLISH', prefix .. ':repeat:due', tonumber(score) - now_ms)",
        "",
    ),
    Mutant("move_repeatable", "the time itself is told", "tonumber(score) - now_ms)", "tonumber(score))"),
]
