"""Hand-made mutants: one small thing wrong in one script. The tests of that script must notice each of them.

A mutant that nothing notices names a behaviour that nothing holds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    script: str
    title: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.script}: {self.title}"

    def apply(self, text: str) -> str:
        assert text.count(self.old) == 1, f"{self}: {self.old!r} stands {text.count(self.old)} times in the script"
        return text.replace(self.old, self.new)


GATE = "if not pending.err and #pending == 1 and pending[1][4] <= delivery then"
RELEASE_GATE = GATE.replace("delivery", "earlier + 1")
NO_GROUP = "if pending.err and string.find(pending.err, 'NOGROUP', 1, true) then return pending end"
ASK_OWNER = "redis.pcall('XPENDING', stream, group, id, id, 1, consumer)"
ASK_NOBODY = "redis.pcall('XPENDING', stream, group, id, id, 1)"
TIME = "redis.call('TIME')"
CLOCK_BEHIND, CLOCK_AHEAD = "{'1000000000', '0'}", "{'9000000000', '0'}"

ADD = [
    Mutant("add", "the ledger is not asked", "if seen then", "if false then"),
    Mutant("add", "the ledger lets the same number pass", "tonumber(last) >= number", "tonumber(last) > number"),
    Mutant("add", "the ledger lets older numbers pass", "tonumber(last) >= number", "tonumber(last) == number"),
    Mutant("add", "numbers are compared as text", "tonumber(last) >= number", "last >= ARGV[2]"),
    Mutant("add", "the ledger is not written", "call('HSET', ledger, slot, ARGV[2] .. ' ' .. taken)", ""),
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


def _deliveries(script: str, delivery: str = "delivery") -> list[Mutant]:
    """The gate is wrong about which delivery it is."""
    asked = f"pending[1][4] <= {delivery}"
    return [
        Mutant(script, "the delivery is ignored", f" and {asked}", ""),
        Mutant(script, "later deliveries will do", asked, f"pending[1][4] >= {delivery}"),
        Mutant(script, "the next delivery will do", asked, f"pending[1][4] <= {delivery} + 1"),
        Mutant(script, "a group made anew is not known", asked, f"pending[1][4] == {delivery}"),
    ]


ACK = [
    Mutant("ack", "entries stay in the stream", "redis.call('XDEL', stream, unpack(ids))", ""),
    Mutant("ack", "entries stay pending", "redis.call('XACK', stream, group, unpack(ids))", "#ids"),
]

RESCHEDULE = [
    Mutant("reschedule", "no gate", GATE, "if true then"),
    *_deliveries("reschedule"),
    Mutant("reschedule", "pending for anybody will do", ASK_OWNER, ASK_NOBODY),
    Mutant(
        "reschedule",
        "written before the gate",
        "local pending =",
        "redis.call('ZADD', delayed, now_ms + delay_ms, member)\n  local pending =",
    ),
    Mutant("reschedule", "the entry stays pending", "redis.call('XACK', stream, group, id)", ""),
    Mutant("reschedule", "the entry stays in the stream", "redis.call('XDEL', stream, id)", ""),
    Mutant("reschedule", "not written at all", "redis.call('ZADD', delayed, now_ms + delay_ms, member)", ""),
    Mutant("reschedule", "a clock that is behind", TIME, CLOCK_BEHIND),
    Mutant("reschedule", "a clock that is ahead", TIME, CLOCK_AHEAD),
    Mutant("reschedule", "the delay is ignored", "now_ms + delay_ms", "now_ms"),
    Mutant("reschedule", "without a group it is somebody else's", NO_GROUP, ""),
    Mutant("reschedule", "the type is found out too late", "kind ~= 'none' and kind ~= 'zset'", "false"),
]

BURY = [
    Mutant("bury", "no gate", GATE, "if true then"),
    *_deliveries("bury"),
    Mutant("bury", "pending for anybody will do", ASK_OWNER, ASK_NOBODY),
    Mutant(
        "bury",
        "written before the gate",
        "local pending =",
        "redis.call('XADD', dead, '*', unpack(ARGV, i + 3, i + 2 + words))\n  local pending =",
    ),
    Mutant("bury", "the entry stays pending", "redis.call('XACK', stream, group, id)", ""),
    Mutant("bury", "the entry stays in the stream", "redis.call('XDEL', stream, id)", ""),
    Mutant("bury", "the last value is cut off", "i + 2 + words)", "i + words)"),
    Mutant("bury", "there is no bound", "if max_len > 0 and buried > 0 then", "if false then"),
    Mutant("bury", "what is dropped is not counted", "redis.call('INCRBY', dropped, trimmed)", ""),
    Mutant("bury", "drops count as one", "redis.call('INCRBY', dropped, trimmed)", "redis.call('INCR', dropped)"),
    Mutant("bury", "without a group it is somebody else's", NO_GROUP, ""),
    Mutant("bury", "the type is found out too late", "kind ~= 'none' and kind ~= 'stream'", "false"),
]

PROMOTE = [
    Mutant("promote", "members stay delayed", "redis.call('ZREM', delayed, member)", ""),
    Mutant("promote", "bad members are promoted", "if size and 4 + size < #member then", "if size then"),
    Mutant("promote", "short members end the script", "if #member >= 4 then", "if true then"),
    Mutant("promote", "an empty envelope is an envelope", "4 + size < #member", "4 + size <= #member"),
    Mutant("promote", "one bad member stops the others", "bad = bad + 1", "bad = bad + 1\n    break"),
    Mutant(
        "promote",
        "bad members vanish",
        "redis.call('XADD', dead, '*', 'd', member, 'source_id', '', 'reason', 'malformed', "
        "'detail', 'not a delayed member')",
        "",
    ),
    Mutant("promote", "lengths of one byte", "a + b * 256 + c * 65536 + d * 16777216", "a"),
    Mutant(
        "promote", "lengths the other way round", "a + b * 256 + c * 65536 + d * 16777216", "d + c * 256 + b * 65536"
    ),
    Mutant("promote", "a clock that is behind", TIME, CLOCK_BEHIND),
    Mutant("promote", "a clock that is ahead", TIME, CLOCK_AHEAD),
    Mutant("promote", "who does not lead moves all the same", "must_lead == '1' and not leads", "false"),
    Mutant("promote", "only the leader moves", "must_lead == '1' and not leads", "not leads"),
    Mutant("promote", "the lease is stolen", "local leads = not leader or leader == holder", "local leads = true"),
    Mutant("promote", "the holder cannot renew", "not leader or leader == holder", "not leader"),
    Mutant("promote", "the lease has no end", "'SET', lease, holder, 'PX', lease_ms", "'SET', lease, holder"),
    Mutant("promote", "the batch is ignored", "'LIMIT', 0, batch", "'LIMIT', 0, -1"),
    Mutant("promote", "an empty name is a name", "if name == '' then", "if false then"),
    Mutant("promote", "the stream is trimmed", "'*', 'd', envelope)", "'MAXLEN', 2, '*', 'd', envelope)"),
    Mutant("promote", "the last is taken for the next", "'ZRANGE', delayed, 0, 0,", "'ZRANGE', delayed, -1, -1,"),
    Mutant("promote", "overdue is told as negative", "math.max(0, tonumber(first[2]) - now_ms)", "first[2] - now_ms"),
]

KEEP = [
    Mutant("keep", "steals back", ASK_OWNER, ASK_NOBODY),
    Mutant("keep", "no gate", GATE, "if true then"),
    *_deliveries("keep"),
    Mutant("keep", "every entry has the first one's delivery", "tonumber(ARGV[i + 1])", "tonumber(ARGV[6])"),
    Mutant("keep", "every other entry is forgotten", "for i = 5, #ARGV, 2 do", "for i = 5, #ARGV, 4 do"),
    Mutant("keep", "a renewal counts as a delivery", "mine[#mine + 1] = 'JUSTID'", ""),
    Mutant("keep", "the hold is not renewed", "if #mine > 0 then", "if false then"),
    Mutant("keep", "without a group all is lost", "'NOGROUP', 1, true) then break end", "'NOGROUP', 1, true) then end"),
    Mutant("keep", "losses are not told", "return lost", "return {}"),
    Mutant("keep", "the lease is not renewed", "'ZADD', workers,", "'ZADD', workers, 'NX',"),
    Mutant("keep", "a clock that is behind", TIME, CLOCK_BEHIND),
    Mutant("keep", "a clock that is ahead", TIME, CLOCK_AHEAD),
    Mutant("keep", "the lease ends now", "now_ms + lease_ms", "now_ms"),
    Mutant("keep", "the list has no end", "redis.call('PEXPIRE', workers, keep_key_ms)", ""),
]

RELEASE = [
    Mutant("release", "no gate", RELEASE_GATE, "if true then"),
    *_deliveries("release", "earlier + 1"),
    Mutant("release", "only an earlier delivery is released", "<= earlier + 1", "<= earlier"),
    Mutant("release", "pending for anybody will do", ASK_OWNER, ASK_NOBODY),
    Mutant("release", "the delivery is counted", "'RETRYCOUNT', earlier, ", ""),
    Mutant("release", "it looks fresh", "'IDLE', idle_ms, ", ""),
    Mutant("release", "it stays with who hands it back", "group, heir, 0, id", "group, consumer, 0, id"),
    Mutant("release", "nobody hears of it", "redis.call('ZADD', workers, 0, heir)", ""),
]

LEAVE = [
    Mutant("leave", "the name goes with its entries", "if pending.err or #pending == 0 then", "if true then"),
    Mutant("leave", "entries of others keep the name", "'-', '+', 1, consumer)", "'-', '+', 1)"),
    Mutant("leave", "who has left is not marked", "redis.call('ZADD', workers, 0, consumer)", ""),
    Mutant("leave", "a full memory keeps the mark away", "redis.call('PERSIST', workers)", ""),
    Mutant("leave", "its mark has no end", "redis.call('PEXPIRE', workers, 604800000)", ""),
    Mutant("leave", "the name stays in the list", "redis.call('ZREM', workers, consumer)", ""),
    Mutant("leave", "the name stays in the group", "redis.pcall('XGROUP', 'DELCONSUMER', stream, group, consumer)", ""),
]

CAS = "tonumber(score) ~= tonumber(lease)"
TOLD = "claimed[1][2], deliveries}"

TAKEOVER = [
    Mutant("takeover", "whoever came back is robbed", f"if not score or {CAS} then", "if not score then"),
    Mutant("takeover", "a lease is not needed", "if not score or tonumber", "if score and tonumber"),
    Mutant("takeover", "a lease that grew will do", CAS, "tonumber(score) < tonumber(lease)"),
    Mutant("takeover", "entries of anybody are taken", "'-', '+', count, from)", "'-', '+', count)"),
    Mutant("takeover", "earlier deliveries are not told", TOLD, "claimed[1][2], 0}"),
    Mutant("takeover", "deliveries are told one too low", TOLD, "claimed[1][2], deliveries - 1}"),
    Mutant("takeover", "deliveries are told one too high", TOLD, "claimed[1][2], deliveries + 1}"),
    Mutant(
        "takeover",
        "the delivery is not counted",
        "group, consumer, 0, id)",
        "group, consumer, 0, id, 'RETRYCOUNT', deliveries)",
    ),
    Mutant("takeover", "the name goes while entries are left", "1, from) == 0 then", "1, from) >= 0 then"),
    Mutant("takeover", "the name stays in the group", "redis.call('XGROUP', 'DELCONSUMER', stream, group, from)", ""),
    Mutant("takeover", "the name stays in the list", "redis.call('ZREM', workers, from)", ""),
]

CLAIM_IDLE = [
    Mutant("claim_idle", "the leased are robbed", " and not redis.call('ZSCORE', workers, owner)", ""),
    Mutant("claim_idle", "our own are delivered again", "owner ~= consumer and ", ""),
    Mutant("claim_idle", "idleness is not asked", "'IDLE', min_idle_ms, start", "start"),
    Mutant("claim_idle", "a claim that is refused costs the entry", "consumer, 0, id)", "consumer, 86400000, id)"),
    Mutant("claim_idle", "earlier deliveries are not told", TOLD, "claimed[1][2], 0}"),
    Mutant("claim_idle", "the count is ignored", "if #taken < count and", "if"),
    Mutant("claim_idle", "only one page is looked at", "if #found < page then break end", "break"),
]

ORPHANS = [
    Mutant("orphans", "entries of others are listed", "start, '+', count, consumer)", "start, '+', count)"),
    Mutant("orphans", "deliveries are not told", "or false, deliveries}", "or false, 1}"),
    Mutant("orphans", "the start is ignored", "group, start, '+'", "group, '-', '+'"),
    Mutant("orphans", "the count is ignored", "'+', count, consumer", "'+', 1, consumer"),
]

RECOUNT_GATE = "if not pending.err and #pending == 1 and pending[1][4] == delivery then"
ONE_MORE = "'RETRYCOUNT', delivery + 1, 'JUSTID'"

RECOUNT = [
    Mutant("recount", "no gate", RECOUNT_GATE, "if true then"),
    Mutant("recount", "pending for anybody will do", ASK_OWNER, ASK_NOBODY),
    Mutant("recount", "the delivery is ignored", " and pending[1][4] == delivery", ""),
    Mutant("recount", "earlier deliveries will do", "pending[1][4] == delivery", "pending[1][4] <= delivery"),
    Mutant("recount", "later deliveries will do", "pending[1][4] == delivery", "pending[1][4] >= delivery"),
    Mutant("recount", "nothing is counted", ONE_MORE, "'RETRYCOUNT', delivery, 'JUSTID'"),
    Mutant("recount", "two are counted", ONE_MORE, "'RETRYCOUNT', delivery + 2, 'JUSTID'"),
    Mutant("recount", "the count begins anew", ONE_MORE, "'RETRYCOUNT', 2, 'JUSTID'"),
    Mutant("recount", "only the first is counted", "counted = counted + 1", "return 1"),
    Mutant("recount", "it is not told how many", "return counted", "return 0"),
    Mutant("recount", "one that is not ours stops the others", "counted + 1\n  end", "counted + 1\n  else break end"),
]

YIELD = [
    Mutant("yield", "anybody's lease is let go", "if redis.call('GET', lease) == holder then", "if true then"),
    Mutant("yield", "the lease is kept", "return redis.call('DEL', lease)", "return 1"),
]

STILL_THERE = "if redis.call('XDEL', dead, id) == 1 then"
BACK = "redis.call('XADD', stream, '*', 'd', envelope, 'n', name)"
BACK_NAMELESS = "redis.call('XADD', stream, '*', 'd', envelope)"

REPLAY = [
    Mutant("replay", "no gate", STILL_THERE, "redis.call('XDEL', dead, id)\n  if true then"),
    Mutant("replay", "written before the gate", STILL_THERE, f"{BACK}\n  {STILL_THERE}"),
    Mutant("replay", "the letter stays", STILL_THERE, "if #redis.call('XRANGE', dead, id, id) == 1 then"),
    Mutant("replay", "all letters go with one", STILL_THERE, "if redis.call('DEL', dead) == 1 then"),
    Mutant("replay", "one that is gone stops the others", "moved + 1\n  end", "moved + 1\n  else break end"),
    Mutant("replay", "only the first is moved", "for i = 1, #ARGV, 3 do", "for i = 1, math.min(3, #ARGV), 3 do"),
    Mutant("replay", "the last is forgotten", "for i = 1, #ARGV, 3 do", "for i = 1, #ARGV - 3, 3 do"),
    Mutant("replay", "the name is lost", BACK, BACK_NAMELESS),
    Mutant("replay", "an empty name is a name", "if name == '' then", "if false then"),
    Mutant("replay", "a job without a name vanishes", BACK_NAMELESS, ""),
    Mutant("replay", "a job with a name vanishes", BACK, ""),
    Mutant(
        "replay", "name and envelope change places", BACK, "redis.call('XADD', stream, '*', 'd', name, 'n', envelope)"
    ),
    Mutant("replay", "the letter's id is kept", BACK, "redis.call('XADD', stream, id, 'd', envelope, 'n', name)"),
    Mutant("replay", "the stream is trimmed", BACK, BACK.replace("'*'", "'MAXLEN', 2, '*'")),
    Mutant("replay", "back among the dead", BACK, BACK.replace("stream", "dead")),
    Mutant("replay", "what was asked for is counted", "return moved", "return #ARGV / 3"),
    Mutant("replay", "moves are not counted", "moved = moved + 1", ""),
    Mutant("replay", "moves count twice", "moved = moved + 1", "moved = moved + 2"),
    Mutant("replay", "the type is found out too late", "kind ~= 'none' and kind ~= 'stream'", "false"),
    Mutant("replay", "there must be a stream", "kind ~= 'none' and kind ~= 'stream'", "kind ~= 'stream'"),
]

MUTANTS = [
    *ADD,
    *ACK,
    *RESCHEDULE,
    *BURY,
    *PROMOTE,
    *KEEP,
    *RELEASE,
    *LEAVE,
    *TAKEOVER,
    *CLAIM_IDLE,
    *ORPHANS,
    *RECOUNT,
    *YIELD,
    *REPLAY,
]
