"""Mutants of the script that brings dead jobs back."""

from __future__ import annotations

from tests.scripts.mutants.mutant import Mutant

STILL_THERE = "if #letters == 1 then"
BACK = "redis.pcall('XADD', stream, '*', 'd', envelope, 'n', name)"
BACK_NAMELESS = "redis.pcall('XADD', stream, '*', 'd', envelope)"

REPLAY = [
    Mutant("replay", "no gate", STILL_THERE, "if true then"),
    Mutant("replay", "written before the gate", STILL_THERE, f"{BACK}\n  {STILL_THERE}"),
    Mutant("replay", "the letter stays", "redis.call('XDEL', dead, id)", ""),
    Mutant("replay", "all letters go with one", "redis.call('XDEL', dead, id)", "redis.call('DEL', dead)"),
    Mutant("replay", "one who may not delete letters adds their jobs", "redis.call('XDEL', dead, '0-0')", ""),
    Mutant("replay", "one that is gone stops the others", "moved + 1\n  end", "moved + 1\n  else break end"),
    Mutant("replay", "only the first is moved", "for i = 1, #ARGV, 3 do", "for i = 1, math.min(3, #ARGV), 3 do"),
    Mutant("replay", "the last is forgotten", "for i = 1, #ARGV, 3 do", "for i = 1, #ARGV - 3, 3 do"),
    Mutant("replay", "the name is lost", BACK, BACK_NAMELESS),
    Mutant("replay", "an empty name is a name", "if name == '' then", "if false then"),
    Mutant("replay", "a job without a name vanishes", BACK_NAMELESS, "''"),
    Mutant("replay", "a job with a name vanishes", BACK, "''"),
    Mutant(
        "replay", "name and envelope change places", BACK, "redis.pcall('XADD', stream, '*', 'd', name, 'n', envelope)"
    ),
    Mutant("replay", "the letter's id is kept", BACK, "redis.pcall('XADD', stream, id, 'd', envelope, 'n', name)"),
    Mutant("replay", "the stream is trimmed", BACK, BACK.replace("'*'", "'MAXLEN', 2, '*'")),
    Mutant("replay", "back among the dead", BACK, BACK.replace("stream", "dead")),
    Mutant("replay", "what was asked for is counted", "return {moved, ''}", "return {#ARGV / 3, ''}"),
    Mutant("replay", "moves are not counted", "moved = moved + 1", ""),
    Mutant("replay", "moves count twice", "moved = moved + 1", "moved = moved + 2"),
    Mutant(
        "replay", "what is refused is lost", "if type(entry_id) == 'table' then return {moved, entry_id.err} end", ""
    ),
    Mutant("replay", "why it is refused is not told", "return {moved, entry_id.err}", "return {moved, ''}"),
]
