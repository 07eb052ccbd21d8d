"""Mail between processes: whole messages in order, deaths in one order, waits that end."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from pathlib import Path

import pytest
from placeprocesses import Ended, run_places

from ftrma.framework import Members
from ftrma.host.errors import FtrmaError
from ftrma.native import mail


def take(members: Members) -> tuple[int, int, bytes]:
    """Wait for a message, and take it."""
    mail = members.mail
    while True:
        seen = mail.bell
        if taken := mail.take():
            source, kind, data = taken
            copy = bytes(data)
            mail.release()
            return source, kind, copy
        mail.wait(seen, 1.0)


def test_messages_arrive_whole_and_in_order() -> None:
    """Law: one pair's messages arrive in their order, whatever their sizes, over many ring ends."""
    sizes = [random.Random(5).choice([0, 1, 7, 8, 100, 5000, 400_000]) for _ in range(400)]

    def play(members: Members) -> bool:
        if members.me:
            for number, size in enumerate(sizes):
                data = bytes([number % 251]) * size
                while members.mail.append(0, number, data) == members.mail.FULL:
                    time.sleep(0.0001)
            return True
        expected = {source: 0 for source in members.everyone[1:]}
        for _ in range(len(sizes) * len(expected)):
            source, kind, data = take(members)
            assert kind == expected[source]
            assert data == bytes([kind % 251]) * sizes[kind]
            expected[source] += 1
        return True

    assert run_places(3, play) == [True] * 3


def test_what_the_dead_have_sent_can_be_taken() -> None:
    """Law: a message outlives its sender; one to a dead process is refused as such."""
    def play(members: Members) -> object:
        mail = members.mail
        if members.me == 1:
            mail.append(0, 7, b"last")
            os.kill(os.getpid(), signal.SIGKILL)
        while members.generation == 0:
            mail.wait(mail.bell, 0.1)
        assert mail.holds(1)
        answer = take(members), mail.append(1, 7, b"too late"), members.alive(1)
        return answer, mail.holds(1)

    got, ended = run_places(2, play)
    assert got == (((1, 7, b"last"), 2, False), False)
    assert ended == Ended(signal=signal.SIGKILL)


def test_deaths_have_one_order() -> None:
    """Law: all see each death once, in one order; who raised is called again."""
    def play(members: Members) -> object:
        if members.me >= 4:
            time.sleep(random.Random(members.me).random() * 0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        handed: list[int] = []
        raised: list[int] = []

        def once(process: int) -> None:
            if process not in raised:
                raised.append(process)
                raise ValueError
            handed.append(process)

        members.on_failure(once)
        while len(handed) < 4:
            seen = members.mail.bell
            try:
                members.poll()
            except ValueError:
                continue
            if len(handed) < 4:
                members.mail.wait(seen, 1.0)
        return handed, members.deaths(), members.deaths(3)

    *got, _, _, _, _ = run_places(8, play)
    assert len(set(map(str, got))) == 1
    handed, deaths, last = got[0]
    assert sorted(handed) == [4, 5, 6, 7]
    assert deaths == tuple(handed)
    assert last == deaths[3:]


def test_a_full_ring_refuses_and_goes_on() -> None:
    """Law: a ring without room takes nothing and waits for nobody."""
    def play(members: Members) -> object:
        mail, size = members.mail, members.mail.limit_bytes
        with pytest.raises(FtrmaError, match=f"a message of {size + 1} bytes"):
            mail.append(0, 1, bytes(size + 1))
        sent = 0
        while mail.append(0, sent, bytes([sent]) * size) == mail.OK:
            sent += 1
        got = take(members)
        again = mail.append(0, sent, b"x")
        return sent, got == (0, 0, bytes(size)), again

    assert run_places(1, play) == [(2, True, 0)]


def test_words_have_what_was_written_before() -> None:
    """Law: who loads a word sees what its writer stored before; counts are exact."""
    def play(members: Members) -> object:
        words, me = members.mail.words, members.me
        if me:
            for _ in range(20_000):
                words.add(10 + me)
                words.add(20 + me)
            return words.load(20 + me)
        while True:
            late = [words.load(20 + i) for i in (1, 2)]
            early = words.read(11, 2)
            assert all(a >= b for a, b in zip(early, late, strict=True))
            if late == [20_000, 20_000]:
                return int(early.sum())

    assert run_places(3, play) == [40_000, 20_000, 20_000]


def test_a_wait_ends_with_a_ring_or_in_time() -> None:
    """Law: a wait ends when the bell is rung, and not before its time otherwise."""
    def play(members: Members) -> object:
        mail = members.mail
        while not (mail.joined(0) and mail.joined(1)):
            mail.wait(mail.bell, 0.01)
        if members.me:
            take(members)
            mail.ring(0)
            return True
        begun = time.monotonic()
        mail.wait(mail.bell, 0.05)
        slept = time.monotonic() - begun
        seen = mail.bell
        mail.append(1, 1, b"")
        mail.wait(seen, 10.0)
        return slept >= 0.05, time.monotonic() - begun < 5.0

    assert run_places(2, play)[0] == (True, True)


def test_memory_of_a_mail_that_is_over_is_given_back() -> None:
    """Law: also while processes map the file; the thread that tells deaths may go on with it."""
    path = Path(tempfile.mkdtemp(dir="/dev/shm")) / "mail"
    mail.create(path, 3)
    mine = mail.Mail(path, 0)
    assert mine.append(1, 7, bytes(400_000)) == mine.OK
    mine.words.store(5, 9)
    with path.open("rb") as file:
        before = os.fstat(file.fileno()).st_blocks * 512
        mail.give_back(path)
        after = os.fstat(file.fileno()).st_blocks * 512
    assert before > 400_000 and after < 100_000 and not path.exists()
    mine.note_death(2)
    assert mine.deaths() == (2,)
    path.parent.rmdir()
