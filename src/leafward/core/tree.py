"""The shape of a session's tree, as a flat list."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from leafward.core.lanes import before_first, lane_of
from leafward.core.message import Message, body_to_read
from leafward.core.parts import search_text

PREVIEW_LENGTH = 80


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One message of the tree: its neighbours by id, the start of its text, and whether the leaf's path holds it."""

    id: str
    parent_id: str | None
    role: str
    preview: str
    children: list[str]
    label: str | None
    on_path: bool


class Branch(NamedTuple):
    """One stored message with its place in the tree."""

    place: int
    seq: int
    message: Message


class Outline(NamedTuple):
    """All that is needed to draw a tree, read in one go."""

    branches: list[Branch]
    origins: Mapping[int, int | None]
    """Lane number to the place it branched from."""
    labels: Mapping[str, str]
    leaf: int | None


def build_tree(outline: Outline) -> list[TreeNode]:
    """Return the nodes of a tree, parents before children, siblings in the order they were stored."""
    branches = sorted(outline.branches, key=lambda branch: (branch.seq, branch.place))
    message_at = {branch.place: branch.message for branch in branches}
    parent_at = _parents(message_at, outline.origins)
    on_path: set[int] = set()
    place = outline.leaf
    while place is not None:
        on_path.add(place)
        place = parent_at[place]
    children: dict[int, list[str]] = {branch.place: [] for branch in branches}
    for branch in branches:
        above = parent_at[branch.place]
        if above is not None:
            children[above].append(branch.message.id)
    return [
        TreeNode(
            id=message.id,
            parent_id=None if (above := parent_at[place]) is None else message_at[above].id,
            role=message.role,
            preview=preview(message),
            children=children[place],
            label=outline.labels.get(message.id),
            on_path=place in on_path,
        )
        for place, _, message in branches
    ]


def preview(message: Message) -> str:
    """Return the start of a message on one line."""
    text = " ".join((message.text or search_text(body_to_read(message))).split())
    return text if len(text) <= PREVIEW_LENGTH else text[: PREVIEW_LENGTH - 1] + "…"


def _parents(places: Iterable[int], origins: Mapping[int, int | None]) -> dict[int, int | None]:
    ordered = sorted(places)

    above_lane: dict[int, int | None] = {}

    def nearest(place: int | None) -> int | None:
        emptied: list[int] = []
        found: int | None = None
        while place is not None:
            lane = lane_of(place)
            index = bisect_right(ordered, place) - 1
            if index >= 0 and ordered[index] > before_first(lane):
                found = ordered[index]
                break
            if lane in above_lane:
                found = above_lane[lane]
                break
            emptied.append(lane)
            place = origins[lane]
        # Many lanes may hang below the same emptied ones: each is walked through once.
        above_lane.update(dict.fromkeys(emptied, found))
        return found

    return {place: nearest(place - 1) for place in ordered}
