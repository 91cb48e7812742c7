"""Mutants of the scripts that tell of jobs, keep their results and take them away."""

from __future__ import annotations

from tests.scripts.mutants.mutant import Mutant, compares_ids, reads_ids, unmarks

ACKS = "redis.call('XACK', stream, group, unpack(ARGV, 7, last_entry))"
DELETES = "redis.call('XDEL', stream, unpack(ARGV, 7, last_entry))"
ACKS_AT_ONCE = "redis.call('XACKDEL', stream, group, 'IDS', entries, unpack(ARGV, 7, last_entry))"
SETS = "redis.pcall('SET', ARGV[i], ARGV[i + 1], 'PX', ttl_ms)"
SETS_NEW = SETS.replace("ttl_ms", "ttl_ms, 'NX'")
SETS_AT_ONCE = "redis.pcall('MSETEX', results, unpack(words))"
BEFORE_ACKS = "local are_gone = at_once\n"
TRIM = "'XTRIM', events, 'MAXLEN', '~', max_len"

ACK_WITH_RESULT = [
    Mutant("ack_with_result", "the entries stay pending", ACKS, ""),
    Mutant("ack_with_result", "only the first is acked", ACKS, ACKS.replace("last_entry", "7")),
    Mutant("ack_with_result", "without a group nothing is done", ACKS, f"if {ACKS} == 0 then return 0 end"),
    Mutant("ack_with_result", "the entries stay in the stream", DELETES, ""),
    Mutant("ack_with_result", "only the first leaves the stream", DELETES, DELETES.replace("last_entry", "7")),
    Mutant("ack_with_result", "results are not stored", SETS, "{}"),
    Mutant("ack_with_result", "results have no end", SETS, SETS.replace(", 'PX', ttl_ms", "")),
    Mutant(
        "ack_with_result",
        "results live for seconds",
        SETS,
        SETS.replace("'PX', ttl_ms", "'EX', math.ceil(ttl_ms / 1000)"),
    ),
    Mutant("ack_with_result", "the first result stays", f"{SETS}.err", f"({SETS_NEW} or {{}}).err"),
    Mutant("ack_with_result", "all have one result", SETS, SETS.replace("ARGV[i + 1]", "ARGV[last_entry + 2]")),
    Mutant(
        "ack_with_result",
        "the last result is left out",
        "last_entry + 1, last_result, 2 do",
        "last_entry + 1, last_result - 2, 2 do",
    ),
    Mutant("ack_with_result", "a refused result stops it", SETS, SETS.replace("pcall", "call")),
    Mutant("ack_with_result", "refusals are not counted", "refused = refused + 1", ""),
    Mutant("ack_with_result", "what is taken is counted", f"if {SETS}.err", f"if not {SETS}.err"),
    Mutant(
        "ack_with_result",
        "results are written first, and refused without memory",
        BEFORE_ACKS,
        f"for i = last_entry + 1, last_result, 2 do if {SETS}.err then ARGV[i] = 'elsewhere' end end\n{BEFORE_ACKS}",
        needs_msetex=True,  # elsewhere to try a removal counts as a write, after which nothing is refused
    ),
    Mutant("ack_with_result", "no marker is looked at", "for i = last_result + 1, #ARGV, 2 do", "for i = 1, 0 do"),
    Mutant(
        "ack_with_result",
        "the last marker is left out",
        "last_result + 1, #ARGV, 2 do",
        "last_result + 1, #ARGV - 2, 2 do",
    ),
    *unmarks("ack_with_result"),
    Mutant(
        "ack_with_result", "what cannot be acked at once is left", "are_gone and code == 1", "true", needs_msetex=True
    ),
    Mutant(
        "ack_with_result",
        "only the first leaves at once",
        ACKS_AT_ONCE,
        "redis.call('XACKDEL', stream, group, 'IDS', 1, ARGV[7])",
        needs_msetex=True,
    ),
    Mutant("ack_with_result", "at once results are not stored", SETS_AT_ONCE, "1", needs_msetex=True),
    Mutant(
        "ack_with_result",
        "stored at once they have no end",
        "words[#words + 1] = 'PX'\n  words[#words + 1] = ttl_ms",
        "",
        needs_msetex=True,
    ),
    Mutant(
        "ack_with_result",
        "stored at once they live for seconds",
        "words[#words + 1] = 'PX'",
        "words[#words + 1] = 'EX'",
        needs_msetex=True,
    ),
    Mutant(
        "ack_with_result",
        "stored at once the first stays",
        SETS_AT_ONCE,
        f"(function() words[#words + 1] = 'NX' return {SETS_AT_ONCE} and 1 end)()",
        needs_msetex=True,
    ),
    Mutant(
        "ack_with_result",
        "what is refused at once stops it",
        SETS_AT_ONCE,
        SETS_AT_ONCE.replace("pcall", "call"),
        needs_msetex=True,
    ),
    Mutant(
        "ack_with_result",
        "what is refused at once is lost",
        f"{SETS_AT_ONCE} == 1",
        f"{SETS_AT_ONCE} ~= nil",
        needs_msetex=True,
    ),
]

WRITE_EVENTS = [
    Mutant("write_events", "the last value is cut off", "i + words))", "i + words - 2))"),
    Mutant("write_events", "only the first is written", "while i <= #ARGV do", "if i <= #ARGV then"),
    Mutant("write_events", "all have the same length", "i + 1 + words\n", "i + 1 + tonumber(ARGV[2])\n"),
    Mutant("write_events", "nothing is trimmed", f"redis.pcall({TRIM})", ""),
    Mutant("write_events", "trimmed to the entry", "'~'", "'='"),
    Mutant(
        "write_events",
        "trimmed before it is written",
        "local write, ",
        f"redis.call({TRIM})\nif true then max_len = 10^9 end\nlocal write, ",
    ),
    Mutant("write_events", "events are not counted", "count + 1,", "count,"),
    Mutant("write_events", "words are counted", "count + 1,", "count + words,"),
    Mutant(
        "write_events",
        "a key of another type is passed over",
        "local write, count, i = redis.call",
        "local write, count, i = redis.pcall",
    ),
    Mutant(
        "write_events",
        "the newest are lost",
        "write('XADD', events, '*'",
        "write('XADD', events, 'MAXLEN', 1, '*'",
    ),
]

WRITE_COMPLETED = [
    Mutant("write_completed", "nothing is trimmed", f"redis.pcall({TRIM})", ""),
    Mutant("write_completed", "trimmed to the entry", "'~'", "'='"),
    Mutant(
        "write_completed", "only the first is written", "for i = 3, #ARGV, 6 do", "for i = 3, math.min(8, #ARGV), 6 do"
    ),
    Mutant("write_completed", "the last is forgotten", "for i = 3, #ARGV, 6 do", "for i = 3, #ARGV - 6, 6 do"),
    Mutant("write_completed", "an empty name is a name", "if name == '' then", "if false then"),
    Mutant("write_completed", "the name is lost", "if name == '' then", "if true then"),
    Mutant(
        "write_completed",
        "active is written again without a name",
        "if name == '' then\n    if started ~= '' then",
        "if name == '' then\n    if true then",
    ),
    Mutant(
        "write_completed",
        "active is written again with a name",
        "else\n    if started ~= '' then",
        "else\n    if true then",
    ),
    Mutant(
        "write_completed",
        "active is never written without a name",
        "if name == '' then\n    if started ~= '' then",
        "if name == '' then\n    if false then",
    ),
    Mutant(
        "write_completed",
        "active is never written with a name",
        "else\n    if started ~= '' then",
        "else\n    if false then",
    ),
    Mutant("write_completed", "it was active when it had ended", "'ts', started, 'n'", "'ts', ended, 'n'"),
    Mutant("write_completed", "and so was one without a name", "'ts', started, 'attempt'", "'ts', ended, 'attempt'"),
    Mutant("write_completed", "it had ended when it began", "'ts', ended, 'n'", "'ts', started, 'n'"),
    Mutant("write_completed", "and so had one without a name", "'ts', ended, 'attempt'", "'ts', started, 'attempt'"),
    Mutant("write_completed", "what is stored is not said", "KEYS[1], ARGV[1], ARGV[2]", "KEYS[1], ARGV[1], '0'"),
    Mutant("write_completed", "everything is said to be stored", "KEYS[1], ARGV[1], ARGV[2]", "KEYS[1], ARGV[1], '1'"),
    Mutant("write_completed", "words are counted", "(#ARGV - 2) / 6", "#ARGV - 2"),
    Mutant(
        "write_completed",
        "a key of another type is passed over",
        "local write = redis.call",
        "local write = redis.pcall",
    ),
]

FURTHER = "and is_after(group[i + 1], last) then"

PURGE_WAITING = [
    Mutant("purge_waiting", "what is held goes too", "'(' .. last, newest", "'-', newest"),
    Mutant("purge_waiting", "the last that is held goes too", "'(' .. last, newest", "last, newest"),
    Mutant("purge_waiting", "what came later goes too", "last, newest, 'COUNT'", "last, '+', 'COUNT'"),
    Mutant("purge_waiting", "the last group decides", FURTHER, "then"),
    Mutant("purge_waiting", "the first group decides", FURTHER, "and last == '0-0' then"),
    Mutant(
        "purge_waiting",
        "the group furthest behind decides",
        FURTHER,
        "and (last == '0-0' or is_after(last, group[i + 1])) then",
    ),
    *[mutant for mutant in compares_ids("purge_waiting") if "as numbers" not in mutant.title],
    Mutant("purge_waiting", "there must be a stream", "if kind == 'none' then return 0 end", ""),
    Mutant("purge_waiting", "another type is passed over", "if kind == 'none'", "if kind ~= 'stream'"),
    Mutant("purge_waiting", "the count is ignored", ", 'COUNT', count", ""),
    Mutant(
        "purge_waiting",
        "the newest go first",
        "call('XRANGE', stream, '(' .. last, newest,",
        "call('XREVRANGE', stream, newest, '(' .. last,",
    ),
    Mutant("purge_waiting", "nothing is removed", "removed + call('XDEL', stream, entry[1])", "removed + 1"),
    Mutant("purge_waiting", "removals are not counted", "removed = removed + call", "removed = call"),
    Mutant("purge_waiting", "markers stay", "if id then remove_marker(id, entry[1]) end", ""),
    Mutant("purge_waiting", "only the first field is looked at", "for i = 1, #entry[2], 2 do", "for i = 1, 2, 2 do"),
    Mutant(
        "purge_waiting",
        "an envelope is found by its place",
        "entry[2][i] == 'd' and id_of(",
        "entry[2][i] == 'n' and id_of(",
    ),
    Mutant("purge_waiting", "only windows end", "release_id(prefix, id, entry_id)", ""),
    Mutant("purge_waiting", "a window stays", "if redis.pcall('GET', marker) == 'w' .. entry_id then", "if false then"),
    Mutant(
        "purge_waiting",
        "another's window goes",
        "if redis.pcall('GET', marker) == 'w' .. entry_id then",
        "if string.sub(redis.pcall('GET', marker) or '', 1, 1) == 'w' then",
    ),
    *reads_ids("purge_waiting"),
]

EMPTY_STREAM = [
    Mutant("empty_stream", "every group stays", "if about['consumers'] > 0 then", "if true then"),
    Mutant("empty_stream", "no group stays", "if about['consumers'] > 0 then", "if false then"),
    Mutant("empty_stream", "a group that is there is in the way", "'BUSYGROUP', 1, true) then", "'x', 1, true) then"),
    Mutant("empty_stream", "a narrow user is told so too late", "'BUSYGROUP', 1, true) then", "'', 1, true) then"),
    Mutant(
        "empty_stream", "one who may not set ids is told so too late", "and refusal('XSETID', stream, last)", "and nil"
    ),
    Mutant("empty_stream", "the stream stays", "call('UNLINK', stream)\n", ""),
    Mutant("empty_stream", "ids begin again", "then call('XSETID', stream, last) end", "then end"),
    Mutant(
        "empty_stream",
        "used up ids stay so",
        "#kept > 0 and not string.find(last,",
        "#kept > 0 and not string.find('',",
    ),
    Mutant("empty_stream", "what was added is skipped", "name, '0', 'MKSTREAM'", "name, '9999999999999-1', 'MKSTREAM'"),
]

PURGE_DELAYED = [
    Mutant("purge_delayed", "the jobs stay", "call('ZREMRANGEBYRANK', delayed, 0, #members - 1)", ""),
    Mutant("purge_delayed", "all go", "'ZREMRANGEBYRANK', delayed, 0, #members - 1", "'DEL', delayed"),
    Mutant("purge_delayed", "the count is ignored", "0, count - 1)", "0, -1)"),
    Mutant("purge_delayed", "one too many", "0, count - 1)", "0, count)"),
    Mutant(
        "purge_delayed",
        "the latest go first",
        "call('ZRANGE', delayed, 0, count - 1)",
        "call('ZREVRANGE', delayed, 0, count - 1)",
    ),
    Mutant("purge_delayed", "the index stays", "call('DEL', prefix .. ':didx:' .. id, prefix", "call('DEL', prefix"),
    Mutant("purge_delayed", "the marker stays", ", prefix .. ':unique:' .. id, prefix", ", prefix"),
    Mutant("purge_delayed", "what official producers see stays", ", prefix .. ':dlid:' .. id)", ")"),
    Mutant("purge_delayed", "short members end the script", "#member >= 4 and struct.unpack", "struct.unpack"),
    Mutant("purge_delayed", "lengths of one byte", "struct.unpack('<I4', member)", "byte(member)"),
    Mutant("purge_delayed", "lengths the other way round", "'<I4'", "'>I4'"),
    Mutant("purge_delayed", "the name is taken for the envelope", "sub(member, 5 + size)", "sub(member, 5)"),
    Mutant(
        "purge_delayed",
        "the last stays",
        "call('ZREMRANGEBYRANK', delayed, 0, #members - 1)",
        "call('ZREMRANGEBYRANK', delayed, 0, #members - 2)",
    ),
    Mutant("purge_delayed", "what was asked for is counted", "return #members", "return count"),
    *reads_ids("purge_delayed"),
]
