"""`python -m benchmarks.peers PEER ACTION URL COUNT PARAMETERS`: one action of one peer, one line of JSON."""

from __future__ import annotations

import importlib
import json
import sys

from benchmarks.payload import with_body
from benchmarks.peers.roles import Order
from benchmarks.peers.stage import perform


def main() -> None:
    name, action, url, count, parameters = sys.argv[1:]
    asked = json.loads(parameters)
    data = with_body(asked.pop("data"), asked.pop("body_bytes", 0))
    order = Order(url=url, count=int(count), data=data, **asked)
    perform(importlib.import_module(f"benchmarks.peers.{name}").PEER, action, order)


main()
