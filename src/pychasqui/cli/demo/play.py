"""The acts of the demo, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ..exits import CommandFailure
from .child import Child
from .messages import Act, Plan, Progress, Scene, Verdict
from .screen import Screen

SCENES = 5
STUCK_S = 20.0  # longer than an add takes to give up, which says more


@dataclass(frozen=True)
class Findings:
    plan: Plan
    added: Progress  # in the burst
    done: Progress  # in the burst
    verdict: Verdict
    scenes: list[Scene]


async def perform(plan: Plan, screen: Screen) -> Findings:
    news = asyncio.Event()
    async with Child("working", plan, news) as working, Child("adding", plan, news) as adding:
        play = Play(plan, screen, working, adding, news)
        await play.wait_until(lambda: working.progress is not None and adding.progress is not None)
        added, done = await play.burst()
        await play.trickle()
        scenes = await play.scenes()
        verdict = await play.end()
    return Findings(plan, added, done, verdict, scenes)


class Play:
    def __init__(self, plan: Plan, screen: Screen, working: Child, adding: Child, news: asyncio.Event) -> None:
        self._plan = plan
        self._screen = screen
        self._working = working
        self._adding = adding
        self._news = news

    @property
    def _added(self) -> Progress:
        return self._adding.progress or Progress()

    @property
    def _done(self) -> Progress:
        return self._working.progress or Progress()

    async def burst(self) -> tuple[Progress, Progress]:
        """All jobs as fast as they go in, while they are run."""
        goal = self._plan.burst
        added_bar, done_bar = self._screen.bar("added", goal), self._screen.bar("done", goal)

        def is_over() -> bool:
            added_bar.show(self._added)
            done_bar.show(self._done)
            return self._added.count >= goal and self._done.count >= goal

        self._adding.tell(Act.BURST)
        await self.wait_until(is_over)
        return self._added, self._done

    async def trickle(self) -> None:
        """One by one, each to an idle worker."""
        bar = self._screen.bar("one by one", self._plan.trickle, has_rate=False)

        def is_over() -> bool:
            bar.show(Progress(self._done.count - self._plan.burst))
            return self._done.count >= self._plan.total

        self._adding.tell(Act.TRICKLE)
        await self.wait_until(is_over)

    async def scenes(self) -> list[Scene]:
        """Retries, delays, dead letters, schedules, results: a line each."""
        printable = 0

        def is_over() -> bool:
            nonlocal printable
            for scene in self._adding.scenes[printable:]:
                self._screen.say(f"{'ok' if scene.is_well else 'FAILED':<7} {scene.title}: {scene.text}")
            printable = len(self._adding.scenes)
            return printable == SCENES

        self._adding.tell(Act.SCENES)
        await self.wait_until(is_over)
        return self._adding.scenes

    async def end(self) -> Verdict:
        """Only once the worker has drained is it certain that nothing runs twice."""
        self._adding.dismiss()
        self._working.dismiss()
        await self.wait_until(lambda: self._working.verdict is not None)
        assert self._working.verdict is not None
        return self._working.verdict

    async def wait_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self._working.check_health()
            self._adding.check_health()
            self._news.clear()
            try:
                async with asyncio.timeout(STUCK_S):
                    await self._news.wait()
            except TimeoutError:
                raise CommandFailure(
                    f"stuck: nothing has happened for {STUCK_S:.0f} s, and {self._done.count:,} of "
                    f"{self._plan.total:,} jobs have run"
                ) from None
