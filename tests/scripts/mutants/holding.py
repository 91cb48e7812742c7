"""Mutants of the scripts that say who holds what."""

from __future__ import annotations

from tests.scripts.mutants.mutant import (
    ASK_NOBODY,
    ASK_OWNER,
    CLOCK_AHEAD,
    CLOCK_BEHIND,
    GATE,
    TIME,
    Mutant,
    bounds_bytes,
    carries,
    compares_ids,
    deliveries,
)

KEEP = [
    Mutant("keep", "steals back", ASK_OWNER, ASK_NOBODY),
    Mutant("keep", "no gate", GATE, "if true then"),
    *deliveries("keep"),
    Mutant("keep", "every entry has the first one's delivery", "tonumber(ARGV[i + 1])", "tonumber(ARGV[6])"),
    Mutant("keep", "every other entry is forgotten", "for i = 5, #ARGV, 2 do", "for i = 5, #ARGV, 4 do"),
    Mutant("keep", "a renewal counts as a delivery", "mine[#mine + 1] = 'JUSTID'", ""),
    Mutant("keep", "the hold is not renewed", "if #mine > 0 then", "if false then"),
    Mutant(
        "keep",
        "without a group the lease goes on",
        "'NOGROUP', 1, true) then return first end",
        "'NOGROUP', 1, true) then end",
    ),
    Mutant("keep", "losses are not told", "return lost", "return {}"),
    Mutant("keep", "the lease is not renewed", "'ZADD', workers,", "'ZADD', workers, 'NX',"),
    Mutant("keep", "a clock that is behind", TIME, CLOCK_BEHIND),
    Mutant("keep", "a clock that is ahead", TIME, CLOCK_AHEAD),
    Mutant("keep", "the lease ends now", "now_ms + lease_ms", "now_ms"),
    Mutant("keep", "the list has no end", "redis.call('PEXPIRE', workers, keep_key_ms)", ""),
]

HAS_SAID = "if must_wait and not said[name] then return 0 end"
CLAIMS_HELD = "holders[id], 0, id, 'RETRYCOUNT', deliveries[id], 'FORCE', 'JUSTID'"
CLAIMS_LEFT = "heir, 0, id, 'IDLE', idle_ms, 'RETRYCOUNT', 0, 'FORCE', 'JUSTID'"
LATER = "delivery > (deliveries[id] or -1)"

REGROUP = [
    Mutant("regroup", "nobody is waited for", HAS_SAID, ""),
    Mutant("regroup", "the dead are waited for", "'(' .. now_ms, '+inf'", "'-inf', '+inf'"),
    Mutant("regroup", "other groups are waited for", "must_wait and not said[name]", "not said[name]"),
    Mutant("regroup", "the wait begins anew with each word", "until_ms or longest or 0", "longest or 0"),
    Mutant(
        "regroup",
        "nobody is waited for who has lived for long",
        "until_ms = until_ms or longest or 0",
        "until_ms = until_ms or 0",
    ),
    Mutant("regroup", "the shortest lease bounds the wait", "'ZREVRANGE', workers", "'ZRANGE', workers"),
    Mutant("regroup", "a clock that is ahead", TIME, CLOCK_AHEAD),
    Mutant("regroup", "a clock that is behind", TIME, CLOCK_BEHIND),
    Mutant("regroup", "the lease is not renewed", "redis.call('ZADD', workers, now_ms + lease_ms, consumer)", ""),
    Mutant("regroup", "the list of workers has no end", "redis.call('PEXPIRE', workers, keep_key_ms)", ""),
    Mutant("regroup", "words have no end", "redis.call('PEXPIRE', words, lease_ms)", ""),
    Mutant(
        "regroup",
        "only the first word counts",
        "redis.call('HSET', words, 'until', until_ms, 'of '",
        "redis.call('HSETNX', words, 'until', until_ms)\nredis.call('HSETNX', words, 'of '",
    ),
    Mutant("regroup", "the first entry is forgotten", "table.concat(ARGV, ' ', 7)", "table.concat(ARGV, ' ', 9)"),
    Mutant("regroup", "only one entry is heard of", "table.concat(ARGV, ' ', 7)", "table.concat(ARGV, ' ', 7, 8)"),
    Mutant(
        "regroup",
        "names and the end of the wait are confused",
        "'of ' .. consumer, table",
        "consumer, table",
    ),
    Mutant("regroup", "a group that is there is made again", "if not pending.err then", "if false then"),
    Mutant(
        "regroup",
        "words outlive a group that is there",
        "redis.call('DEL', words)\n  return 1\nend\n\n-- Returns",
        "return 1\nend\n\n-- Returns",
    ),
    Mutant(
        "regroup",
        "words outlive an empty stream",
        "redis.pcall('DEL', words)\n  return 1\nend\nlocal claim",
        "return 1\nend\nlocal claim",
    ),
    Mutant("regroup", "words outlive the group that they made", "redis.pcall('DEL', words)\nreturn 1", "return 1"),
    Mutant(
        "regroup",
        "one who may not look takes it for gone",
        "if pending.err and not string",
        "if false and not string",
    ),
    Mutant("regroup", "an empty stream has to be waited for", "length == 0", "false"),
    Mutant("regroup", "a stream that is gone stays so", ", 'MKSTREAM'", ""),
    Mutant(
        "regroup",
        "it begins at the start",
        "'XGROUP', 'CREATE', stream, group, last)",
        "'XGROUP', 'CREATE', stream, group, 0)",
    ),
    Mutant(
        "regroup",
        "it begins at the end",
        "'XGROUP', 'CREATE', stream, group, last)",
        "'XGROUP', 'CREATE', stream, group, '$')",
    ),
    *compares_ids("regroup"),
    Mutant("regroup", "it begins beyond the stream", "and is_after(last, about[i + 1]) then", "and false then"),
    Mutant("regroup", "it begins at the stream's end", " and is_after(last, about[i + 1]) then", " then"),
    Mutant("regroup", "the first who holds it has it", LATER, "not deliveries[id]"),
    Mutant("regroup", "the lowest delivery has it", LATER, "delivery < (deliveries[id] or 1e9)"),
    Mutant("regroup", "the last who holds it has it", LATER, "true"),
    Mutant("regroup", "deliveries are forgotten", CLAIMS_HELD, CLAIMS_HELD.replace("deliveries[id]", "1")),
    Mutant(
        "regroup", "what is held goes to who spoke last", CLAIMS_HELD, CLAIMS_HELD.replace("holders[id]", "consumer")
    ),
    Mutant("regroup", "nobody gets what he holds", CLAIMS_HELD, CLAIMS_HELD.replace("'FORCE', ", "")),
    Mutant("regroup", "what nobody holds is forgotten", CLAIMS_LEFT, CLAIMS_LEFT.replace("'FORCE', ", "")),
    Mutant("regroup", "what nobody holds looks fresh", CLAIMS_LEFT, CLAIMS_LEFT.replace("'IDLE', idle_ms, ", "")),
    Mutant(
        "regroup",
        "what nobody holds has used up a run",
        CLAIMS_LEFT,
        CLAIMS_LEFT.replace("'RETRYCOUNT', 0", "'RETRYCOUNT', 1"),
    ),
    Mutant("regroup", "what nobody holds goes to who spoke last", CLAIMS_LEFT, CLAIMS_LEFT.replace("heir", "consumer")),
    Mutant("regroup", "nobody hears of what is left", "redis.call('ZADD', workers, 0, heir)", "do"),
    Mutant("regroup", "an heir without an heritage", "if has_left then", "if true then"),
    Mutant("regroup", "only a page is looked at", "until #page < 100", "until true"),
    Mutant("regroup", "entries behind the last are handed out", "after, last, 'COUNT'", "after, '+', 'COUNT'"),
    Mutant(
        "regroup",
        "an empty stream costs the list its end",
        "redis.call('PERSIST', words)",
        "redis.call('PERSIST', workers)",
    ),
]

RELEASE = [
    Mutant("release", "no gate", "if held then", "if true then"),
    *deliveries("release"),
    Mutant("release", "only an earlier delivery is released", "tonumber(ARGV[i + 1]) + 1)", "tonumber(ARGV[i + 1]))"),
    Mutant("release", "pending for anybody will do", ASK_OWNER, ASK_NOBODY),
    Mutant("release", "the delivery is counted", "'RETRYCOUNT', ARGV[i + 1], ", ""),
    Mutant("release", "it looks fresh", "'IDLE', idle_ms, ", ""),
    Mutant("release", "it stays with who hands it back", "group, heir, 0, ARGV", "group, consumer, 0, ARGV"),
    Mutant("release", "nobody hears of it", "call('ZADD', workers, 0, heir)", ""),
]

LEAVE = [
    Mutant("leave", "the name goes with its entries", "if pending.err or #pending == 0 then", "if true then"),
    Mutant("leave", "entries of others keep the name", "'-', '+', 1, consumer)", "'-', '+', 1)"),
    Mutant("leave", "who has left is not marked", "redis.call('ZADD', workers, 0, consumer)", ""),
    Mutant("leave", "a full memory keeps the mark away", "redis.call('ZREM', workers, '')", ""),
    Mutant("leave", "its mark has no end", "redis.pcall('PEXPIRE', workers, 604800000)", ""),
    Mutant(
        "leave", "one who may not ask loses its entries", "not string.find(pending.err, 'NOGROUP'", "not (pending.err"
    ),
    Mutant("leave", "the name stays in the list", "redis.call('ZREM', workers, consumer)", ""),
    Mutant("leave", "the name stays in the group", "redis.pcall('XGROUP', 'DELCONSUMER', stream, group, consumer)", ""),
]

CAS = "tonumber(score) ~= lease"
TOLD = "fields, deliveries}"

TAKEOVER = [
    Mutant("takeover", "whoever came back is robbed", f"if not score or {CAS} then", "if not score then"),
    Mutant("takeover", "a lease is not needed", "if not score or tonumber", "if score and tonumber"),
    Mutant("takeover", "a lease that grew will do", CAS, "tonumber(score) < lease"),
    Mutant("takeover", "entries of anybody are taken", "'-', '+', count, from)", "'-', '+', count)"),
    *bounds_bytes("takeover"),
    Mutant("takeover", "earlier deliveries are not told", TOLD, "fields, 0}"),
    Mutant("takeover", "deliveries are told one too low", TOLD, "fields, deliveries - 1}"),
    Mutant("takeover", "deliveries are told one too high", TOLD, "fields, deliveries + 1}"),
    Mutant(
        "takeover",
        "the delivery is not counted",
        "group, consumer, 0, id)",
        "group, consumer, 0, id, 'RETRYCOUNT', deliveries)",
    ),
    Mutant(
        "takeover",
        "the name goes while entries are left",
        "if #redis.call('XPENDING', stream, group, '-', '+', 1, from) == 0 then",
        "if true then",
    ),
    Mutant(
        "takeover",
        "the name goes while fresh entries are left",
        "if #redis.call('XPENDING', stream, group, '-', '+', 1, from) == 0 then",
        "if #redis.call('XPENDING', stream, group, 'IDLE', untouched_ms, '-', '+', 1, from) == 0 then",
    ),
    Mutant("takeover", "what came late is never taken", "math.min(since_lease_ms, min_idle_ms)", "since_lease_ms"),
    Mutant("takeover", "who took the name is robbed", "math.max(0, now_ms - lease) or 0", "0 or 0"),
    Mutant("takeover", "who has left is not relieved", "lease > 0 and math.max", "math.max"),
    Mutant("takeover", "the name stays in the group", "redis.call('XGROUP', 'DELCONSUMER', stream, group, from)", ""),
    Mutant("takeover", "the name stays in the list", "redis.call('ZREM', workers, from)", ""),
]

CLAIM_IDLE = [
    Mutant("claim_idle", "the leased are robbed", " and not has_lease(owner)", ""),
    Mutant("claim_idle", "one lease is everybody's", "leased[owner] == nil", "next(leased) == nil"),
    *bounds_bytes("claim_idle"),
    Mutant("claim_idle", "our own are delivered again", "owner ~= consumer and ", ""),
    Mutant("claim_idle", "idleness is not asked", "'IDLE', min_idle_ms, start", "start"),
    Mutant("claim_idle", "a claim that is refused costs the entry", "consumer, 0, id)", "consumer, 86400000, id)"),
    Mutant("claim_idle", "earlier deliveries are not told", TOLD, "fields, 0}"),
    Mutant("claim_idle", "the count is ignored", "if #taken < count and bytes_left", "if bytes_left"),
    Mutant("claim_idle", "only one page is looked at", "if #found < page then break end", "break"),
]

ORPHANS = [
    Mutant("orphans", "entries of others are listed", "start, last, count, consumer)", "start, last, count)"),
    Mutant("orphans", "deliveries are not told", "fields, deliveries}", "fields, 1}"),
    Mutant("orphans", "the start is ignored", "group, start, last", "group, '-', last"),
    Mutant("orphans", "the search has no end", "group, start, last", "group, start, '+'"),
    Mutant("orphans", "the count is ignored", "last, count, consumer", "last, 1, consumer"),
    *bounds_bytes("orphans"),
]

RECOUNT_GATE = "if not pending.err and #pending == 1 and pending[1][4] == delivery then"
ONE_MORE = "math.min(delivery + 1, most)"

RECOUNT = [
    Mutant("recount", "no gate", RECOUNT_GATE, "if true then"),
    Mutant("recount", "pending for anybody will do", ASK_OWNER, ASK_NOBODY),
    Mutant("recount", "the delivery is ignored", " and pending[1][4] == delivery", ""),
    Mutant("recount", "earlier deliveries will do", "pending[1][4] == delivery", "pending[1][4] <= delivery"),
    Mutant("recount", "later deliveries will do", "pending[1][4] == delivery", "pending[1][4] >= delivery"),
    Mutant("recount", "nothing is counted", ONE_MORE, "delivery"),
    Mutant("recount", "two are counted", ONE_MORE, "delivery + 2"),
    Mutant("recount", "the count begins anew", ONE_MORE, "2"),
    Mutant("recount", "only the first is counted", "counted = counted + 1", "return 1"),
    Mutant("recount", "it is not told how many", "return counted", "return 0"),
    Mutant("recount", "one that is not ours stops the others", "counted + 1\n  end", "counted + 1\n  else break end"),
]

READ = [
    Mutant("read", "the count is ignored", "#read < count and ", ""),
    Mutant("read", "somebody else reads", "'GROUP', group, consumer,", "'GROUP', group, 'another',"),
    Mutant("read", "more is read than is told", "'COUNT', 1,", "'COUNT', 2,"),
    Mutant("read", "what was read is read again", "stream, '>')", "stream, '0')"),
    Mutant("read", "a missing group is no error", "#read == 0 then return reply end", "false then return reply end"),
    Mutant("read", "the bytes are ignored", "#read < count and bytes_left > 0", "#read < count"),
    Mutant("read", "bytes are not counted", "bytes_left = bytes_left - bytes", ""),
    *carries("read"),
]
