"""Hand-made mutants: one small thing wrong in one script. The tests of that script must notice each of them.

A mutant that nothing notices names a behaviour that nothing holds.
"""

from __future__ import annotations

from tests.scripts.mutants.adding import ADD, ADD_WITH_OPTIONS
from tests.scripts.mutants.delaying import MOVE_DELAYED, PROMOTE, RELEASE_LEASE
from tests.scripts.mutants.holding import (
    CLAIM_IDLE,
    COUNT_DELIVERY,
    LEAVE_GROUP,
    LIST_PENDING,
    READ,
    REBUILD_GROUP,
    RELEASE_ENTRIES,
    RENEW_LEASE,
    TAKE_OVER,
)
from tests.scripts.mutants.mutant import Mutant
from tests.scripts.mutants.repeating import BURY_REPEATABLE, DUE_REPEATABLES, FIRE, MOVE_REPEATABLE, UPSERT_REPEATABLE
from tests.scripts.mutants.replaying import REPLAY
from tests.scripts.mutants.seeing import (
    ACK_WITH_RESULT,
    EMPTY_STREAM,
    PURGE_DELAYED,
    PURGE_WAITING,
    WRITE_COMPLETED,
    WRITE_EVENTS,
)
from tests.scripts.mutants.settling import ACK, ACK_UNIQUE, BURY, RESCHEDULE

__all__ = ["MUTANTS", "Mutant"]

MUTANTS = [
    *ADD,
    *ADD_WITH_OPTIONS,
    *ACK,
    *ACK_UNIQUE,
    *RESCHEDULE,
    *BURY,
    *PROMOTE,
    *MOVE_DELAYED,
    *RELEASE_LEASE,
    *RENEW_LEASE,
    *REBUILD_GROUP,
    *RELEASE_ENTRIES,
    *LEAVE_GROUP,
    *TAKE_OVER,
    *CLAIM_IDLE,
    *LIST_PENDING,
    *READ,
    *COUNT_DELIVERY,
    *DUE_REPEATABLES,
    *FIRE,
    *BURY_REPEATABLE,
    *UPSERT_REPEATABLE,
    *MOVE_REPEATABLE,
    *REPLAY,
    *ACK_WITH_RESULT,
    *WRITE_EVENTS,
    *WRITE_COMPLETED,
    *PURGE_WAITING,
    *PURGE_DELAYED,
    *EMPTY_STREAM,
]
