"""Dead letters from the shell: found, understood, replayed, removed, exported and imported."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
import redis.asyncio

from pychasqui import Job, Queue, UnrecoverableError, Worker
from pychasqui.cli.exits import ExitCode
from tests.cli.conftest import Chasqui, Finished
from tests.cli.terminals import TerminalRun, on_terminal, plain
from tests.support.proxy import Proxy
from tests.support.waiting import eventually


@pytest.fixture
def chasqui(forked: Finished) -> Finished:
    return forked


EVIL = "bad \x1b[31m image"


async def fail(job: Job) -> None:
    if job.name == "send":
        raise ConnectionError("the mail server refuses")
    if job.name == "evil":
        raise ValueError(EVIL)
    raise UnrecoverableError("never")


async def bury(queue: Queue, url: str, jobs: int) -> None:
    """Has a worker bury that number of jobs, and two of other kinds."""
    await queue.add_bulk([{"name": "send", "data": {"to": f"u{number}"}, "attempts": 1} for number in range(jobs)])
    await queue.add("evil", {"a": "\x1b[2J"}, attempts=1)
    await queue.add("pay", {"amount": 3}, job_id="order-1")
    async with asyncio.timeout(60), Worker(queue.name, fail, redis_url=url) as worker:
        running = asyncio.create_task(worker.run())
        while (await queue.counts()).dead < jobs + 2:
            await asyncio.sleep(0.01)
        await worker.close()
        await running


@pytest.fixture
async def letters(queue: Queue, redis_url: str) -> Queue:
    """A queue with three letters of `send`, one of `evil` and one of the job order-1."""
    await bury(queue, redis_url, 3)
    return queue


class TestLooking:
    async def test_a_list_in_a_pipe_has_all_columns_and_escapes_text_of_others(
        self, letters: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        ended = chasqui("dlq", "list", letters.name, CHASQUI_REDIS_URL=redis_url)
        titles, *lines = ended.stdout.splitlines()
        assert titles.split("\t") == ["id", "died", "name", "runs", "error", "reason", "job"]
        assert len(lines) == 5
        assert "\x1b" not in ended.stdout
        assert "ValueError: bad \\x1b[31m image" in ended.stdout
        assert lines[-1].endswith("unrecoverable\torder-1")

    async def test_a_list_on_a_terminal_fits_80_columns(self, letters: Queue, tmp_path: Path, redis_url: str) -> None:
        code, text = on_terminal("dlq", "list", letters.name, folder=tmp_path, CHASQUI_REDIS_URL=redis_url)
        assert code == 0
        assert max(map(len, plain(text).splitlines())) <= 80
        assert "ConnectionError: the mail server re" in plain(text)

    async def test_a_list_ends_with_its_limit_and_says_how_to_go_on(
        self, letters: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        first = json.loads(
            chasqui("dlq", "list", letters.name, "--limit", "2", "--json", CHASQUI_REDIS_URL=redis_url).stdout
        )
        assert (first["schema"], len(first["letters"])) == (1, 2)
        second = chasqui(
            "dlq", "list", letters.name, "--limit", "2", "--after", first["next"], CHASQUI_REDIS_URL=redis_url
        )
        assert len(second.stdout.splitlines()) == 3
        assert "--after" in second.stderr

    @pytest.mark.parametrize(
        ("conditions", "count"),
        (
            (["--name", "send"], 3),
            (["--reason", "unrecoverable"], 1),
            (["--error-type", "ValueError"], 1),
            (["--job-id", "order-1"], 1),
            (["--since", "1h"], 5),
            (["--until", "1h"], 0),
            (["--since", "2020-01-01", "--name", "pay"], 1),
        ),
    )
    async def test_conditions_select_letters(
        self, letters: Queue, chasqui: Finished, redis_url: str, conditions: list[str], count: int
    ) -> None:
        ended = chasqui("dlq", "list", letters.name, *conditions, "--json", CHASQUI_REDIS_URL=redis_url)
        assert len(json.loads(ended.stdout)["letters"]) == count

    async def test_peek_has_the_official_columns_and_counts_reasons(
        self, letters: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        lines = chasqui("dlq", "peek", letters.name, "--limit", "4", CHASQUI_REDIS_URL=redis_url).stdout.splitlines()
        assert lines[0].split("\t") == ["dlq_id", "source_id", "name", "reason", "detail", "payload bytes"]
        assert lines[5:] == ["", "reason\tletters", "retries_exhausted\t4"]

    async def test_groups_on_80_columns_have_their_reasons_uncut(
        self, letters: Queue, tmp_path: Path, redis_url: str
    ) -> None:
        arguments = ("dlq", "groups", letters.name)
        _, text = await asyncio.to_thread(on_terminal, *arguments, folder=tmp_path, CHASQUI_REDIS_URL=redis_url)
        assert "retries_exhausted" in plain(text)
        assert "…" not in plain(text)
        assert max(map(len, plain(text).splitlines())) <= 80

    async def test_groups_have_the_largest_first(self, letters: Queue, chasqui: Finished, redis_url: str) -> None:
        found = json.loads(chasqui("dlq", "groups", letters.name, "--json", CHASQUI_REDIS_URL=redis_url).stdout)[
            "groups"
        ]
        assert (found[0]["name"], found[0]["count"], found[0]["error_type"]) == ("send", 3, "ConnectionError")
        assert len(found) == 3

    async def test_a_letter_is_shown_with_its_traceback_and_data(
        self, letters: Queue, tmp_path: Path, redis_url: str
    ) -> None:
        code, text = on_terminal("dlq", "show", letters.name, "order-1", folder=tmp_path, CHASQUI_REDIS_URL=redis_url)
        assert code == 0
        assert "Traceback (most recent call last)" in text
        assert '"amount": 3' in text

    async def test_a_letter_is_found_by_its_own_id(self, letters: Queue, chasqui: Finished, redis_url: str) -> None:
        wanted = (await letters.dlq.page())[1].dlq_id
        shown = json.loads(chasqui("dlq", "show", letters.name, wanted, "--json", CHASQUI_REDIS_URL=redis_url).stdout)
        assert (shown["dlq_id"], shown["data"], shown["schema"]) == (wanted, {"to": "u1"}, 1)

    async def test_a_letter_that_does_not_exist_is_not_found(
        self, letters: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        ended = chasqui("dlq", "show", letters.name, "1-1", CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == ExitCode.NOT_FOUND
        assert f"chasqui dlq list {letters.name}" in ended.stderr

    async def test_a_queue_without_letters_has_a_message(self, queue: Queue, chasqui: Finished, redis_url: str) -> None:
        await queue.add("waits")
        ended = chasqui("dlq", "list", queue.name, CHASQUI_REDIS_URL=redis_url)
        assert (ended.returncode, ended.stderr) == (0, f"queue {queue.name} has no dead letters\n")

    async def test_an_unknown_queue_is_named_with_the_one_that_may_be_meant(
        self, letters: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        wrong = f"{letters.name}x"
        said = (
            f"no queue {wrong} is known at this Redis; did you mean {letters.name}? chasqui ps lists those that are\n"
        )
        for command in (("dlq", "list"), ("dlq", "groups"), ("dlq", "peek"), ("jobs",)):
            ended = chasqui(*command, wrong, CHASQUI_REDIS_URL=redis_url)
            assert (ended.returncode, ended.stderr) == (0, said)


class TestReplaying:
    async def test_a_replay_asks_and_shows_its_impact(self, letters: Queue, tmp_path: Path, redis_url: str) -> None:
        with TerminalRun(
            "dlq", "replay", letters.name, "--name", "send", folder=tmp_path, CHASQUI_REDIS_URL=redis_url
        ) as run:
            shown = run.read_until("[y/N]")
            assert "3  send  retries_exhausted" in shown
            assert await letters.dlq.count() == 5
            run.answer("y")
            code, text = run.finish()
        assert code == 0
        assert "replayed 3 of 100 entries" in text
        assert (await letters.counts())[:4] == (3, 0, 0, 2)

    @pytest.mark.parametrize("answer", ("n", "", "x"))
    async def test_any_answer_but_yes_changes_nothing(
        self, letters: Queue, tmp_path: Path, redis_url: str, answer: str
    ) -> None:
        with TerminalRun("dlq", "replay", letters.name, folder=tmp_path, CHASQUI_REDIS_URL=redis_url) as run:
            run.read_until("[y/N]")
            run.answer(answer)
            code, _ = run.finish()
        assert code == ExitCode.ABORTED
        assert await letters.dlq.count() == 5

    async def test_ctrl_c_at_the_question_changes_nothing(self, letters: Queue, tmp_path: Path, redis_url: str) -> None:
        with TerminalRun("dlq", "replay", letters.name, folder=tmp_path, CHASQUI_REDIS_URL=redis_url) as run:
            run.read_until("[y/N]")
            run.interrupt()
            code, text = run.finish()
        assert code == ExitCode.INTERRUPTED
        assert "Traceback" not in text
        assert await letters.dlq.count() == 5

    @pytest.mark.parametrize("action", (["replay"], ["remove", "--all"]))
    async def test_a_pipe_is_not_asked_but_refused(
        self, letters: Queue, chasqui: Finished, redis_url: str, action: list[str]
    ) -> None:
        ended = chasqui("dlq", action[0], letters.name, *action[1:], CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == ExitCode.USAGE
        assert "--yes" in ended.stderr
        assert await letters.dlq.count() == 5

    @pytest.mark.parametrize("action", (["replay"], ["remove", "--all"]))
    async def test_a_dry_run_changes_nothing(
        self, letters: Queue, chasqui: Finished, redis_url: str, action: list[str]
    ) -> None:
        ended = chasqui("dlq", action[0], letters.name, *action[1:], "--dry-run", "--json", CHASQUI_REDIS_URL=redis_url)
        answer = json.loads(ended.stdout)
        assert (ended.returncode, answer["dry_run"]) == (0, True)
        assert 5 in (answer.get("replayed"), answer.get("removed"))
        assert await letters.dlq.count() == 5

    async def test_a_limit_takes_the_oldest(self, letters: Queue, chasqui: Finished, redis_url: str) -> None:
        ended = chasqui("dlq", "replay", letters.name, "--limit", "2", "--yes", CHASQUI_REDIS_URL=redis_url)
        assert ended.stdout == "replayed 2 of 2 entries\n"
        assert "more match and will stay: --all takes them as well" in ended.stderr
        assert [job.name for job in await letters.dlq.page()] == ["send", "evil", "pay"]

    async def test_a_limit_that_takes_all_promises_no_more(
        self, letters: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        ended = chasqui("dlq", "replay", letters.name, "--limit", "5", "--yes", CHASQUI_REDIS_URL=redis_url)
        assert ended.stdout == "replayed 5 of 5 entries\n"
        assert "more match" not in ended.stderr

    async def test_a_replay_that_is_interrupted_says_how_far_it_came(
        self, letters: Queue, start: Chasqui, redis_url: str
    ) -> None:
        process = start("dlq", "replay", letters.name, "--rate", "0.1", "--yes", CHASQUI_REDIS_URL=redis_url)

        async def is_one_replayed() -> bool:
            return await letters.dlq.count() == 4

        await eventually(is_one_replayed, timeout=20)
        await asyncio.sleep(0.2)  # until it waits for the next one
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.to_thread(process.communicate, timeout=20)
        assert process.returncode == ExitCode.INTERRUPTED
        assert "interrupted: replayed 1 of 5, and perhaps some more" in err

    async def test_letters_are_replayed_by_their_ids(self, letters: Queue, chasqui: Finished, redis_url: str) -> None:
        ids = [letter.dlq_id for letter in await letters.dlq.page()]
        assert (
            chasqui("dlq", "replay", letters.name, ids[0], ids[4], "--yes", CHASQUI_REDIS_URL=redis_url).returncode == 0
        )
        assert [letter.dlq_id for letter in await letters.dlq.page()] == ids[1:4]
        assert (
            chasqui("dlq", "replay", letters.name, ids[0], "--yes", CHASQUI_REDIS_URL=redis_url).returncode
            == ExitCode.NOT_FOUND
        )

    async def test_one_letter_is_replayed_with_other_data(
        self, letters: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        letter = (await letters.dlq.page())[0]
        arguments = ("dlq", "replay", letters.name, letter.dlq_id, "--data", '{"to": "cy@example.org"}', "--yes")
        assert chasqui(*arguments, "--dry-run", CHASQUI_REDIS_URL=redis_url).returncode == 0
        assert await letters.dlq.count() == 5
        assert chasqui(*arguments, CHASQUI_REDIS_URL=redis_url).stdout == "replayed 1 of 1 entries\n"
        (job,) = (await letters.jobs("waiting")).jobs
        assert (job.id, job.data) == (letter.job_id, {"to": "cy@example.org"})
        assert chasqui(*arguments, CHASQUI_REDIS_URL=redis_url).returncode == ExitCode.NOT_FOUND

    async def test_other_data_is_refused_for_several_letters(
        self, letters: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        ended = chasqui("dlq", "replay", letters.name, "--data", "{}", "--yes", CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == ExitCode.USAGE
        assert "choose it by its id or by --job-id" in ended.stderr
        assert await letters.dlq.count() == 5

    async def test_a_letter_that_cannot_be_decoded_stays(
        self, queue: Queue, witness: redis.asyncio.Redis, chasqui: Finished, redis_url: str
    ) -> None:
        await witness.xadd(f"{{chasqui:{queue.name}}}:dlq", {"d": b"\xff", "reason": "decode_failed"})
        ended = chasqui("dlq", "replay", queue.name, "--yes", CHASQUI_REDIS_URL=redis_url)
        assert ended.stdout == "replayed 0 of 100 entries\n"
        assert "1 dead letter cannot be decoded, and will stay" in ended.stderr
        assert (
            chasqui("dlq", "remove", queue.name, "--all", "--yes", CHASQUI_REDIS_URL=redis_url).stdout
            == "removed 1 entry\n"
        )

    async def test_a_bar_moves_on_a_terminal(self, queue: Queue, redis_url: str, tmp_path: Path) -> None:
        await bury(queue, redis_url, 20)
        arguments = ("dlq", "replay", queue.name, "--all", "--yes", "--rate", "40")
        code, text = on_terminal(*arguments, folder=tmp_path, CHASQUI_REDIS_URL=redis_url)
        bars = [line for line in plain(text).replace("\r", "\n").splitlines() if line.startswith("replaying")]
        assert code == 0
        assert len(bars) >= 3
        assert len(set(bars)) == len(bars)
        assert max(map(len, bars)) < 80
        assert "replayed 22 entries" in text

    async def test_a_letter_id_has_its_form(self, chasqui: Finished, redis_url: str) -> None:
        ended = chasqui("dlq", "replay", "q", "order-1", CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == ExitCode.USAGE
        assert "--job-id takes the id of a job" in ended.stderr


class TestRemoving:
    async def test_conditions_choose_the_letters_to_remove(
        self, letters: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        ended = chasqui("dlq", "remove", letters.name, "--name", "send", "--yes", CHASQUI_REDIS_URL=redis_url)
        assert ended.stdout == "removed 3 entries\n"
        assert await letters.dlq.count() == 2

    @pytest.mark.parametrize("conditions", ([], ["--all", "--name", "send"]))
    async def test_a_removal_needs_either_conditions_or_all(
        self, chasqui: Finished, redis_url: str, conditions: list[str]
    ) -> None:
        assert (
            chasqui("dlq", "remove", "q", *conditions, "--yes", CHASQUI_REDIS_URL=redis_url).returncode
            == ExitCode.USAGE
        )

    @pytest.mark.parametrize("action", (("remove", "--all"), ("replay", "--limit", "6")))
    async def test_a_letter_that_comes_during_the_question_stays(
        self, letters: Queue, witness: redis.asyncio.Redis, tmp_path: Path, redis_url: str, action: tuple[str, ...]
    ) -> None:
        *_, newest = await letters.dlq.page()
        ms, _, sequence = newest.dlq_id.partition("-")
        late = f"{ms}-{int(sequence) + 1}"  # of the same millisecond
        arguments = ("dlq", action[0], letters.name, *action[1:])
        with TerminalRun(*arguments, folder=tmp_path, CHASQUI_REDIS_URL=redis_url) as run:
            run.read_until("[y/N]")
            await letters.dlq.remove(ids=[newest.dlq_id])  # so that a limit has room for another one
            await witness.xadd(f"{{chasqui:{letters.name}}}:dlq", {"d": newest.payload, "reason": "late"}, id=late)
            run.answer("yes")
            assert run.finish()[0] == 0
        assert [letter.dlq_id for letter in await letters.dlq.page()] == [late]


class TestFiles:
    async def test_exported_letters_can_be_imported_and_replayed(
        self, letters: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        exported = chasqui("dlq", "export", letters.name, CHASQUI_REDIS_URL=redis_url)
        assert len(exported.stdout.splitlines()) == 5
        assert chasqui("dlq", "remove", letters.name, "--all", "--yes", CHASQUI_REDIS_URL=redis_url).returncode == 0
        ended = chasqui("dlq", "import", letters.name, stdin=exported.stdout, CHASQUI_REDIS_URL=redis_url)
        assert ended.stdout == "imported 5 dead letters, 0 were there already\n"
        again = chasqui("dlq", "import", letters.name, stdin=exported.stdout, CHASQUI_REDIS_URL=redis_url)
        assert again.stdout == "imported 0 dead letters, 5 were there already\n"
        old = [json.loads(line) for line in exported.stdout.splitlines()]
        new = [
            json.loads(line)
            for line in chasqui("dlq", "export", letters.name, CHASQUI_REDIS_URL=redis_url).stdout.splitlines()
        ]
        for one in old + new:
            del one["dlq_id"], one["died_at"], one["died_at_ms"]
        assert new == old
        assert await letters.dlq.replay() == 5

    async def test_an_imported_letter_has_every_byte_of_the_exported_one(
        self, chasqui: Finished, redis_url: str, witness: redis.asyncio.Redis
    ) -> None:
        odd = {
            b"d": b"\xc1\x00",
            b"n": b"\xff",
            b"reason": b"malformed",
            b"raw": b"78 79",
            b"\xfe": b"\x00",
            b"e": b"",
        }
        for fields in (odd, {b"x": b"y"}, {b"d": b"", b"source_id": b"1-1"}):
            await witness.xadd("{chasqui:mail}:dlq", fields, maxlen=10)
        before = [fields for _, fields in await witness.xrange("{chasqui:mail}:dlq")]
        exported = chasqui("dlq", "export", "mail", CHASQUI_REDIS_URL=redis_url).stdout
        await witness.delete("{chasqui:mail}:dlq")
        ended = chasqui("dlq", "import", "mail", stdin=exported, CHASQUI_REDIS_URL=redis_url)
        assert ended.stdout == "imported 3 dead letters, 0 were there already\n"
        assert [fields for _, fields in await witness.xrange("{chasqui:mail}:dlq")] == before

    async def test_an_export_goes_to_a_file(
        self, letters: Queue, chasqui: Finished, redis_url: str, tmp_path: Path
    ) -> None:
        ended = chasqui(
            "dlq", "export", letters.name, "--name", "send", "-o", "letters.ndjson", CHASQUI_REDIS_URL=redis_url
        )
        assert (ended.stdout, ended.returncode) == ("", 0)
        assert len((tmp_path / "letters.ndjson").read_text().splitlines()) == 3
        dry = chasqui("dlq", "import", "other", "letters.ndjson", "--dry-run", CHASQUI_REDIS_URL=redis_url)
        assert dry.stdout == "would have imported 3 dead letters, 0 were there already\n"

    @pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGHUP))
    async def test_an_export_that_is_ended_leaves_no_file(
        self, letters: Queue, start: Chasqui, proxy: Proxy, tmp_path: Path, number: signal.Signals
    ) -> None:
        (tmp_path / "letters.ndjson").write_text("of yesterday\n")
        proxy.delay(1000)
        process = start("dlq", "export", letters.name, "-o", "letters.ndjson", CHASQUI_REDIS_URL=proxy.url)
        await eventually(lambda: len(list(tmp_path.iterdir())) == 2, timeout=30)
        process.send_signal(number)
        await asyncio.to_thread(process.communicate, timeout=20)
        assert process.returncode == -number
        assert [path.name for path in tmp_path.iterdir()] == ["letters.ndjson"]
        assert (tmp_path / "letters.ndjson").read_text() == "of yesterday\n"

    @pytest.mark.parametrize(
        "line",
        (
            "no json",
            "[]",
            '{"schema": 1}',
            '{"schema": 2}',
            '{"schema": 1, "source_id": "1-1", "reason": 3, "name": "", "payload": ""}',
            '{"schema": 1, "source_id": "1-1", "reason": "r", "name": "", "payload": "*"}',
            '{"schema": 1, "source_id": "1-1", "reason": "r", "name": "", "payload": "", "raw": ["ZA=="]}',
            '{"schema": 1, "source_id": "1-1", "reason": "r", "name": "", "payload": "", "raw": ["ZA==", "*"]}',
            "[" * 100_000,
        ),
    )
    def test_a_line_that_is_no_letter_is_named(self, chasqui: Finished, redis_url: str, line: str) -> None:
        ended = chasqui("dlq", "import", "q", stdin=f"\n{line}\n", CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == ExitCode.FAILED
        assert "line 2 of <stdin> is no dead letter" in ended.stderr
