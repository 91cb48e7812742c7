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

RENEW_LEASE = [
    Mutant("renew_lease", "steals back", ASK_OWNER, ASK_NOBODY),
    Mutant("renew_lease", "no gate", GATE, "if true then"),
    *deliveries("renew_lease"),
    Mutant("renew_lease", "every entry has the first one's delivery", "tonumber(ARGV[i + 1])", "tonumber(ARGV[6])"),
    Mutant("renew_lease", "every other entry is forgotten", "for i = 5, #ARGV, 2 do", "for i = 5, #ARGV, 4 do"),
    Mutant("renew_lease", "a renewal counts as a delivery", "mine[#mine + 1] = 'JUSTID'", ""),
    Mutant("renew_lease", "the hold is not renewed", "if #mine > 0 then", "if false then"),
    Mutant(
        "renew_lease",
        "without a group the lease goes on",
        "'NOGROUP', 1, true) then return first end",
        "'NOGROUP', 1, true) then end",
    ),
    Mutant("renew_lease", "losses are not told", "return lost", "return {}"),
    Mutant("renew_lease", "the lease is not renewed", "'ZADD', workers,", "'ZADD', workers, 'NX',"),
    Mutant("renew_lease", "a clock that is behind", TIME, CLOCK_BEHIND),
    Mutant("renew_lease", "a clock that is ahead", TIME, CLOCK_AHEAD),
    Mutant("renew_lease", "the lease ends now", "now_ms + lease_ms", "now_ms"),
    Mutant("renew_lease", "the list has no end", "redis.call('PEXPIRE', workers, keep_key_ms)", ""),
]

HAS_SAID = "if must_wait and not said[name] then return 0 end"
CLAIMS_HELD = "holders[id], 0, id, 'RETRYCOUNT', deliveries[id], 'FORCE', 'JUSTID'"
CLAIMS_LEFT = "heir, 0, id, 'IDLE', idle_ms, 'RETRYCOUNT', 0, 'FORCE', 'JUSTID'"
LATER = "delivery > (deliveries[id] or -1)"

REBUILD_GROUP = [
    Mutant("rebuild_group", "nobody is waited for", HAS_SAID, ""),
    Mutant("rebuild_group", "the dead are waited for", "'(' .. now_ms, '+inf'", "'-inf', '+inf'"),
    Mutant("rebuild_group", "other groups are waited for", "must_wait and not said[name]", "not said[name]"),
    Mutant("rebuild_group", "the wait begins anew with each word", "until_ms or longest or 0", "longest or 0"),
    Mutant(
        "rebuild_group",
        "nobody is waited for who has lived for long",
        "until_ms = until_ms or longest or 0",
        "until_ms = until_ms or 0",
    ),
    Mutant("rebuild_group", "the shortest lease bounds the wait", "'ZREVRANGE', workers", "'ZRANGE', workers"),
    Mutant("rebuild_group", "a clock that is ahead", TIME, CLOCK_AHEAD),
    Mutant("rebuild_group", "a clock that is behind", TIME, CLOCK_BEHIND),
    Mutant("rebuild_group", "the lease is not renewed", "redis.call('ZADD', workers, now_ms + lease_ms, consumer)", ""),
    Mutant("rebuild_group", "the list of workers has no end", "redis.call('PEXPIRE', workers, keep_key_ms)", ""),
    Mutant("rebuild_group", "words have no end", "redis.call('PEXPIRE', words, lease_ms)", ""),
    Mutant(
        "rebuild_group",
        "only the first word counts",
        "redis.call('HSET', words, 'until', until_ms, 'of '",
        "redis.call('HSETNX', words, 'until', until_ms)\nredis.call('HSETNX', words, 'of '",
    ),
    Mutant("rebuild_group", "the first entry is forgotten", "table.concat(ARGV, ' ', 7)", "table.concat(ARGV, ' ', 9)"),
    Mutant(
        "rebuild_group", "only one entry is heard of", "table.concat(ARGV, ' ', 7)", "table.concat(ARGV, ' ', 7, 8)"
    ),
    Mutant(
        "rebuild_group",
        "names and the end of the wait are confused",
        "'of ' .. consumer, table",
        "consumer, table",
    ),
    Mutant("rebuild_group", "a group that is there is made again", "if not pending.err then", "if false then"),
    Mutant(
        "rebuild_group",
        "words outlive a group that is there",
        "redis.call('DEL', words)\n  return 1\nend\n\n-- Returns",
        "return 1\nend\n\n-- Returns",
    ),
    Mutant(
        "rebuild_group",
        "words outlive an empty stream",
        "redis.pcall('DEL', words)\n  return 1\nend\nlocal claim",
        "return 1\nend\nlocal claim",
    ),
    Mutant(
        "rebuild_group", "words outlive the group that they made", "redis.pcall('DEL', words)\nreturn 1", "return 1"
    ),
    Mutant(
        "rebuild_group",
        "one who may not look takes it for gone",
        "if pending.err and not string",
        "if false and not string",
    ),
    Mutant("rebuild_group", "an empty stream has to be waited for", "length == 0", "false"),
    Mutant("rebuild_group", "a stream that is gone stays so", ", 'MKSTREAM'", ""),
    Mutant(
        "rebuild_group",
        "it begins at the start",
        "'XGROUP', 'CREATE', stream, group, last)",
        "'XGROUP', 'CREATE', stream, group, 0)",
    ),
    Mutant(
        "rebuild_group",
        "it begins at the end",
        "'XGROUP', 'CREATE', stream, group, last)",
        "'XGROUP', 'CREATE', stream, group, '$')",
    ),
    *compares_ids("rebuild_group"),
    Mutant("rebuild_group", "it begins beyond the stream", "and is_after(last, about[i + 1]) then", "and false then"),
    Mutant("rebuild_group", "it begins at the stream's end", " and is_after(last, about[i + 1]) then", " then"),
    Mutant("rebuild_group", "the first who holds it has it", LATER, "not deliveries[id]"),
    Mutant("rebuild_group", "the lowest delivery has it", LATER, "delivery < (deliveries[id] or 1e9)"),
    Mutant("rebuild_group", "the last who holds it has it", LATER, "true"),
    Mutant("rebuild_group", "deliveries are forgotten", CLAIMS_HELD, CLAIMS_HELD.replace("deliveries[id]", "1")),
    Mutant(
        "rebuild_group",
        "what is held goes to who spoke last",
        CLAIMS_HELD,
        CLAIMS_HELD.replace("holders[id]", "consumer"),
    ),
    Mutant("rebuild_group", "nobody gets what he holds", CLAIMS_HELD, CLAIMS_HELD.replace("'FORCE', ", "")),
    Mutant("rebuild_group", "what nobody holds is forgotten", CLAIMS_LEFT, CLAIMS_LEFT.replace("'FORCE', ", "")),
    Mutant("rebuild_group", "what nobody holds looks fresh", CLAIMS_LEFT, CLAIMS_LEFT.replace("'IDLE', idle_ms, ", "")),
    Mutant(
        "rebuild_group",
        "what nobody holds has used up a run",
        CLAIMS_LEFT,
        CLAIMS_LEFT.replace("'RETRYCOUNT', 0", "'RETRYCOUNT', 1"),
    ),
    Mutant(
        "rebuild_group",
        "what nobody holds goes to who spoke last",
        CLAIMS_LEFT,
        CLAIMS_LEFT.replace("heir", "consumer"),
    ),
    Mutant("rebuild_group", "nobody hears of what is left", "redis.call('ZADD', workers, 0, heir)", "do"),
    Mutant("rebuild_group", "an heir without an heritage", "if has_left then", "if true then"),
    Mutant("rebuild_group", "only a page is looked at", "until #page < 100", "until true"),
    Mutant("rebuild_group", "entries behind the last are handed out", "after, last, 'COUNT'", "after, '+', 'COUNT'"),
    Mutant(
        "rebuild_group",
        "an empty stream costs the list its end",
        "redis.call('PERSIST', words)",
        "redis.call('PERSIST', workers)",
    ),
]

RELEASE_ENTRIES = [
    Mutant("release_entries", "no gate", "if held then", "if true then"),
    *deliveries("release_entries"),
    Mutant(
        "release_entries",
        "only an earlier delivery is released",
        "tonumber(ARGV[i + 1]) + 1)",
        "tonumber(ARGV[i + 1]))",
    ),
    Mutant("release_entries", "pending for anybody will do", ASK_OWNER, ASK_NOBODY),
    Mutant("release_entries", "the delivery is counted", "'RETRYCOUNT', ARGV[i + 1], ", ""),
    Mutant("release_entries", "it looks fresh", "'IDLE', idle_ms, ", ""),
    Mutant("release_entries", "it stays with who hands it back", "group, heir, 0, ARGV", "group, consumer, 0, ARGV"),
    Mutant("release_entries", "nobody hears of it", "call('ZADD', workers, 0, heir)", ""),
]

LEAVE_GROUP = [
    Mutant("leave_group", "the name goes with its entries", "if pending.err or #pending == 0 then", "if true then"),
    Mutant("leave_group", "entries of others keep the name", "'-', '+', 1, consumer)", "'-', '+', 1)"),
    Mutant("leave_group", "who has left is not marked", "redis.call('ZADD', workers, 0, consumer)", ""),
    Mutant("leave_group", "a full memory keeps the mark away", "redis.call('ZREM', workers, '')", ""),
    Mutant("leave_group", "its mark has no end", "redis.pcall('PEXPIRE', workers, 604800000)", ""),
    Mutant(
        "leave_group",
        "one who may not ask loses its entries",
        "not string.find(pending.err, 'NOGROUP'",
        "not (pending.err",
    ),
    Mutant("leave_group", "the name stays in the list", "redis.call('ZREM', workers, consumer)", ""),
    Mutant(
        "leave_group",
        "the name stays in the group",
        "redis.pcall('XGROUP', 'DELCONSUMER', stream, group, consumer)",
        "",
    ),
]

CAS = "tonumber(score) ~= lease"
TOLD = "fields, deliveries}"

TAKE_OVER = [
    Mutant("take_over", "whoever came back is robbed", f"if not score or {CAS} then", "if not score then"),
    Mutant("take_over", "a lease is not needed", "if not score or tonumber", "if score and tonumber"),
    Mutant("take_over", "a lease that grew will do", CAS, "tonumber(score) < lease"),
    Mutant("take_over", "entries of anybody are taken", "'-', '+', count, from)", "'-', '+', count)"),
    *bounds_bytes("take_over"),
    Mutant("take_over", "earlier deliveries are not told", TOLD, "fields, 0}"),
    Mutant("take_over", "deliveries are told one too low", TOLD, "fields, deliveries - 1}"),
    Mutant("take_over", "deliveries are told one too high", TOLD, "fields, deliveries + 1}"),
    Mutant(
        "take_over",
        "the delivery is not counted",
        "group, consumer, 0, id)",
        "group, consumer, 0, id, 'RETRYCOUNT', deliveries)",
    ),
    Mutant(
        "take_over",
        "the name goes while entries are left",
        "if #redis.call('XPENDING', stream, group, '-', '+', 1, from) == 0 then",
        "if true then",
    ),
    Mutant(
        "take_over",
        "the name goes while fresh entries are left",
        "if #redis.call('XPENDING', stream, group, '-', '+', 1, from) == 0 then",
        "if #redis.call('XPENDING', stream, group, 'IDLE', untouched_ms, '-', '+', 1, from) == 0 then",
    ),
    Mutant("take_over", "what came late is never taken", "math.min(since_lease_ms, min_idle_ms)", "since_lease_ms"),
    Mutant("take_over", "who took the name is robbed", "math.max(0, now_ms - lease) or 0", "0 or 0"),
    Mutant("take_over", "who has left is not relieved", "lease > 0 and math.max", "math.max"),
    Mutant("take_over", "the name stays in the group", "redis.call('XGROUP', 'DELCONSUMER', stream, group, from)", ""),
    Mutant("take_over", "the name stays in the list", "redis.call('ZREM', workers, from)", ""),
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

LIST_PENDING = [
    Mutant("list_pending", "entries of others are listed", "start, last, count, consumer)", "start, last, count)"),
    Mutant("list_pending", "deliveries are not told", "fields, deliveries}", "fields, 1}"),
    Mutant("list_pending", "the start is ignored", "group, start, last", "group, '-', last"),
    Mutant("list_pending", "the search has no end", "group, start, last", "group, start, '+'"),
    Mutant("list_pending", "the count is ignored", "last, count, consumer", "last, 1, consumer"),
    *bounds_bytes("list_pending"),
]

RECOUNT_GATE = "if not pending.err and #pending == 1 and pending[1][4] == delivery then"
ONE_MORE = "math.min(delivery + 1, most)"

COUNT_DELIVERY = [
    Mutant("count_delivery", "no gate", RECOUNT_GATE, "if true then"),
    Mutant("count_delivery", "pending for anybody will do", ASK_OWNER, ASK_NOBODY),
    Mutant("count_delivery", "the delivery is ignored", " and pending[1][4] == delivery", ""),
    Mutant("count_delivery", "earlier deliveries will do", "pending[1][4] == delivery", "pending[1][4] <= delivery"),
    Mutant("count_delivery", "later deliveries will do", "pending[1][4] == delivery", "pending[1][4] >= delivery"),
    Mutant("count_delivery", "nothing is counted", ONE_MORE, "delivery"),
    Mutant("count_delivery", "two are counted", ONE_MORE, "delivery + 2"),
    Mutant("count_delivery", "the count begins anew", ONE_MORE, "2"),
    Mutant("count_delivery", "only the first is counted", "counted = counted + 1", "return 1"),
    Mutant("count_delivery", "it is not told how many", "return counted", "return 0"),
    Mutant(
        "count_delivery", "one that is not ours stops the others", "counted + 1\n  end", "counted + 1\n  else break end"
    ),
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
