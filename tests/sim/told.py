"""A simulated program of a framework that is told of deaths, and the laws of its mail.

Slots claim as `ftrma.program.session` has them claim, spares follow, and all are `Members` of an
attempt (`ftrma.framework`, `ftrma.program.deathmail`, ``csrc/job/mail.c``, all as shipped). They
send each other numbered messages in some rounds, which the root counts off before it lets all end.
What is wrong with deaths or messages is noted where it is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftrma.framework import Members
from ftrma.host.errors import FtrmaError, Rollback
from ftrma.native import job
from ftrma.native.constants import CLAIM_REENTRY
from ftrma.native.mail import Mail, Sent
from ftrma.native.shared import Slot
from ftrma.program import deathmail

from .program import mix

if TYPE_CHECKING:
    from .process import SimulatedProcess

NAME = "simulation"
WORK, DONE, OVER = range(3)  # kinds of messages
LONG_S = 1000.0  # for which nobody waits whom a message, a death or an alarm wakes
HEAD = 4  # numbers of 8 bytes of a message: attempt, sender, receiver, number
MOST_NUMBERS = 250  # of a message, of which a ring takes two


def text_of(attempt: int, sender: int, to: int, number: int) -> bytes:
    """Bytes of a message, which follow from its first numbers."""
    seal = mix(attempt, sender, to, number)
    numbers = [attempt, sender, to, number, *[seal] * (seal % (MOST_NUMBERS - HEAD))]
    return b"".join(value.to_bytes(8, "little") for value in numbers)


class Hiccup(Exception):
    """A framework's callback fails, and is to be called again."""


class ToldProgram:
    """The program in one process, for one attempt.

    Attributes:
        learned: deaths, as `Members` has handed them out.
        sent, received: messages, by receiver and by sender.
    """

    def __init__(self, process: SimulatedProcess) -> None:
        self.process, self.world, self.view = process, process.world, process.view
        self.random = self.world.scheduler.random
        self.attempt = int(self.view.words.attempt)
        self.where = self.world.launch.number, self.attempt
        self.learned: list[int] = []
        self.sent: dict[int, int] = {}
        self.received: dict[int, int] = {}
        self.done: set[int] = set()
        self.over = False
        self.members: Members

    def expect(self, holds: bool, words: str) -> None:
        self.world.expect(holds or self.world.scheduler.over, f"process {self.view.proc}: {words}")

    # -- slots and spares ---------------------------------------------------------------------

    def run_slot(self, slot: Slot) -> None:
        view = self.view
        if slot == 0:
            deathmail.create(view, 0)
        different = view.slot_that_differs(4321)
        self.expect(different is None, f"slot {different} claims otherwise")
        view.set_claimant(NAME, CLAIM_REENTRY)
        view.barrier()
        if slot == 0:
            deathmail.keep_seats(view)
        view.barrier()
        mail = deathmail.join(view)
        if slot == 0:
            view.tell_deaths(True)
        self.live(mail)

    def run_spare(self) -> None:
        """Raises Rollback if all have gone back before this spare had seen the claim."""
        job.attempt_begin()
        try:
            mail = deathmail.join_as_spare(self.view, NAME)
        except FtrmaError as error:
            self.expect(self.view.alarmed(), f"a spare cannot join: {error}")
            raise Rollback("a process failed") from None
        self.live(mail)
        self.view.words.me.finished = self.attempt

    # -- the rounds ---------------------------------------------------------------------------

    def live(self, mail: Mail) -> None:
        self.members = members = Members(mail, deathmail.facts(self.view, 0, 0.0, lambda _: None))
        mail.join()
        members.on_failure(self.learn)
        everyone = self.world.told_members.setdefault(self.where, members.everyone)
        self.expect(everyone == members.everyone, f"its members are {members.everyone}, others' "
                                                  f"{everyone}")
        for _ in range(self.process.scenario.steps):
            self.take_part()
        others = [p for p in everyone if p != members.me]
        if members.me == members.root:
            self.wait(lambda: all(p in self.done or p in self.learned for p in others))
            for process in others:
                self.send_surely(process, OVER)
        else:
            self.send_surely(members.root, DONE)
            self.wait(lambda: self.over)
        self.count_mail_of_the_dead()

    def take_part(self) -> None:
        """Send some messages, and take some."""
        members = self.members
        members.check()
        for _ in range(self.random.randrange(4)):
            self.send(self.random.choice(members.everyone), WORK)
        self.look()
        if self.random.random() < 0.3:
            self.world.scheduler.sleep(self.random.random() * 1e-3)

    def look(self) -> None:
        """Learn deaths, and take the mail."""
        while self.failed_to_take_deaths():
            pass
        while (message := self.members.mail.take()) is not None:
            if self.random.random() < 0.5:
                self.world.scheduler.sleep(1e-5)  # the bytes stay until they are given back
            self.read(*message)
            self.members.mail.release()

    def wait(self, condition: Any) -> None:
        """Wait for mail and deaths until something is so."""
        mail, scheduler = self.members.mail, self.world.scheduler
        while True:
            seen = mail.bell
            self.members.check()
            self.look()
            if condition():
                return
            until = scheduler.now_ns + int(LONG_S * 1e9)
            mail.wait(seen, LONG_S)
            self.expect(scheduler.now_ns < until, "nothing wakes it")

    # -- messages -----------------------------------------------------------------------------

    def send(self, to: int, kind: int) -> Sent:
        number = self.sent.get(to, 0) + 1
        ledger, pair = self.world.told_sent, (*self.where, self.members.me, to)
        ledger[pair] = number, False
        found = self.members.mail.append(to, kind, text_of(self.attempt, self.members.me, to,
                                                           number))
        if found is Sent.OK:
            self.sent[to] = number
        ledger[pair] = self.sent.get(to, 0), True
        if found is Sent.DEAD:
            self.expect(self.is_dead(to), f"a message to {to} is refused, who lives")
        return found

    def send_surely(self, to: int, kind: int) -> None:
        """Send a message, and again while the ring is full."""
        nap_s = 1e-4
        while self.send(to, kind) is Sent.FULL:
            self.members.check()
            self.look()
            self.world.scheduler.sleep(nap_s)
            nap_s = min(2 * nap_s, 0.1)

    def read(self, source: int, kind: int, data: memoryview) -> None:
        numbers = [int.from_bytes(data[i:i + 8], "little") for i in range(0, 8 * HEAD, 8)]
        attempt, sender, to, number = numbers
        expected = self.received.get(source, 0) + 1
        self.expect(bytes(data) == text_of(*numbers), "a message is torn")
        self.expect((attempt, sender, to) == (self.attempt, source, self.members.me),
                    f"in attempt {self.attempt} it gets a message of attempt {attempt} from "
                    f"{sender} to {to}, out of the ring of {source}")
        self.expect(number == expected, f"message {number} of {source} comes in place of "
                                        f"{expected}")
        self.received[source] = number
        if kind == DONE:
            self.done.add(source)
        self.over |= kind == OVER

    # -- deaths -------------------------------------------------------------------------------

    def is_dead(self, process: int) -> bool:
        return bool(self.world.launch.tasks[process].dead)

    def failed_to_take_deaths(self) -> bool:
        try:
            self.members.poll()
        except Hiccup:
            return True
        return False

    def learn(self, process: int) -> None:
        """Learn of a death; sometimes the framework fails to take it."""
        if self.random.random() < 0.1:
            raise Hiccup
        self.expect(self.is_dead(process), f"it is told of the death of {process}, who lives")
        self.expect(process not in self.learned, f"it is told of the death of {process} twice")
        order, number = self.world.told_deaths.setdefault(self.where, []), len(self.learned)
        self.learned.append(process)
        if number == len(order):
            order.append(process)
        self.expect(order[number] == process,
                    f"death {number} is that of {process}, for others that of {order[number]}")
        self.expect(not self.members.alive(process), f"{process} has died, and counts as living")

    def count_mail_of_the_dead(self) -> None:
        """See that nothing is missing of what the dead have sent, which can all be taken."""
        for process in self.learned:
            self.look()
            sent, sure = self.world.told_sent.get(
                (*self.where, process, self.members.me), (0, True))
            got = self.received.get(process, 0)
            self.expect(got == sent or (not sure and got == sent - 1),
                        f"{process} has died and had sent {sent} messages, of which {got} came")
