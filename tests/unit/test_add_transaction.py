"""When a producer may add large jobs in a transaction: after the server's answer to the last WATCH, and to no other."""

from __future__ import annotations

from collections import deque
from typing import cast

import pytest

from pychasqui import ReplyError
from pychasqui._redis.add_transaction import AddTransactions
from pychasqui._redis.socket import OnReply, Socket


class SentCommands:
    """The side of a socket that AddTransactions sees: commands whose answers the test gives."""

    def __init__(self) -> None:
        self._awaiting: deque[tuple[bytes, OnReply]] = deque()
        self._written: deque[bytes] = deque()
        self.watcher: object | None = None

    def set_watcher(self, watcher: object | None) -> None:
        self.watcher = watcher

    def write_if_open_without_reply_handler(self, packed: bytes) -> None:
        self._written.extend(b"*" + command for command in packed.split(b"*")[1:])

    def expect_reply(self, deadline: float, on_reply: OnReply) -> None:
        self._awaiting.append((self._written.popleft(), on_reply))

    def send(self, command: bytes, deadline: float, on_reply: OnReply) -> None:
        self._awaiting.append((command, on_reply))

    def answer_up_to(self, word: bytes, reply: object = "OK") -> None:
        """Answer what was sent first, up to this command."""
        while True:
            command, on_reply = self._awaiting.popleft()
            on_reply(reply)
            if word in command:
                return


@pytest.fixture
def sent() -> SentCommands:
    return SentCommands()


@pytest.fixture
def transactions(sent: SentCommands) -> AddTransactions:
    return AddTransactions(cast(Socket, sent), "stream", "ledger")


def test_a_confirmed_watch_makes_ready(sent: SentCommands, transactions: AddTransactions) -> None:
    transactions.request_ledger_watch_if_allowed(0.0, lambda: None)
    assert (transactions.is_ready, transactions.is_watch_awaited) == (False, True)
    sent.answer_up_to(b"\r\nWATCH")
    assert (transactions.is_ready, transactions.is_watch_awaited) == (True, False)


def test_the_answer_to_an_earlier_watch_makes_nothing_ready(sent: SentCommands, transactions: AddTransactions) -> None:
    """Else a transaction could leave ahead of a WATCH that has not arrived, and add a batch that was sent again."""
    transactions.request_ledger_watch_if_allowed(0.0, lambda: None)
    transactions.forget_ledger_watch()  # a script is sent in between
    transactions.request_ledger_watch_if_allowed(0.0, lambda: None)
    sent.answer_up_to(b"\r\nWATCH")
    assert (transactions.is_ready, transactions.is_watch_awaited) == (False, True)
    sent.answer_up_to(b"\r\nWATCH")
    assert transactions.is_ready


def test_a_script_that_is_sent_before_the_answer_makes_nothing_ready(
    sent: SentCommands, transactions: AddTransactions
) -> None:
    transactions.request_ledger_watch_if_allowed(0.0, lambda: None)
    transactions.forget_ledger_watch()
    sent.answer_up_to(b"\r\nWATCH")
    assert not transactions.is_ready


def test_a_server_that_refuses_transactions_is_asked_once(sent: SentCommands, transactions: AddTransactions) -> None:
    transactions.request_ledger_watch_if_allowed(0.0, lambda: None)
    sent.answer_up_to(b"\r\nWATCH", ReplyError("NOPERM no"))
    transactions.request_ledger_watch_if_allowed(0.0, lambda: None)
    assert (transactions.is_ready, transactions.is_watch_awaited) == (False, False)


@pytest.mark.parametrize("is_confirmed", (False, True))
def test_a_watch_of_another_producer_ends_what_was_ready(
    sent: SentCommands, transactions: AddTransactions, is_confirmed: bool
) -> None:
    """It sends UNWATCH on the socket that both share. The first one is called all the same, and sends its script."""
    answers: list[str] = []
    other = AddTransactions(cast(Socket, sent), "other", "its ledger")
    transactions.request_ledger_watch_if_allowed(0.0, lambda: answers.append("first"))
    if is_confirmed:
        sent.answer_up_to(b"\r\nWATCH")
    other.request_ledger_watch_if_allowed(0.0, lambda: answers.append("other"))
    if not is_confirmed:
        sent.answer_up_to(b"\r\nWATCH")
    assert (transactions.is_ready, transactions.is_watch_awaited, answers) == (False, False, ["first"])
    sent.answer_up_to(b"\r\nWATCH")
    assert (transactions.is_ready, other.is_ready, answers) == (False, True, ["first", "other"])


def test_a_transaction_ends_every_watch(sent: SentCommands, transactions: AddTransactions) -> None:
    transactions.request_ledger_watch_if_allowed(0.0, lambda: None)
    sent.answer_up_to(b"\r\nWATCH")
    transactions.write_add_transaction((0, "1 1"), 1000, [b"envelope"], [b""])
    assert (transactions.is_ready, sent.watcher) == (False, None)
