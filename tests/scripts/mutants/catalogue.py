"""Hand-made mutants: one small thing wrong in one script. The tests of that script must notice each of them.

A mutant that nothing notices names a behaviour that nothing holds.
"""

from __future__ import annotations

from tests.scripts.mutants.adding import ADD, ADD_ON_TERMS
from tests.scripts.mutants.delaying import MOVE_DELAYED, PROMOTE, YIELD
from tests.scripts.mutants.holding import CLAIM_IDLE, KEEP, LEAVE, ORPHANS, READ, RECOUNT, REGROUP, RELEASE, TAKEOVER
from tests.scripts.mutants.mutant import Mutant
from tests.scripts.mutants.repeating import DUE_REPEATABLES, FIRE, MOVE_REPEATABLE, SET_ASIDE, UPSERT_REPEATABLE
from tests.scripts.mutants.replaying import REPLAY
from tests.scripts.mutants.seeing import ANNOUNCE, ANNOUNCE_DONE, EMPTY_STREAM, PURGE_DELAYED, PURGE_WAITING, STORE
from tests.scripts.mutants.settling import ACK, BURY, FINISH, RESCHEDULE

__all__ = ["MUTANTS", "Mutant"]

MUTANTS = [
    *ADD,
    *ADD_ON_TERMS,
    *ACK,
    *FINISH,
    *RESCHEDULE,
    *BURY,
    *PROMOTE,
    *MOVE_DELAYED,
    *YIELD,
    *KEEP,
    *REGROUP,
    *RELEASE,
    *LEAVE,
    *TAKEOVER,
    *CLAIM_IDLE,
    *ORPHANS,
    *READ,
    *RECOUNT,
    *DUE_REPEATABLES,
    *FIRE,
    *SET_ASIDE,
    *UPSERT_REPEATABLE,
    *MOVE_REPEATABLE,
    *REPLAY,
    *STORE,
    *ANNOUNCE,
    *ANNOUNCE_DONE,
    *PURGE_WAITING,
    *PURGE_DELAYED,
    *EMPTY_STREAM,
]
