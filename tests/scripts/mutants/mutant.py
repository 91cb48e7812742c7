"""What a mutant is, and what several of them are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    script: str
    title: str
    old: str
    new: str
    needs_msetex: bool = False  # on a server without it, it makes no difference

    def __str__(self) -> str:
        return f"{self.script}: {self.title}"

    def apply(self, text: str) -> str:
        assert text.count(self.old) == 1, f"{self}: {self.old!r} stands {text.count(self.old)} times in the script"
        return text.replace(self.old, self.new)


# The gate of the scripts that move a whole batch: what passes it is gathered first.
PASSES = "if held and not ours[id] then"
HELD = "return #pending == 1 and pending[1][4] <= delivery"
GATE = "if not pending.err and #pending == 1 and pending[1][4] <= delivery then"
NO_GROUP = "if trouble then return trouble end"
ASK_OWNER = "redis.pcall('XPENDING', stream, group, id, id, 1, consumer)"
ASK_NOBODY = "redis.pcall('XPENDING', stream, group, id, id, 1)"
TIME = "redis.call('TIME')"
CALL_TIME = "call('TIME')"
CEIL, FLOOR = "math.ceil(time[2] / 1000)", "math.floor(time[2] / 1000)"
CLOCK_BEHIND, CLOCK_AHEAD = "{'1000000000', '0'}", "{'9000000000', '0'}"


def deliveries(script: str, delivery: str = "delivery") -> list[Mutant]:
    """The gate is wrong about which delivery it is."""
    asked = f"pending[1][4] <= {delivery}"
    return [
        Mutant(script, "the delivery is ignored", f" and {asked}", ""),
        Mutant(script, "later deliveries will do", asked, f"pending[1][4] >= {delivery}"),
        Mutant(script, "the next delivery will do", asked, f"pending[1][4] <= {delivery} + 1"),
        Mutant(script, "a group made anew is not known", asked, f"pending[1][4] == {delivery}"),
    ]


def unmarks(script: str) -> list[Mutant]:
    """It is wrong about which markers go."""
    return [
        Mutant(script, "another's marker goes", "is_its_own = place == id or", "is_its_own = place or"),
        Mutant(script, "its own marker stays", "is_its_own = place == id or", "is_its_own ="),
        Mutant(script, "that of an official producer stays", "found[1] or 'd'", "found[1] or 'o'"),
        Mutant(script, "that of an official promoter stays", "((place == 'd' or place", "((place"),
        Mutant(script, "that of a delayed job goes", "place == 'wd') and not is_delayed)", "place == 'wd'))"),
        Mutant(
            script,
            "an index is enough",
            "type(redis.pcall('ZSCORE', prefix .. ':delayed', member)) == 'string'",
            "true",
        ),
        Mutant(script, "a window goes", "if is_its_own and string.sub(place, 1, 1) ~= 'w' then", "if is_its_own then"),
        Mutant(script, "the marker stays", "redis.pcall('DEL', marker)", "do end"),
        Mutant(script, "what official producers see stays", "redis.pcall('DEL', official)", "do end"),
        Mutant(script, "what they see of another job goes", "if is_its_own and is_official", "if is_official"),
        Mutant(
            script, "what they see of a delayed job goes", "is_official and not is_delayed then", "is_official then"
        ),
        Mutant(script, "a window hides its own place", "place == 'w' .. id or ", ""),
    ]


def reads_ids(script: str) -> list[Mutant]:
    """It is wrong about the ids in envelopes."""
    return [
        Mutant(script, "short ids are not found", "if head >= 0xa0 and head <= 0xbf then", "if false then"),
        Mutant(script, "ids of 31 are not found", "head <= 0xbf", "head < 0xbf"),
        Mutant(script, "ids of 32 are not found", "if head == 0xd9 and size then", "if false then"),
        Mutant(script, "ids of 256 are not found", "if head == 0xda and #envelope >= 4 then", "if false then"),
        Mutant(
            script, "ids of 256 are found wrong", "size * 256 + byte(envelope, 4)", "size + byte(envelope, 4) * 256"
        ),
        Mutant(script, "a short envelope ends the script", "head == 0xda and #envelope >= 4", "head == 0xda"),
        Mutant(script, "a shorter one does", "head == 0xd9 and size then", "head == 0xd9 then"),
        Mutant(script, "the shortest does", "if not head or array", "if array"),
        Mutant(script, "arrays of three are not known", "array < 0x93", "array < 0x94"),
        Mutant(script, "arrays of five are not known", "array > 0x95", "array > 0x94"),
        Mutant(script, "arrays of two are taken for jobs", "array < 0x93", "array < 0x92"),
        Mutant(script, "arrays of six are taken for jobs", "array > 0x95", "array > 0x96"),
    ]


def compares_ids(script: str) -> list[Mutant]:
    """It is wrong about which of two entry ids comes later."""
    compared = "return #ms > #other_ms or (#ms == #other_ms and ms > other_ms)"
    return [
        Mutant(script, "ids are compared as text", compared, "return ms > other_ms"),
        Mutant(script, "ids are compared as numbers", compared, "return tonumber(ms) > tonumber(other_ms)"),
        Mutant(
            script,
            "the number of an entry is ignored",
            "if ms == other_ms then ms, other_ms = sequence, other_sequence end",
            "",
        ),
        Mutant(
            script,
            "the time of an entry is ignored",
            "if ms == other_ms then ms, other_ms = sequence, other_sequence end",
            "ms, other_ms = sequence, other_sequence",
        ),
    ]


def leads_alone(script: str) -> list[Mutant]:
    """Of the scripts that only one process at a time may run to an end."""
    return [
        Mutant(script, "the lease is stolen", "if kind == 'none' then return nil end", "if true then return nil end"),
        Mutant(script, "the holder cannot renew", "if leader == holder then return nil end", ""),
        Mutant(script, "the lease has no end", "'SET', lease, holder, 'PX', lease_ms", "'SET', lease, holder"),
        Mutant(script, "its end is not told", "then return left_ms, leader", "then return -1, leader"),
        Mutant(script, "a far end stays", "if left_ms >= 0 and left_ms <= longest_ms then", "if left_ms >= 0 then"),
        Mutant(script, "no end is one", "if left_ms >= 0 and left_ms", "if left_ms"),
        Mutant(script, "what is cut stays", "redis.call('PEXPIRE', lease, longest_ms)", ""),
        Mutant(script, "nobody hears of the cut", "or 'a ' .. kind, 1", "or 'a ' .. kind, 0"),
        Mutant(script, "all are cut", "or 'a ' .. kind, 0", "or 'a ' .. kind, 1"),
        Mutant(
            script,
            "a lease of another type stops it",
            "kind == 'string' and redis.call('GETRANGE'",
            "redis.call('GETRANGE'",
        ),
    ]


def carries(script: str) -> list[Mutant]:
    """It is wrong about what is sent of an entry."""
    return [
        Mutant(script, "large entries are sent", "if bytes > max_entry_bytes then", "if false then"),
        Mutant(script, "entries of that size are not sent", "bytes > max_entry_bytes", "bytes >= max_entry_bytes"),
        Mutant(script, "only the first word weighs", "bytes = bytes + #word end", "bytes = #word break end"),
    ]


def bounds_bytes(script: str) -> list[Mutant]:
    """It is wrong about how many bytes one call may bring."""
    is_claim_idle = script == "claim_idle"
    bound = "count and bytes_left > 0 and owner" if is_claim_idle else "if bytes_left <= 0 then break end"
    return [
        Mutant(script, "the bytes are ignored", bound, "count and owner" if is_claim_idle else ""),
        Mutant(script, "bytes are not counted", "bytes_left = bytes_left - bytes", ""),
        *carries(script),
    ]


def tells(script: str, has_events: str) -> list[Mutant]:
    """It is wrong about the events of jobs that it moves."""
    return [
        Mutant(script, "events are not written", "while first <= last do", "while false do"),
        Mutant(script, "only the first event is written", "while first <= last do", "if first <= last then"),
        Mutant(script, "an event loses its last value", "first + 1, first + words))", "first + 1, first + words - 2))"),
        Mutant(script, "events are not bounded", f"{has_events} then", "== 'never' then"),
        Mutant(script, "refused events are not counted", "refused = refused + 1", ""),
        Mutant(script, "refused events stop it", "redis.pcall('XADD', events, '*'", "redis.call('XADD', events, '*'"),
    ]
