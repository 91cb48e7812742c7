"""One process of a peer, from its start to its one line of JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from typing import Any

from benchmarks.environment import process_environment
from benchmarks.roster import Peer
from benchmarks.server import ROOT

Result = dict[str, Any]
STEP_TIMEOUT_S = 60


class MeasurementFailed(Exception):
    """A step ended without a result; the text is the last thing it said."""


class Step:
    """One process of a peer: it prints one line of JSON, or it failed."""

    def __init__(self, command: list[str], peer: Peer) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  it is closed by end()
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=process_environment(peer),
            start_new_session=True,
        )

    def result(self) -> Result:
        try:
            out, _ = self._process.communicate(timeout=STEP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise MeasurementFailed(f"no result within {STEP_TIMEOUT_S} s") from None
        lines = [line for line in out.decode().splitlines() if line.startswith("{")]
        if self._process.returncode or not lines:
            raise MeasurementFailed(self.last_words())
        return dict(json.loads(lines[-1]))

    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """The whole session of the step, so that no child of a peer outlives its measurement."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
        self._errors.close()

    def last_words(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2000))
        lines = self._errors.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
        return lines[-1].replace(f"{ROOT}/", "")[:300]
