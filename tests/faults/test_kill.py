"""What a killed writer was told is stored, is stored; short profile of `faults.torture --only kill`."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from faults import kill
from faults.ledger import Ledger, Observed, compare, judge
from faults.plan import BATCHES, Op, Planner, apply, word_of
from faults.tree import Tree

SEED = 20260101


@pytest.mark.fault
def test_twenty_kills_lose_nothing_and_every_control_is_caught() -> None:
    outcome = kill.run(kills=20, seed=SEED, progress=print, control_kills=40)

    assert outcome.violations == []
    assert {control.name: control.detail for control in outcome.controls if not control.caught} == {}


def _session_of(tree: Tree) -> Observed:
    """Return what a faultless session with these messages answers."""
    words = {word_of(wire): [message_id] for message_id, wire in tree.wires.items()}
    return Observed(
        parents=dict(tree.parents),
        wires=dict(tree.wires),
        path=tree.path(),
        path_length=len(tree.path()),
        leaf=tree.leaf,
        found=words | {word: [] for word in tree.gone},
    )


def _grown(count: int) -> tuple[Tree, list[Op]]:
    tree = Tree()
    ops = Planner(random.Random(SEED)).plan(tree, count)
    for op in ops:
        apply(tree, op)
    return tree, ops


def _promises(tree: Tree, observed: Observed) -> set[str]:
    return {violation.promise for violation in compare(tree, observed)}


class TestTheJudge:
    def test_accepts_a_faultless_session(self) -> None:
        tree, _ = _grown(200)

        assert compare(tree, _session_of(tree)) == []
        assert tree.gone

    def test_accepts_all_or_nothing_of_the_open_operation(self) -> None:
        tree, ops = _grown(200)
        ledger = Ledger(ops, begun=200, acked=199)
        without = Tree()
        for op in ops[:199]:
            apply(without, op)

        assert judge(Tree(), ledger, _session_of(tree)).violations == []
        assert judge(Tree(), ledger, _session_of(without)).violations == []

    def test_finds_a_lost_message(self) -> None:
        tree, _ = _grown(50)
        lost = tree.copy()
        lost.delete([lost.path()[3]])

        assert "nothing acknowledged is lost" in _promises(tree, _session_of(lost))

    def test_finds_a_message_nobody_asked_for(self) -> None:
        tree, _ = _grown(50)
        more = tree.copy()
        more.add({**next(iter(tree.wires.values())), "id": "other"}, parent=more.leaf)

        assert "nothing unasked is stored" in _promises(tree, _session_of(more))

    def test_finds_changed_content(self) -> None:
        tree, _ = _grown(50)
        changed = tree.copy()
        first = changed.path()[0]
        changed.wires[first] = {**changed.wires[first], "role": "system"}

        assert _promises(tree, _session_of(changed)) == {"content is exact"}

    def test_finds_swapped_messages(self) -> None:
        tree, _ = _grown(50)
        observed = _session_of(tree)
        path = [observed.path[1], observed.path[0], *observed.path[2:]]

        assert _promises(tree, replace(observed, path=path)) == {"history is the chain"}

    def test_finds_a_length_that_disagrees(self) -> None:
        tree, _ = _grown(50)
        observed = _session_of(tree)

        assert _promises(tree, replace(observed, path_length=observed.path_length + 1)) == {"path length agrees"}

    def test_finds_a_missed_word_and_a_deleted_one_that_is_found(self) -> None:
        tree, _ = _grown(200)
        observed = _session_of(tree)
        word = next(iter(observed.found))

        assert _promises(tree, replace(observed, found={word: []})) == {"search agrees"}
        assert _promises(tree, replace(observed, found={tree.gone[0]: ["m-1"]})) == {"search agrees"}

    def test_finds_half_a_batch(self) -> None:
        planner = Planner(random.Random(SEED), BATCHES)
        batch = next(op for op in planner.plan(Tree(), 50) if op.kind == "batch")
        half = Tree()
        apply(half, replace(batch, messages=batch.messages[:1]))

        found = judge(Tree(), Ledger([batch], begun=1), _session_of(half)).violations

        assert "whole or absent" in {violation.promise for violation in found}
