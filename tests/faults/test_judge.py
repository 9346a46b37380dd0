"""The judges catch each kind of loss."""

from __future__ import annotations

import random
from dataclasses import replace

from faults import fencing
from faults.ledger import Ledger, Observed, compare, judge
from faults.plan import BATCHES, Op, Planner, apply, word_of
from faults.tree import Tree

SEED = 20260101


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


class TestTheJudgeOfLeases:
    def _stored(self, *ids: str) -> Observed:
        tree = Tree()
        for message_id in ids:
            tree.add({"id": message_id, "metadata": {"word": message_id}}, parent=tree.leaf)
        return _session_of(tree)

    def _found(self, said: list[list[str]], observed: Observed) -> set[str]:
        return {violation.promise for violation in fencing.judge(fencing.Scene(said=said), observed)}

    def test_accepts_holders_in_turn(self) -> None:
        said = [["h 1", "i 1-0-0", "a 1-0-0", "i 1-0-1", "l 1-0-1"], ["h 2", "i 2-1-0"]]

        assert self._found(said, self._stored("1-0-0", "2-1-0")) == set()

    def test_finds_a_write_that_came_after_its_time(self) -> None:
        said = [["i 1-0-0", "i 1-0-1"], ["i 2-1-0"]]

        assert self._found(said, self._stored("1-0-0", "2-1-0", "1-0-1")) == {"no stale write is stored"}

    def test_finds_a_token_with_two_holders(self) -> None:
        assert self._found([["i 1-0-0"], ["i 1-1-0"]], self._stored("1-0-0")) == {"a token has one holder"}

    def test_finds_what_is_lost_and_what_was_refused_and_stored(self) -> None:
        said = [["i 1-0-0", "a 1-0-0", "i 1-0-1", "l 1-0-1"]]

        assert self._found(said, self._stored("1-0-1")) == {"nothing acknowledged is lost", "refused is not stored"}
