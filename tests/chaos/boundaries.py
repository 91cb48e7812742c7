"""The places where a connection to Redis can be cut: names of requests, and cuts that wait for a request by name."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1

import hiredis

from pychasqui._redis import scripts
from tests.support.proxy import Cut, Moment, Proxy

MOMENTS: tuple[Moment, ...] = ("before request", "after request", "mid reply")
_SCRIPTS = {each.hash: each.name for each in vars(scripts).values() if isinstance(each, scripts.Script)}


def name_of(request: bytes) -> str:
    """The name of a request: that of its script, or the command with its subcommand if it has one."""
    parser = hiredis.Reader()
    parser.feed(request)
    words = parser.gets()
    command = words[0].upper().decode()
    if command in ("EVAL", "EVALSHA"):
        digest = words[1] if command == "EVALSHA" else sha1(words[1]).hexdigest().encode()
        return _SCRIPTS[digest]
    if command in ("XGROUP", "CLIENT"):
        return f"{command} {words[1].upper().decode()}"
    return command


@dataclass
class CutAt(Cut):
    """Falls on requests of this name, the first `times` of them after `skip` others."""

    name: str = ""
    skip: int = 0

    def claims(self, request: bytes) -> bool:
        if self.claimed >= self.times or name_of(request) != self.name:
            return False
        if self.skip:
            self.skip -= 1
            return False
        return True


def cut_at(proxy: Proxy, name: str, moment: Moment, *, times: int = 1, skip: int = 0) -> CutAt:
    cut = CutAt(moment, b"", times, name=name, skip=skip)
    proxy._cuts.append(cut)
    return cut


def names_in(proxy: Proxy) -> set[str]:
    return {name_of(request) for request in proxy.requests}
