"""Mistakes that are planted in the shipped code, to see that the simulator finds them.

A `Plant` is a patch: a text of a file that occurs there once, and what stands there instead. Each
was a plausible mistake: a step left out, a look too few, two stores in the other order.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tree import ROOT

# The seeds that are tried, up to the first that finds the mistake: most need some ten, a few some
# thousand. No other test has them.
FIRST, SEEDS = 500_000, 4000
LIMIT_S = 1500


@dataclass(frozen=True)
class Plant:
    """A mistake.

    Attributes:
        name: in a word or two.
        path: of the file; before: its text that is replaced; after: by what.
        missed: why the simulator does not find it, and what does, if anything; empty: it does.
        focus: see `draw.draw`; of the jobs that are tried.
    """

    name: str
    path: str
    before: str
    after: str
    missed: str = ""
    focus: str = ""


def put(path: str) -> str:
    return f"ftrma/protocol/{path}.py"


PLANTS = (
    # -- repair -------------------------------------------------------------------------------
    Plant("commits go on in a repair", put("repair_steps"),
          "    now.view.words.forbid_commits()\n", "",
          missed="equivalent on one node: whoever commits comes to the meeting first"),
    Plant("staged blocks are kept", put("repair_steps"),
          "        vaults.stage_undo(vault.c, version)\n", ""),
    Plant("staged is not set back", put("repair_steps"),
          "        view.words.me.staged = version\n        view.words.me.staging = 0\n",
          "        view.words.me.staging = 0\n"),
    Plant("a parity misses a commit", put("repair_steps"),
          "            view.words.me.ready = 0  # it took", "            pass  # it took",
          missed="open: no drawn run has failed"),
    Plant("a sum is not folded", put("repair_steps"),
          "            vaults.parity_fold(vault.c, version)\n        else",
          "            vaults.parity_drop(vault.c)\n        else"),
    Plant("a sum is not dropped", put("repair_steps"),
          "            vaults.parity_drop(vault.c)\n            vault.words.complete",
          "            vault.words.complete"),
    Plant("the plan of a dead leader is awaited", put("repair_steps"),
          "        if not view.alive(now.leader):\n            change_round(now)\n", "",
          missed="equivalent: the death raises the alarm, which ends the wait, too"),
    Plant("a round is not left", put("repair_steps"),
          "        if view.requested_round() != now.number:\n            raise RoundChanged\n"
          "        if not view.alive(now.leader):\n            change_round(now)\n", "",
          focus="leaders"),
    Plant("counters of the attempt stay", put("repair_steps"),
          "    me.ordinal = me.arrived = me.verdict = me.protect_hash = 0\n",
          "    me.verdict = me.protect_hash = 0\n"),
    Plant("the target of the attempt stays", put("repair_steps"),
          "    words.checkpoint_target = words.checkpoint_taken = words.checkpoint_wanted = 0\n",
          "    words.checkpoint_wanted = 0\n"),
    Plant("replays of the attempt stay", put("repair_steps"),
          "        slot.replaying = slot.demand = slot.asked = 0\n",
          "        slot.demand = slot.asked = 0\n"),
    Plant("the attempt is not numbered", put("repair_steps"),
          "    view.begin_attempt(words.attempt + 1)\n", ""),
    Plant("holders may be dead", put("repair"),
          "planned=phase >= Phase.SEATED", "planned=False",
          missed="open: no drawn run has failed"),
    Plant("parities are restored too early", put("repair"),
          "Step(Phase.SLOTS_RESTORED, checksum_ranks", "Step(Phase.SEATED, checksum_ranks",
          missed="open: no drawn run has failed"),
    Plant("a round that was cut short is forgotten", put("repair"),
          "            progress.eventful |= view", "            progress = RepairProgress()\n"
          "            progress.eventful |= view",
          missed="open: no drawn run has failed"),
    Plant("replays are not prepared", put("leading"),
          "            words.slot(s).replaying = 1\n", ""),
    Plant("a replacement has no ordinal", put("leading"),
          "        words.process(after).ordinal = words.process(before).ordinal\n", "",
          missed="open: no drawn run has failed"),
    Plant("a replacement has no hash", put("leading"),
          "        words.process(after).protect_hash = words.process(before).protect_hash\n", "",
          missed="open: no drawn run has failed"),
    Plant("lost results are not noted", put("leading"),
          "            note_lost_results(view, checksum)\n", "            pass\n",
          missed="open: no drawn run has failed"),
    Plant("the target is not withdrawn", put("leading"),
          "        view.words.checkpoint_target = 0\n", "",
          missed="open: no drawn run has failed"),
    Plant("commits stay forbidden", put("leading"),
          "    view.words.allow_commits()\n", ""),
    Plant("the refusal stays", put("leading"), "    view.words.clear_refusal()\n", ""),
    Plant("the refusal is not kept", put("leading"),
          "        logs.keep_refusal(chosen.reason)\n", "        pass\n"),
    Plant("the plan's round is stored first", put("leading"),
          "    before, calm = observe", "    view.words.plan_round = now.number\n"
          "    before, calm = observe",
          missed="open: no drawn run has failed"),
    Plant("the repair is not noted as over", put("leading"),
          "    view.words.repaired_round = now.number\n", "",
          missed="open: no drawn run has failed"),
    # -- plans and seats ----------------------------------------------------------------------
    Plant("one spare for two roles", put("seating"),
          "        spares.remove(holders[i])\n    return tuple(slot", "    return tuple(slot"),
    Plant("two lost slots are replayed", put("causal"), "if len(lost) > 1:", "if len(lost) > 2:"),
    Plant("a lost put log is no obstacle", put("causal"),
          "(RECOVERED, Matters.IF_OTHERS", "(RECOVERED, Matters.IF_MINE"),
    Plant("a lost result log is no obstacle", put("causal"),
          "(CHECKSUM, Matters.IF_MINE", "(CHECKSUM, Matters.IF_OTHERS",
          missed="open: no drawn run has failed"),
    Plant("one loss too many is given up late", put("salvage"),
          "if len(names) > strength:", "if len(names) > strength + 1:",
          missed="equivalent: `rebuild_slot` counts once more"),
    Plant("losses that can be made up for are given up", put("salvage"),
          "if len(names) > strength:", "if len(names) >= strength + (strength > 1):\n"
          "            strength -= 1\n        if len(names) > strength:"),
    Plant("nobody ever died", put("failure_state"),
          "    return all_roles_ready(view) and not lacking\n", "    return not lacking\n"),
    Plant("all slots have begun", put("failure_state"),
          "    return view.words.slot(slot).entered == view.words.attempt\n", "    return True\n",
          missed="open: no drawn run has failed"),
    Plant("replays that were cut short are forgotten", put("failure_state"),
          "            if (view.words.slot(s).replaying or p not in now.ready) and",
          "            if p not in now.ready and",
          missed="open: no drawn run has failed"),
    # -- checkpoints --------------------------------------------------------------------------
    Plant("a group is summed early", put("server"),
          "        return all(words.staged == version for", "        return any(words.staged == "
          "version for"),
    Plant("a version is committed early", put("server"),
          "        return all(view.words.process(p).summed",
          "        return any(view.words.process(p).summed"),
    Plant("a rebuild is not announced", put("server"),
          "        self.view.words.me.rebuilding = 1\n", "",
          missed="open: no drawn run has failed"),
    Plant("a rebuild is announced without a second look", put("server"),
          "        if self.nobody_stages(group):\n            return True\n        self.withdraw",
          "        return True\n        self.withdraw",
          missed="open: no drawn run has failed"),
    Plant("a rebuild amid staging", put("server"),
          "        return all(words.staging <= committed or words.staged == words.staging\n",
          "        return all(True or words.staged == words.staging\n",
          missed="open: no drawn run has failed"),
    Plant("a rebuild's announcement stays", put("server"),
          "        self.view.words.me.rebuilding = 0\n", ""),
    Plant("a seat's lost results are not noted", put("server"),
          "        note_lost_results(view, vacant)\n", "",
          missed="open: no drawn run has failed"),
    Plant("the target is not looked at again", put("coordinated"),
          "        if newest < target:\n            return\n", "        if target:\n"
          "            return\n",
          focus="nothing"),
    Plant("slots are not admitted", put("coordinated"),
          "    if not view.admit(version):\n", "    if False:\n"),
    Plant("a slot does not wait for the others", put("coordinated"),
          "    if not view.await_staged(version):\n", "    if False:\n"),
    Plant("a slot does not wait at the safepoint", put("coordinated"),
          "        ended = view.arrive(ordinal, targeted=targeted)\n",
          "        ended = job.Wait.OK\n"),
    Plant("staged is told before it is", put("coordinated"),
          "    with writing(view, vault):\n", "    view.words.me.staged = version\n"
          "    view.ring()\n    view.visit(\"stage\")\n    with writing(view, vault):\n"),
    Plant("a taken checkpoint is taken once more", put("coordinated"),
          "            view.words.checkpoint_taken = record[\"ordinal\"]\n", "            pass\n"),
    Plant("a restored slot has staged nothing", put("restoring"),
          "        view.words.me.staged = version\n", ""),
    Plant("a restored parity has summed nothing", put("restoring"),
          "        view.words.me.summed = version\n", "",
          missed="equivalent where a version is committed: `rebuild_parity` has stored it"),
    Plant("a vault is ready before it is", put("restoring"),
          "    version = view.words.committed\n    if role == SLOT:",
          "    view.words.me.ready = 1\n    version = view.words.committed\n    if role == SLOT:",
          missed="open: no drawn run has failed"),
    Plant("a dead source is read", "ftrma/vault/group.py",
          "        missing = sorted({element, *group.missing()})\n",
          "        missing = [element]\n",
          missed="hidden: a block that is not there does not match its checksum, and is mended"),
    Plant("staged blocks stay in a rebuilt parity", "ftrma/vault/group.py",
          "            if view.words.process(proc).staged > version:\n", "            if False:\n",
          focus="seats"),
    # -- launches -----------------------------------------------------------------------------
    Plant("a node counts as lost with its first rank", "ftrma/launch/rankstate.py",
          "self.can_lose(host) and not any(peer.open or peer.goodbye for peer in there)",
          "self.can_lose(host) and bool(there)", focus="lost nodes"),
    Plant("a lost node's ranks stay alive", "csrc/job/alarm.c",
          "        if (ftrma_ctl->proc[p].node == node)\n            ftrma_note",
          "        if (ftrma_ctl->proc[p].node == node && !p)\n            ftrma_note",
          missed="the repair never ends, and the job is launched again, right; "
          "tests/faults/test_lost_nodes.py wants it repaired in place", focus="lost nodes"),
    Plant("vaults of the dead are taken over", "ftrma/launch/relaunch.py",
          "        if p in (() if offered else died) or", "        if"),
    Plant("vaults that are offered count as lost", "ftrma/launch/relaunch.py",
          "p in (() if offered else died)", "p in died",
          missed="open: no drawn run has failed"),
    Plant("lost vaults are not marked", "ftrma/launch/vaulthandover.py",
          "        new.lost[at] = 1\n", "        pass\n"),
    Plant("the next launch has the attempt's number", "ftrma/launch/vaulthandover.py",
          "ctl.attempt + 1, died_ns", "ctl.attempt, died_ns"),
    Plant("a vault of before is not settled", put("starting"),
          "        if bring_to_committed(view, vault):\n", "        if True:\n"),
    Plant("the takeover is over at once", put("starting"),
          "    with contextlib.suppress(RoundChanged):\n", "    view.finish_takeover()\n"
          "    with contextlib.suppress(RoundChanged):\n",
          missed="open: no drawn run has failed"),
    Plant("a lost vault is not restored at the start", put("starting"),
          "            rebuild_lost(view, vault)\n        view.meet", "            "
          "view.words.me.ready = 1\n        view.meet"),
    Plant("who dies amid joining is missed", "ftrma/launch/onenode.py",
          "        if noticed >= {*gone}:\n", "        if noticed >= {*gone} or any(\n"
          "                p.pid in gone and p.state == job.ProcessState.ABSENT\n"
          "                for p in self.launch.procs()):\n",
          missed="found by test_a_death_amid_joining"),
    # -- launches over several nodes --------------------------------------------------------------
    Plant("the newest version that is found is taken", put("salvage"),
          "        if not catastrophe(lost, layout.strength, version):\n            return",
          "        if not catastrophe(lost, layout.strength + 1, version):\n            return",
          focus="launches of nodes"),
    Plant("the older one of two vaults is taken", put("vault_inventory"),
          "max(versions) > max(self.found", "max(versions) < max(self.found",
          focus="launches of nodes"),
    Plant("a vault of before is not brought to the version", put("retrieval"),
          "                    vaults.stage_undo(vault.c, version)\n                elif",
          "                    pass\n                elif", focus="launches of nodes"),
    Plant("a parity of before is dropped", put("retrieval"),
          "                    vaults.parity_fold(vault.c, version)\n                else",
          "                    vaults.parity_drop(vault.c)\n                else",
          focus="launches of nodes"),
    Plant("a moved vault is not fetched", put("retrieval"),
          "            (1, moved, self._fetch),\n", "", focus="launches of nodes"),
    Plant("vaults of before are read at once", put("retrieval"),
          "            view.meet(0, phase, planned=False)\n", "", focus="launches of nodes"),
    Plant("a stray vault stays", put("retrieval"),
          "                    self.inventory.path(role).unlink(missing_ok=True)\n\n    def _bring",
          "                    pass\n\n    def _bring", focus="launches of nodes"),
    Plant("a vault that is filled was always full", put("retrieval"),
          "            self.vault = self.inventory.open(role, create=True)\n",
          "            self.vault = self.inventory.open(role, create=True)\n"
          "            self.vault.words.version = self.version\n", focus="launches of nodes"),
    Plant("the homes of roles are forgotten", "ftrma/launch/severalnodes.py",
          "homes=tuple(sorted(homes)))", "homes=())", focus="launches of nodes",
          missed="open: no drawn run has failed"),
    Plant("the next launch over nodes has the attempt's number", "ftrma/launch/severalnodes.py",
          "attempt=ranks.attempt + 1", "attempt=ranks.attempt", focus="launches of nodes"),
    Plant("a lost host is launched on again", "ftrma/launch/nexthosts.py",
          "    if not gone:\n", "    if True:\n",
          focus="launches of nodes"),
    Plant("the vault of an earlier spare stays", "ftrma/fabric/node_table.py",
          ', "vault-*"):', "):", focus="spares of nodes"),
    # -- told deaths and mail ---------------------------------------------------------------------
    Plant("a death is told twice", "csrc/job/mail.c",
          "            || found == its)\n", "            )\n", focus="told"),
    Plant("a place in the list is taken without a look", "csrc/job/mail.c",
          "        if (__atomic_compare_exchange_n(&h->deaths[i], &found, its, 0, "
          "__ATOMIC_SEQ_CST,\n                                        __ATOMIC_SEQ_CST)\n",
          "        found = LOAD(&h->deaths[i]);\n"
          "        if ((!found && (STORE(&h->deaths[i], its), 1))\n", focus="told",
          missed="open: no drawn run has failed"),
    Plant("the generation goes down", "csrc/job/mail.c",
          "    while (seen < i + 1 && !ftrma_cas(&h->generation, seen, i + 1))\n"
          "        seen = LOAD(&h->generation);\n", "    if (seen != i + 1)\n"
          "        STORE(&h->generation, i + 1);\n", focus="told"),
    Plant("the generation is raised first", "csrc/job/mail.c",
          "    STORE(&m->place[proc].dead, 1);\n    for", "    STORE(&m->place[proc].dead, 1);\n"
          "    uint64_t g = LOAD(&h->generation);\n"
          "    STORE(&h->generation, g + !LOAD(&h->deaths[g]));\n    for", focus="told"),
    Plant("a death wakes nobody", "csrc/job/mail.c",
          "        seen = LOAD(&h->generation);\n    ring_all(m);\n",
          "        seen = LOAD(&h->generation);\n", focus="told"),
    Plant("an alarm wakes nobody", "csrc/job/mail.c",
          "    if (m)\n        ring_bell(m, m->me);\n", "    (void)m;\n", focus="told"),
    Plant("deaths of before are not told", "csrc/job/mail.c",
          "            ftrma_mail_note_death(m, p);\n}", "            (void)m;\n}", focus="told"),
    Plant("a message shows before it is whole", "csrc/job/mail.c",
          "    struct record *record = (struct record *)(ring_data(m, pair) + at);\n"
          "    *record = (struct record){(uint32_t)bytes, kind};\n",
          "    STORE(&ring->written, written + skipped + need);\n"
          "    struct record *record = (struct record *)(ring_data(m, pair) + at);\n"
          "    *record = (struct record){(uint32_t)bytes, kind};\n", focus="told",
          missed="open: no drawn run has failed"),
    Plant("a ring takes more than it has room for", "csrc/job/mail.c",
          "LOAD(&ring->read) > size)", "LOAD(&ring->read) > size + 2048)", focus="told"),
    Plant("what is taken is given back at once", "csrc/job/mail.c",
          "        m->next = source + 1;\n", "        m->next = source + 1;\n"
          "        STORE(&m->ring[pair].read, m->after);\n", focus="told"),
    Plant("a message wakes nobody", "csrc/job/mail.c",
          "    STORE(&ring->written, written + skipped + need);\n    ring_bell(m, to);\n",
          "    STORE(&ring->written, written + skipped + need);\n", focus="told"),
    Plant("deaths of spares are not told", "csrc/job/alarm.c",
          "    if (told && role != FTRMA_ROLE_CHECKSUM)", "    if (told && slot)", focus="told"),
    Plant("the root's death is told only", "csrc/job/alarm.c",
          "FTRMA_CLAIM_TOLD && !(slot && index == 0);", "FTRMA_CLAIM_TOLD ? 1 : 0;", focus="told"),
    Plant("the dead are awaited at the end", "csrc/log/event.c",
          "        if (!(told && LOAD(", "        if (!(0 && LOAD(", focus="told"),
    Plant("spares are not awaited at the end", "csrc/log/event.c",
          "    for (int p = 0; told && p", "    for (int p = 0; 0 && told && p", focus="told",
          missed="open: no drawn run has failed"),
    Plant("deaths are told on when all go back", put("repair_steps"),
          "        view.tell_deaths(False)  # a death is a", "        pass  # a death is a",
          focus="told"),
    Plant("deaths are told on in the next launch", "ftrma/launch/vaulthandover.py",
          "new.claim = ctl.claim & ~(CLAIM_TOLD | CLAIM_SEATED)", "new.claim = ctl.claim",
          focus="told"),
    Plant("a seat is taken beside a claim", put("server"),
          "        kept = view.keeps_seats\n", "        kept = False\n", focus="told seats"),
    Plant("a claim does not wait for who takes a seat", "ftrma/program/deathmail.py",
          "        if not any(view.words.process(p).rebuilding for",
          "        if True or not any(view.words.process(p).rebuilding for", focus="told seats",
          missed="open: no drawn run has failed"),
    Plant("all attempts have one mail", "ftrma/program/deathmail.py",
          'view.directory / f"mail-{view.words.attempt}"', 'view.directory / "mail-1"',
          focus="told", missed="open: 1 of 8,000 drawn runs has failed, since slot 0 makes the "
          "file anew in each attempt"),
    # -- shared words -------------------------------------------------------------------------
    Plant("the seating is changed in place", "ftrma/fabric/one_node.py",
          "new = self.ctl.roles[now + 1 & 1]", "new = self.ctl.roles[now & 1]"),
    Plant("the plan is written in place", "ftrma/fabric/plans.py",
          "    _write(ctl.plans[next_one & 1]", "    _write(ctl.plans[next_one + 1 & 1]"),
    Plant("a commit asks nobody", "ftrma/fabric/control_words.py",
          "        return job.exchange(self.struct, \"commit\", version - 1 << 1, version << 1)\n",
          "        self.set_committed(version)\n        return True\n",
          missed="open: no drawn run has failed"),
    Plant("commits are allowed at once", "ftrma/fabric/control_words.py",
          "            job.exchange(self.struct, \"commit\", word, word | 1)\n            word",
          "            break\n            word",
          missed="open: no drawn run has failed"),
    # -- C --------------------------------------------------------------------------------------
    Plant("the alarm goes down", "csrc/job/alarm.c",
          "    while (seen < round && seen != FTRMA_ENDED && "
          "!ftrma_cas(&ftrma_ctl->alarm, seen, round))\n"
          "        seen = LOAD(&ftrma_ctl->alarm);\n",
          "    if (seen < round && seen != FTRMA_ENDED)\n"
          "        STORE(&ftrma_ctl->alarm, round);\n",
          missed="open: no drawn run has failed"),
    Plant("a death in a repair has its round's number", "csrc/job/alarm.c",
          "    ftrma_cas(&p->death_round, 0, alarm + 1);\n",
          "    ftrma_cas(&p->death_round, 0, repairing ? alarm : alarm + 1);\n",
          focus="leaders"),
    Plant("servers' deaths in a repair are passed over", "csrc/job/alarm.c",
          "    if (!slot && !repairing && !vacant", "    if (!slot && !vacant",
          missed="open: no drawn run has failed"),
    Plant("vacant seats are not counted", "csrc/job/alarm.c",
          "    return vacant > spares;", "    return vacant > spares + 1;"),
    Plant("seats are counted once", "csrc/job/alarm.c",
          "    } while (seats != LOAD(&ftrma_ctl->roles_seq));",
          "    } while (0 && seats != LOAD(&ftrma_ctl->roles_seq));",
          missed="open: no drawn run has failed"),
    Plant("a meeting goes on at another alarm", "csrc/job/meet.c",
          "        if (alarm != round && !(over", "        if (alarm < round && !(over"),
    Plant("the end is not heeded in a round", "csrc/job/meet.c",
          "(!round || phase >= FTRMA_LAST_PHASE)", "1",
          focus="ends of nodes",
          missed="open: no drawn run has failed"),
    Plant("a meeting does not look at holders", "csrc/job/meet.c",
          "        if (check_holders && !over && !holders_live()) {",
          "        if (check_holders && !over && !holders_live() && !round) {",
          missed="open: no drawn run has failed"),
    Plant("a meeting is decided by each alone", "csrc/job/meet.c",
          "            return decide(mark, 1) ? FTRMA_OK : FTRMA_ALARM;",
          "            return FTRMA_OK;"),
    Plant("a meeting that all left goes on", "csrc/job/meet.c",
          "    return (int)(newest & 1);", "    return 1;"),
    Plant("a meeting forgets one process", "csrc/job/meet.c",
          "        if (i == c->nprocs && agents_scanned(round))",
          "        if (i + 1 >= c->nprocs && agents_scanned(round))",
          missed="open: no drawn run has failed"),
    Plant("a death is noted behind the end", "csrc/job/alarm.c",
          "seen < round && seen != FTRMA_ENDED && !", "seen < round && !", focus="ends of nodes",
          missed="found by test_a_death_beside_the_end_of_a_job_over_nodes"),
    Plant("a meeting takes those of the phase before", "csrc/job/meet.c",
          "LOAD(&c->proc[i].met) >= mark))", "LOAD(&c->proc[i].met) + 1 >= mark))"),
    Plant("a rebuild does not hinder", "csrc/job/meet.c",
          "        if (rebuilding || LOAD", "        if ((rebuilding & 0) || LOAD",
          missed="open: no drawn run has failed"),
    Plant("a slot looks before it announces", "csrc/job/meet.c",
          "        STORE(&me->staging, version);\n        if (parities_admit(version))\n"
          "            return FTRMA_OK;\n", "        if (parities_admit(version)) {\n"
          "            STORE(&me->staging, version);\n            return FTRMA_OK;\n        }\n",
          missed="open: no drawn run has failed"),
    Plant("a parity may be a version behind", "csrc/job/meet.c",
          "at + 1 < version)", "at + 2 < version)"),
    Plant("a target that moves is waited for", "csrc/job/meet.c",
          "        if (ended || moved)", "        if (ended)"),
    Plant("a slot at the next target has arrived here", "csrc/job/meet.c",
          "        if (here == c->nslots && !moved)", "        if (here == c->nslots)",
          focus="nothing"),
    Plant("a wait for staging ignores failures", "csrc/job/meet.c",
          "        uint32_t s = 0;\n        if (ftrma_pending())\n            return FTRMA_ALARM;\n"
          "        while (s < c->nslots && LOAD(&c->proc[roles->slot_proc[s]].staged)",
          "        uint32_t s = 0;\n        while (s < c->nslots && LOAD(&c->proc[roles->slot_proc"
          "[s]].staged)"),
    Plant("a barrier is left early", "csrc/log/event.c",
          "__ATOMIC_SEQ_CST) < ftrma_barriers)", "__ATOMIC_SEQ_CST) + 1 < ftrma_barriers)"),
    Plant("the end overrides an alarm", "csrc/log/event.c",
          "            ftrma_cas(&ftrma_ctl->alarm, ftrma_round, FTRMA_ENDED);",
          "            STORE(&ftrma_ctl->alarm, FTRMA_ENDED);",
          focus="ends"),
    Plant("the dead have finished", "csrc/log/event.c",
          "            && !has_finished(roles->slot_proc[s])) {", "            && LOAD(&ftrma_ctl->"
          "proc[roles->slot_proc[s]].state) == FTRMA_ALIVE\n"
          "            && !has_finished(roles->slot_proc[s])) {",
          missed="open: no drawn run has failed"),
    Plant("a replayed slot is not waited for", "csrc/job/meet.c",
          "LOAD(&ftrma_ctl->slots[slot].replaying); seen", "0; seen",
          missed="open: no drawn run has failed"),
)


def plant(mistake: Plant, to: Path) -> None:
    """Make a tree of the sources with this mistake: links to the files, but for one."""
    for top in ("ftrma", "csrc", "tests/sim"):
        shutil.copytree(ROOT / top, to / top, copy_function=os.symlink)
    for name in ("tree.py", "tiers.py"):
        shutil.copy(ROOT / "tests" / name, to / "tests" / name)
    path = to / mistake.path
    text = path.read_text()
    assert text.count(mistake.before) == 1, mistake
    path.unlink()
    path.write_text(text.replace(mistake.before, mistake.after))


def hunt(mistake: Plant, folder: Path, seeds: int = SEEDS) -> str:
    """Run drawn jobs on sources with a mistake until one fails; say how it failed, "" if none did.
    """
    plant(mistake, folder)
    script = (f"from sim.draw import first_failure\n"
              f"first_failure({FIRST}, {seeds}, {mistake.focus!r})")
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", script], cwd=folder / "tests", env=env, text=True,
                          capture_output=True, timeout=LIMIT_S)
    if done.returncode:
        return f"{done.stdout}{done.stderr}" or f"status {done.returncode}"
    return ""
