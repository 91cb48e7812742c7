"""Route: where the masters are. One for each URL of Sentinels or of a cluster in a process.

All connections of the process share it, whatever event loop they are in: the map is replaced whole. A thread with a
loop of its own asks and watches, so that a handler that blocks the worker's loop does not hold it up. The thread lives
while a connection listens to the route. A change of the map is passed on to every connection that listens.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Hashable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from weakref import WeakSet, WeakValueDictionary

from ...errors import ChasquiError, ConnectionLost, RedisTrouble
from ..endpoint import Endpoint, Location
from ..url import CLUSTER, SENTINEL
from .cluster import ClusterSurvey
from .node_map import Address, NodeMap
from .route_listener import RouteListener
from .sentinel import SentinelSurvey

MIN_CHECK_INTERVAL_S = 0.05
log = logging.getLogger("chasqui.connection")


class Route:
    def __init__(self, location: Location) -> None:
        self._location = location
        self._map: NodeMap | None = None
        self._trouble: ChasquiError | None = None  # why the last look has found nothing
        self.reset_thread_and_listeners()

    def reset_thread_and_listeners(self) -> None:
        """Begins again in a forked child, which has neither the thread nor those that listen in its parent."""
        self._lock = threading.Lock()
        self._listeners: WeakSet[RouteListener] = WeakSet()
        self._waiters: list[Future[None]] = []  # for the end of a look
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakes: asyncio.Event | None = None

    def __str__(self) -> str:
        return str(self._location)

    async def find_master_and_listen(self, listener: RouteListener) -> Address:
        """Returns the master of the listener's slot, and has the listener notified of changes."""
        self._add_listener_and_ensure_thread(listener)
        if (owner := self._find_owner(listener.slot)) is None:
            await self._request_refresh_and_wait()
            owner = self._find_owner(listener.slot)
        if owner is None:
            raise self._make_missing_master_error(listener.slot)
        return owner

    def may_be_master_of_slot(self, endpoint: Endpoint, slot: int) -> bool:
        """Returns whether this is still the master of the slot, as far as is known."""
        return self._find_owner(slot) in (None, (endpoint.host, endpoint.port))

    def may_have_slots(self, endpoint: Endpoint) -> bool:
        """Returns whether this node is a master, as far as is known; a master without slots does not count."""
        return self._map is not None and self._map.may_have_slots(Address(endpoint.host, endpoint.port))

    def is_in_url(self, endpoint: Endpoint) -> bool:
        """Returns whether the URL names this address; else nodes or Sentinels have said where it is."""
        return any((seed.host, seed.port) == (endpoint.host, endpoint.port) for seed in self._location.seeds)

    @property
    def is_cluster(self) -> bool:
        return self._location.kind == CLUSTER

    def list_one_slot_of_each_master(self) -> list[int]:
        """Returns a slot of each master."""
        ranges = () if self._map is None else self._map.ranges
        return list({each.master: each.first for each in ranges}.values())

    def set_slot_owner_and_notify(self, slot: int, address: Address) -> None:
        """Stores the owner that a node has named in MOVED, and notifies the listeners of the slot."""
        with self._lock:
            if self._map is None:
                return
            if is_new := self._map.find_owner(slot) != address:
                self._map = self._map.with_moved_slot(slot, address)
        if is_new:
            log.info("%s: slot %s is at %s now", self, slot, address)
            self.request_refresh_if_running()
        # Also of what is known: one may have reached the former node meanwhile. Only to those of the slot: a failover
        # brings a MOVED for each call in flight, and passing each on to a thousand queues would take seconds.
        for listener in self._list_listeners():
            if listener.slot == slot:
                listener.schedule_on_change()

    def request_refresh_if_running(self) -> None:
        """Has the map read again, because it may be out of date: a slot has moved, or a connection was lost."""
        self._wake_watch_thread_if_running()

    def remove_listener(self, listener: RouteListener) -> None:
        """The listener is closed. The thread ends with the last one."""
        with self._lock:
            self._listeners.discard(listener)
            is_last = not self._listeners
        if is_last:
            self._wake_watch_thread_if_running()

    def _list_listeners(self) -> list[RouteListener]:
        with self._lock:
            return list(self._listeners)

    def _find_owner(self, slot: int) -> Address | None:
        return None if self._map is None else self._map.find_owner(slot)

    def _make_missing_master_error(self, slot: int) -> ChasquiError:
        trouble = self._trouble
        if trouble is not None:
            return type(trouble)(*trouble.args)
        return ConnectionLost(
            f"no node of {self} has slot {slot}: the cluster is down or not complete (redis-cli --cluster check shows "
            "what is missing)"
        )

    # The thread -----------------------------------------------------------------------------------------------------

    def _add_listener_and_ensure_thread(self, listener: RouteListener) -> None:
        with self._lock:
            self._listeners.add(listener)
            if self._thread is None:
                thread = threading.Thread(target=self._run_thread, name="chasqui watch", daemon=True)
                thread.start()  # it may be refused: then the next attempt starts one
                self._thread = thread

    async def _request_refresh_and_wait(self) -> None:
        look: Future[None] = Future()
        with self._lock:
            self._waiters.append(look)
        self.request_refresh_if_running()
        await asyncio.wrap_future(look)

    def _wake_watch_thread_if_running(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the thread has ended; whatever needs the map starts it again
                self._loop.call_soon_threadsafe(self._wake_watch_loop)

    def _wake_watch_loop(self) -> None:
        if self._wakes is not None:
            self._wakes.set()

    def _run_thread(self) -> None:
        try:
            asyncio.run(self._refresh_map_while_listened_to())
        except Exception:
            log.exception("the watch over %s has failed", self)
            with self._lock:
                self._thread = None
            self._set_trouble_and_wake_waiters(RedisTrouble(f"the watch over {self} has failed"))

    async def _refresh_map_while_listened_to(self) -> None:
        self._loop, self._wakes = asyncio.get_running_loop(), asyncio.Event()
        kind = SentinelSurvey if self._location.kind == SENTINEL else ClusterSurvey
        survey = kind(self._location, self._wake_watch_loop)
        try:
            while self._has_listeners_else_clear_thread():
                woken = self._wakes.is_set()
                self._wakes.clear()
                await self._refresh_map_and_notify(survey, woken)
                with suppress(TimeoutError):
                    async with asyncio.timeout(survey.pause_s):
                        await self._wakes.wait()
                await asyncio.sleep(MIN_CHECK_INTERVAL_S)
        finally:
            await survey.close()

    def _has_listeners_else_clear_thread(self) -> bool:
        with self._lock:
            if not self._listeners and not self._waiters:
                self._thread = None
                return False
            return True

    async def _refresh_map_and_notify(self, survey: SentinelSurvey | ClusterSurvey, is_suspicious: bool) -> None:
        before = self._map
        try:
            slots = {listener.slot for listener in self._list_listeners()}
            found = await survey.find_changed_map_or_return_known(before, slots, is_suspicious=is_suspicious)
        except ChasquiError as error:
            self._set_trouble_and_wake_waiters(error)
            return
        with self._lock:
            is_new = found is not before
            if is_new:  # else a node may have answered MOVED meanwhile
                self._map = found
        self._set_trouble_and_wake_waiters(None)
        if is_new and before is not None:
            self._log_and_notify_if_masters_moved(before, found)

    def _set_trouble_and_wake_waiters(self, trouble: ChasquiError | None) -> None:
        self._trouble = trouble
        with self._lock:
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            with suppress(InvalidStateError):  # it was cancelled
                waiter.set_result(None)

    def _log_and_notify_if_masters_moved(self, old_map: NodeMap, new_map: NodeMap) -> None:
        slots = {listener.slot for listener in self._list_listeners()}
        moves = {(old_map.find_owner(slot), new_map.find_owner(slot)) for slot in slots}
        moves = {(old, new) for old, new in moves if old != new}
        if moves:
            changes = "; ".join(f"{new or 'no node'} is the master now, after {old}" for old, new in moves)
            log.info("%s: %s", self, changes)
            for listener in self._list_listeners():
                listener.schedule_on_change()


_routes: WeakValueDictionary[tuple[object, ...], Route] = WeakValueDictionary()
_routes_lock = threading.Lock()


def get_or_make_shared_route(key: tuple[Hashable, ...], location: Location) -> Route:
    """Returns the route of this URL, TLS setting and credential provider: one in a process."""
    with _routes_lock:
        route = _routes.get(key)
        if route is None:
            route = _routes[key] = Route(location)
        return route


def _reset_routes_in_child() -> None:
    """A thread of the parent may have held any of the locks when it forked."""
    global _routes_lock
    _routes_lock = threading.Lock()
    for route in list(_routes.values()):
        route.reset_thread_and_listeners()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_routes_in_child)
