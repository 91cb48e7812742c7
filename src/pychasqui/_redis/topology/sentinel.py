"""SentinelSurvey: asks the Sentinels for the master, every second and whenever one of them says +switch-master.

All of them are asked: one that is cut off knows an old master. The answer of the newest configuration counts, and of
two that are as new the one that more of them give. A failover raises the epoch, so an older one, or another master of
the known epoch, is what a Sentinel says that was set up again: it counts once most of those that were known agree on it
for AGREED_S. A Sentinel that has lost its state does not know that there are others. Those that are gone for good may
outnumber those that are left: so it also counts once all that answer, most of the URL's among them, agree on it for
LONG_AGREED_S.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ..._core import clock
from ..._wire.lenient import read_cut_text, read_first_pairs, read_int
from ...errors import AuthenticationFailed, ChasquiError, RedisTrouble, ReplyError
from ..connection import Connection
from ..endpoint import Location
from .node_connections import Answers, NodeConnections
from .node_map import SLOTS, Address, NodeMap, SlotRange

log = logging.getLogger("chasqui.connection")

LOOK_EVERY_S = 1.0
MAX_SENTINELS = 9
AGREED_S = 5.0  # they tell each other of a failover every 2 s
LONG_AGREED_S = 30.0
SWITCH_CHANNEL = "+switch-master"


class MasterReport(NamedTuple):
    """What a Sentinel says of the master; no address if it does not know the name."""

    master: Address | None
    epoch: int
    own_id: str
    others: dict[Address, str]  # the other Sentinels that it can reach, and their ids
    other_ids: frozenset[str]  # of all that it knows: some may announce the address of another one


class SentinelSurvey:
    def __init__(self, location: Location, wake: Callable[[], None]) -> None:
        self.pause_s = LOOK_EVERY_S
        self._service = location.service
        self._wake = wake
        self._nodes = NodeConnections(location.seeds[0])
        self._seeds = [Address(seed.host, seed.port) for seed in location.seeds]
        self._sentinels = self._seeds.copy()
        self._majority = len(self._seeds) // 2 + 1
        self._contradicting_master: Address | None = None  # which no failover explains
        self._most_agree_since: float | None = None  # on it, of all that were known
        self._all_agree_since: float | None = None  # of those that answer

    async def find_changed_map_or_return_known(
        self, known: NodeMap | None, slots: set[int], *, is_suspicious: bool
    ) -> NodeMap:
        """Returns the map with the present master; `known` itself if nothing has changed."""
        answers = await self._nodes.ask_nodes_until_enough_answer(
            self._sentinels, self._ask_sentinel_and_subscribe, enough_answers=self._majority
        )
        reports = {address: each for address, each in answers.found.items() if each.master is not None}
        if not reports:
            self._contradicting_master = None
            raise self._make_no_master_error(answers)
        # By id: the URL may name one of them twice.
        voters = {each.own_id: each for each in sorted(reports.values(), key=lambda each: each.epoch)}
        votes = Counter((each.epoch, each.master) for each in voters.values())
        newest = max(voters.values(), key=lambda each: (each.epoch, votes[each.epoch, each.master]))
        contradicts = known is not None and _contradicts_known(newest, known)
        await self._update_sentinels_and_close_forgotten(reports, keep_known=contradicts)
        if known is None:
            self._raise_if_two_masters(reports)
        elif contradicts and not self._have_agreed_for_long_on_contradiction(newest, known, reports, voters):
            return known
        self._contradicting_master = None
        assert newest.master is not None
        if known is not None and known.find_owner(0) == newest.master and known.epoch == newest.epoch:
            return known
        return NodeMap((SlotRange(0, SLOTS - 1, newest.master),), frozenset({newest.master}), newest.epoch)

    async def close(self) -> None:
        await self._nodes.close()

    async def _ask_sentinel_and_subscribe(self, address: Address, connection: Connection) -> MasterReport:
        socket = await connection.get_or_open_socket(connection.make_deadline())
        if socket.dialect is not None and socket.dialect.protocol >= 3:
            socket.subscribe_unless_refused(
                SWITCH_CHANNEL, self._wake_if_own_master_switched, connection.make_deadline()
            )
        master = await connection.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
        if not isinstance(master, list) or len(master) != 2:
            return MasterReport(None, 0, "", {}, frozenset())
        # A failover in between makes the master newer than its epoch, never older: the next look has the epoch, too.
        facts, master, others, own_id = await asyncio.gather(
            connection.call("SENTINEL", "MASTER", self._service),
            connection.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service),
            connection.call("SENTINEL", "SENTINELS", self._service),
            connection.call("SENTINEL", "MYID"),
        )
        return MasterReport(
            _read_address_if_valid(*master) if isinstance(master, list) and len(master) == 2 else None,
            read_int(read_first_pairs(facts).get(b"config-epoch")) or 0,
            read_cut_text(own_id) or "",
            *_read_other_sentinels(others),
        )

    def _wake_if_own_master_switched(self, message: bytes) -> None:
        if message.startswith(self._service.encode() + b" "):
            self._wake()

    async def _update_sentinels_and_close_forgotten(
        self, reports: dict[Address, MasterReport], *, keep_known: bool
    ) -> None:
        """The Sentinels know each other: one that answers is enough to find the rest.

        One that was found so is forgotten once it is silent and no other names it, so that there is room for the next.
        One that answers under another address already, as behind NAT, is not asked twice. While it is silent it may be
        in the list twice, so what is a majority is told by how many they say they are. With `keep_known` those that
        answer may have lost their state: no one is forgotten while there is room, and the majority becomes no smaller.
        """
        asked_at = {reports[each].own_id: each for each in reversed(self._sentinels) if each in reports}
        named = {
            address
            for each in reports.values()
            for address, own_id in each.others.items()
            if asked_at.get(own_id, address) == address
        }
        answering = {address for address, each in reports.items() if asked_at.get(each.own_id, address) == address}
        known = {*self._seeds, *answering, *named}
        unnamed = [each for each in self._sentinels if each not in known]
        new = sorted(named.difference(self._sentinels))
        if keep_known:
            unnamed = unnamed[: max(0, len(self._sentinels) + len(new) - MAX_SENTINELS)]
        for address in unnamed:
            self._sentinels.remove(address)
            await self._nodes.close_connection_to(address)
        self._sentinels += new[: max(0, MAX_SENTINELS - len(self._sentinels))]
        count = 1 + max(len(each.other_ids) for each in reports.values())
        majority = min(count, len(self._sentinels)) // 2 + 1
        self._majority = max(self._majority, majority) if keep_known else majority

    def _raise_if_two_masters(self, reports: dict[Address, MasterReport]) -> None:
        """Sentinels that name different masters and do not know each other are of two sets."""
        for address, one in reports.items():
            for other_address, other in reports.items():
                are_strangers = one.own_id not in other.other_ids and other.own_id not in one.other_ids
                if one.master != other.master and one.own_id != other.own_id and are_strangers:
                    raise RedisTrouble(
                        f"two masters have the name {self._service}: Sentinel {address} says {one.master}, "
                        f"{other_address} says {other.master}, and they do not know each other: name Sentinels of one "
                        "set in redis_url"
                    )

    def _have_agreed_for_long_on_contradiction(
        self,
        newest: MasterReport,
        known: NodeMap,
        reports: dict[Address, MasterReport],
        voters: dict[str, MasterReport],
    ) -> bool:
        """Returns whether enough Sentinels have agreed, for long enough, on a master that contradicts what is known."""
        now, agreeing = clock.monotonic(), sum(each.master == newest.master for each in voters.values())
        if newest.master != self._contradicting_master:
            self._contradicting_master, self._most_agree_since, self._all_agree_since = newest.master, None, None
            if newest.master != known.find_owner(0):
                log.warning(
                    "%d Sentinels of %s name %s as the master, which no failover from %s explains: it is believed once "
                    "%d of them agree for %g s, or all that answer for %g s",
                    *(agreeing, self._service, newest.master, known.find_owner(0)),
                    *(self._majority, AGREED_S, LONG_AGREED_S),
                )
        do_all_agree = agreeing == len(voters) and self._do_most_of_url_answer(reports)
        self._most_agree_since = _update_since(self._most_agree_since, now, agreeing >= self._majority)
        self._all_agree_since = _update_since(self._all_agree_since, now, do_all_agree)
        return _has_lasted(self._most_agree_since, AGREED_S, now) or _has_lasted(
            self._all_agree_since, LONG_AGREED_S, now
        )

    def _do_most_of_url_answer(self, reports: dict[Address, MasterReport]) -> bool:
        """Returns whether most Sentinels of the URL have answered; two addresses may be of one."""
        answering = {reports[seed].own_id for seed in self._seeds if seed in reports}
        silent = sum(seed not in reports for seed in self._seeds)
        return len(answering) > silent

    def _make_no_master_error(self, answers: Answers[MasterReport]) -> ChasquiError:
        if answers.found:
            first, asked = next(iter(answers.found)), ", ".join(map(str, answers.found))
            return RedisTrouble(
                f"no Sentinel knows a master {self._service!r} (asked: {asked}): use a name that "
                f"redis-cli -h {first.host} -p {first.port} SENTINEL MASTERS shows"
            )
        for address, error in answers.errors.items():
            if isinstance(error, AuthenticationFailed):
                return AuthenticationFailed(
                    f"Sentinel {address} refused the credentials: its own are sentinel_username and sentinel_password "
                    "in redis_url"
                )
            if isinstance(error, ReplyError) and "unknown command" in str(error).lower():
                return RedisTrouble(f"{address} is no Sentinel: name Sentinels, or use redis://{address} for a server")
        return answers.make_no_answer_error("Sentinel")


def _contradicts_known(newest: MasterReport, known: NodeMap) -> bool:
    """Returns whether no failover explains the answer."""
    is_other_master = newest.master != known.find_owner(0)
    return newest.epoch < known.epoch or (newest.epoch == known.epoch and is_other_master)


def _update_since(since: float | None, now: float, holds: bool) -> float | None:
    """Returns since when something holds; None if it does not."""
    if not holds:
        return None
    return now if since is None else since


def _has_lasted(since: float | None, span_s: float, now: float) -> bool:
    return since is not None and now >= since + span_s


def _read_address_if_valid(host: Any, port: Any) -> Address | None:
    name, number = read_cut_text(host), read_int(port)
    return Address(name, number) if name and number else None


def _read_other_sentinels(reply: Any) -> tuple[dict[Address, str], frozenset[str]]:
    ids: dict[Address, str] = {}
    known = [read_first_pairs(each) for each in reply] if isinstance(reply, list) else []
    for fields in known:
        if (address := _read_address_if_valid(fields.get(b"ip"), fields.get(b"port"))) is not None:
            ids[address] = read_cut_text(fields.get(b"runid")) or ""
    return ids, frozenset(read_cut_text(fields.get(b"runid")) or "" for fields in known)
