"""Mutants of the scripts about repeatables."""

from __future__ import annotations

from tests.scripts.mutants.mutant import CALL_TIME, CEIL, CLOCK_AHEAD, CLOCK_BEHIND, FLOOR, Mutant, leads_alone

DUE_REPEATABLES = [
    *leads_alone("due_repeatables"),
    Mutant("due_repeatables", "overdue is not told", "math.max(0, -(due_ms or 0))", "0"),
    Mutant("due_repeatables", "what is not due is overdue", "math.max(0, -(due_ms or 0))", "-(due_ms or 0)"),
    Mutant("due_repeatables", "far away is an overflow", "- now_ms, 9e15)", "- now_ms, 9e99)"),
    Mutant("due_repeatables", "a clock that is behind", CALL_TIME, CLOCK_BEHIND),
    Mutant("due_repeatables", "a clock that is ahead", CALL_TIME, CLOCK_AHEAD),
    Mutant("due_repeatables", "early by a part of a millisecond", FLOOR, CEIL),
    Mutant("due_repeatables", "what is not due comes", "'-inf', now_ms, 'BYSCORE'", "'-inf', '+inf', 'BYSCORE'"),
    Mutant("due_repeatables", "the batch is ignored", "'LIMIT', 0, batch, 'W", "'LIMIT', 0, -1, 'W"),
    Mutant("due_repeatables", "one without a spec stays", "redis.pcall('ZREM', repeats, key)", "local _ = key"),
    Mutant("due_repeatables", "one without a spec comes", "if not spec then return nil end", "spec = spec or ''"),
    Mutant("due_repeatables", "fires are not told", "fields[2] or '0'", "'0'"),
    Mutant("due_repeatables", "the override is not told", "fields[3] or ''", "''"),
    Mutant("due_repeatables", "never fired is nothing", "fields[2] or '0'", "fields[2] or ''"),
    Mutant("due_repeatables", "any override counts", " and string.sub(retry, 1, 40) == redis.sha1hex(spec)", ""),
    Mutant("due_repeatables", "an override may be large", " and #retry < 10000", ""),
    Mutant("due_repeatables", "a count may be long", "if #fired > 20 then fired = 'too long' end", ""),
    Mutant("due_repeatables", "a spec may be large", " and bytes <= most_bytes", ""),
    Mutant("due_repeatables", "the size is not told", "type(bytes) == 'number' and bytes or 0}", "0}"),
    Mutant("due_repeatables", "there is no bound on all specs", "bytes_in_all > most_bytes_in_all", "false"),
    Mutant("due_repeatables", "the first is bound, too", "if i > 1 and bytes_in_all", "if bytes_in_all"),
    Mutant("due_repeatables", "what the bound left out waits", "      next_ms = 0\n", ""),
    Mutant("due_repeatables", "one that is gone is paused", "or call('EXISTS', ", "or false and call('EXISTS', "),
    Mutant("due_repeatables", "one that fires is paused", "call('ZSCORE', repeats, key) or ", ""),
    Mutant(
        "due_repeatables", "nothing is paused", "if call('ZSCORE', repeats, key) or call('EXISTS'", "if call('EXISTS'"
    ),
    Mutant("due_repeatables", "all paused are looked at", "'ZRANDMEMBER', paused, 10", "'ZRANDMEMBER', paused, 1000"),
    Mutant("due_repeatables", "pauses of another type stop it", "redis.pcall('ZRANDMEMBER'", "call('ZRANDMEMBER'"),
    Mutant("due_repeatables", "the next is not told", "found[3] = next_ms or -1", ""),
    Mutant("due_repeatables", "what is due is the next", "if #due >= 2 * batch then next_ms = 0 end", "next_ms = 0"),
    Mutant(
        "due_repeatables", "the last is taken for the next", "'ZRANGE', repeats, 0, 0,", "'ZRANGE', repeats, -1, -1,"
    ),
    Mutant("due_repeatables", "a full batch is all", "if #due >= 2 * batch then next_ms = 0 end", ""),
    Mutant("due_repeatables", "a batch is full too soon", "#due >= 2 * batch", "#due >= batch"),
    Mutant("due_repeatables", "the time is not told", "= {1, now_ms, -1}", "= {1, 0, -1}"),
    Mutant("due_repeatables", "a score that is no time stays", "redis.pcall('ZADD', repeats, score, key)", "break"),
    Mutant(
        "due_repeatables", "a score that is no time is told", "score = string.format('%.0f', whole)", "score = score"
    ),
    Mutant(
        "due_repeatables",
        "a score before all times is told",
        "math.max(0, math.floor(tonumber(score)))",
        "math.floor(tonumber(score))",
    ),
    Mutant("due_repeatables", "a spec of another type stops the others", "redis.pcall('HSTRLEN'", "call('HSTRLEN'"),
]

SAME_SCORE = "tonumber(call('ZSCORE', repeats, key) or -1) == score"
SAME_SPEC = "pcall('HGET', hash, 'spec') == spec"

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
    Mutant("fire", "the last job is lost", "i + 5 + jobs)", "i + 4 + jobs)"),
    Mutant("fire", "only the first job is added", "for j = first, last do", "for j = first, math.min(first, last) do"),
    Mutant("fire", "some jobs are added", "for _, id in ipairs(added) do call('XDEL', stream, id) end", ""),
    Mutant("fire", "what is refused is not said", "if why and not any then return why end", ""),
    Mutant("fire", "a count is started from the beginning", "call('HGET', hash, 'fired') or 0", "0"),
    Mutant("fire", "a count that is none ends the script", " or 0) + jobs", ") + jobs"),
    Mutant(
        "fire",
        "a spec of another type stops the others",
        "pcall('HGET', hash, 'spec') ==",
        "call('HGET', hash, 'spec') ==",
    ),
    Mutant("fire", "an empty name is a name", "if name == '' then", "if false then"),
    Mutant("fire", "the name is lost", "if name == '' then", "if true then"),
    Mutant(
        "fire", "the stream is trimmed", "'*', 'd', ARGV[j], 'n', name", "'MAXLEN', 2, '*', 'd', ARGV[j], 'n', name"
    ),
    Mutant("fire", "it does not move on", "call('ZADD', repeats, next_score, key)", ""),
    Mutant(
        "fire",
        "fires are not counted",
        "if jobs > 0 then call('HSET', hash, 'fired', string.format('%.0f', fired)) end",
        "",
    ),
    Mutant("fire", "several fires count as one", "or 0) + jobs", "or 0) + math.min(1, jobs)"),
    Mutant("fire", "moving on is counted", "if jobs > 0 then call('HSET'", "if true then call('HSET'"),
    Mutant("fire", "after the last it stays", "      call('ZREM', repeats, key)\n", ""),
    Mutant("fire", "its spec stays", "trouble = refusal('DEL', hash)", ""),
    Mutant(
        "fire",
        "one in vain stops the others",
        "  moved[#moved + 1] =",
        "  if not is_same then break end\n  moved[#moved + 1] =",
    ),
    Mutant("fire", "what was in vain is told as done", "is_same and 1 or 0", "1"),
    Mutant("fire", "the type is found out too late", "  or refusal('XDEL', stream, '0-0')\n", ""),
]

BURY_REPEATABLE = [
    Mutant("bury_repeatable", "the score is not compared", f" and {SAME_SCORE}", ""),
    Mutant("bury_repeatable", "one that is gone has a score", "or -1)", "or 0)"),
    Mutant("bury_repeatable", "the spec is not compared", " or stored == spec)", " or true)"),
    Mutant("bury_repeatable", "one that was not seen is compared", "spec == '' or ", ""),
    Mutant("bury_repeatable", "the size is not compared", "#stored == bytes and ", ""),
    Mutant("bury_repeatable", "it stays", "      call('ZREM', repeats, key)\n", ""),
    Mutant("bury_repeatable", "its spec stays", "trouble = refusal('DEL', hash)", ""),
    Mutant("bury_repeatable", "letters are trimmed", "'XADD', dead, '*'", "'XADD', dead, 'MAXLEN', 1, '*'"),
    Mutant("bury_repeatable", "the letter is what was seen", "move_bytes(stored, ", "move_bytes(spec, "),
    Mutant("bury_repeatable", "it is not said what is wrong", "'detail', detail", "'detail', ''"),
    Mutant("bury_repeatable", "moves are not counted", "moved = moved + 1", ""),
    Mutant(
        "bury_repeatable",
        "one in vain stops the others",
        "moved + 1\n    end\n  end",
        "moved + 1\n    end\n  else break end",
    ),
    Mutant("bury_repeatable", "what is refused vanishes", "    if trouble then\n", "    if false then\n"),
    Mutant("bury_repeatable", "what is refused is due", "call('ZADD', repeats, 'XX', again_ms, key)", ""),
    Mutant("bury_repeatable", "why is not said", "why = trouble.err", ""),
    Mutant(
        "bury_repeatable",
        "a key of another type stops it",
        "local stored = pcall('HGET', hash, 'spec')",
        "local stored = call('HGET', hash, 'spec')",
    ),
    Mutant("bury_repeatable", "a key of another type stays", "if type(stored) == 'table' then stored = '' end", ""),
]

KEPT_REPLY = "return {0, firing_score or paused_score, fields[2] or '0', firing_score and 0 or 1}"

UPSERT_REPEATABLE = [
    Mutant(
        "upsert_repeatable",
        "one that was paused stays",
        "if paused_score then redis.pcall('ZREM', paused, key) end",
        "",
    ),
    Mutant(
        "upsert_repeatable",
        "one that fires stays paused",
        "if firing_score and paused_score then redis.pcall('ZREM', paused, key) end",
        "",
    ),
    Mutant("upsert_repeatable", "old fires count", ", 'fired', '0')", ")"),
    Mutant("upsert_repeatable", "new fires count", "'retry', retry)\n  if", "'retry', retry, 'fired', '0')\n  if"),
    Mutant("upsert_repeatable", "the override is lost", "'retry', retry, 'fired'", "'retry', '', 'fired'"),
    Mutant("upsert_repeatable", "the old override is kept", "'spec', spec, 'retry', retry)\n", "'spec', spec)\n"),
    Mutant(
        "upsert_repeatable",
        "the old spec is kept",
        "if keeps then\n  call('HSET', hash, 'spec', spec,",
        "if keeps then\n  call('HSET', hash,",
    ),
    Mutant("upsert_repeatable", "nothing is kept", "if keeps then", "if false then"),
    Mutant("upsert_repeatable", "all is kept", "if keeps then", "if firing_score or paused_score then"),
    Mutant("upsert_repeatable", "what is there is not looked at", "if stored ~= seen then return {} end", ""),
    Mutant(
        "upsert_repeatable", "what was left behind counts", "(firing_score or paused_score) and fields[1]", "fields[1]"
    ),
    Mutant(
        "upsert_repeatable",
        "the old time stays",
        "call('ZADD', repeats, score, key)",
        "call('ZADD', repeats, 'NX', score, key)",
    ),
    Mutant(
        "upsert_repeatable",
        "only a later time is taken",
        "call('ZADD', repeats, score, key)",
        "call('ZADD', repeats, 'GT', score, key)",
    ),
    Mutant("upsert_repeatable", "it is always new", "return {(firing_score or paused_score) and 0 or 1,", "return {1,"),
    Mutant("upsert_repeatable", "the count is not told", KEPT_REPLY, KEPT_REPLY.replace("fields[2] or '0'", "'0'")),
    Mutant(
        "upsert_repeatable", "the pause is not told", KEPT_REPLY, KEPT_REPLY.replace("firing_score and 0 or 1", "0")
    ),
    Mutant(
        "upsert_repeatable", "the new time is told", KEPT_REPLY, KEPT_REPLY.replace("firing_score or paused", "score")
    ),
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
        "  call('ZREM', repeats, key)\n  call('ZREM', paused, key)",
        "  call('ZREM', paused, key)",
    ),
    Mutant(
        "move_repeatable",
        "what is removed is still paused",
        "  call('ZREM', repeats, key)\n  call('ZREM', paused, key)",
        "  call('ZREM', repeats, key)",
    ),
    Mutant("move_repeatable", "its spec stays", "call('DEL', hash)", ""),
    Mutant(
        "move_repeatable",
        "only one that fires was there",
        "(firing_score or (paused_score and has_spec))",
        "firing_score",
    ),
    Mutant("move_repeatable", "only one that is paused was there", "firing_score or (", "("),
    Mutant("move_repeatable", "one without a spec was there", "(paused_score and has_spec)", "paused_score"),
    Mutant("move_repeatable", "everything was there", "(firing_score or (paused_score and has_spec)) and 1 or 0", "1"),
    Mutant(
        "move_repeatable",
        "what does not fire is paused",
        "if not firing_score then return 0 end",
        "firing_score = firing_score or 0",
    ),
    Mutant(
        "move_repeatable",
        "what is paused fires",
        "firing_score, key)\n  call('ZREM', repeats, key)",
        "firing_score, key)",
    ),
    Mutant("move_repeatable", "what is paused is forgotten", "call('ZADD', paused, firing_score, key)", ""),
    Mutant(
        "move_repeatable",
        "what is paused loses its time",
        "call('ZADD', paused, firing_score, key)",
        "call('ZADD', paused, score, key)",
    ),
    Mutant("move_repeatable", "what was removed is resumed", "if not paused_score then return 0 end", ""),
    Mutant("move_repeatable", "what fires is resumed", "if firing_score or not has_spec then", "if not has_spec then"),
    Mutant(
        "move_repeatable", "what has no spec is resumed", "if firing_score or not has_spec then", "if firing_score then"
    ),
    Mutant(
        "move_repeatable",
        "what is resumed is still paused",
        "score, key)\ncall('ZREM', paused, key)",
        "score, key)",
    ),
    Mutant(
        "move_repeatable",
        "what is resumed keeps its time",
        "call('ZADD', repeats, score, key)",
        "call('ZADD', repeats, paused_score, key)",
    ),
    Mutant(
        "move_repeatable",
        "nobody is told",
        "redis.pcall('PUBLISH', prefix .. ':repeat:due', tonumber(score) - now_ms)",
        "",
    ),
    Mutant("move_repeatable", "the time itself is told", "tonumber(score) - now_ms)", "tonumber(score))"),
]
