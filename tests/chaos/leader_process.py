"""The program of one process that may lead: a Scheduler or a Promoter and nothing else, with a skewed clock.

Its first argument is a JSON object: role ("Scheduler" or "Promoter"), queue, url, log, consumer (the holder's name),
skew_s. It ends with the process that started it: that one holds the other end of its standard input.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
from typing import Any


def skew_clock(seconds: float) -> None:
    """Adds the skew to every reading of the wall clock in Python; the monotonic clock stays."""
    real_time, real_time_ns = time.time, time.time_ns
    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: real_time_ns() + int(seconds * 1e9)


async def lead(order: dict[str, Any]) -> None:
    import pychasqui  # not before the clock is wrong

    leader = getattr(pychasqui, order["role"])(order["queue"], redis_url=order["url"], holder_id=order["consumer"])
    async with leader:
        line = {"what": "up", "worker": order["consumer"], "pid": os.getpid(), "wall": time.time()}
        with open(order["log"], "ab", buffering=0) as log:
            log.write(json.dumps(line).encode() + b"\n")
        await leader.run(handle_signals=True)


def end_with_parent() -> None:
    sys.stdin.read()
    os._exit(9)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s")
    order = json.loads(sys.argv[1])
    if order["skew_s"]:
        skew_clock(order["skew_s"])
    asyncio.run(lead(order))
