"""What a docstring says about a function and its parameters."""

from __future__ import annotations

import inspect

import pytest

from leafward.tools.docstrings import read_docstring

GOOGLE = """
    Find files.

    Looks in all folders.

    Args:
        query (str, optional): What to look for:
            words or a phrase.
        limit: How many.
        **more: Other filters.

    Returns:
        The names.

    Raises:
        OSError: when the disk is gone.

    Note that links are not followed.
"""
NUMPY = """
    Find files.

    Looks in all folders.

    Parameters
    ----------
    query : str, optional
        What to look for:
        words or a phrase.
    limit
        How many.
    **more
        Other filters.

    Returns
    -------
    list[str]
        The names.
"""
REST = """
    Find files.

    Looks in all folders.

    :param str query: What to look for:
        words or a phrase.
    :param limit: How many.
    :type limit: int
    :param more: Other filters.
    :returns: The names.
    :raises OSError: when the disk is gone.
"""


@pytest.mark.parametrize(
    ("docstring", "after"),
    [(GOOGLE, "\n\nNote that links are not followed."), (NUMPY, ""), (REST, "")],
    ids=["google", "numpy", "rest"],
)
def test_text_and_parameters_are_found(docstring: str, after: str) -> None:
    found = read_docstring(inspect.cleandoc(docstring))

    assert found.text == "Find files.\n\nLooks in all folders." + after
    assert found.parameters == {
        "query": "What to look for: words or a phrase.",
        "limit": "How many.",
        "more": "Other filters.",
    }


def test_prose_stays_prose() -> None:
    text = "Note: this is slow.\n\nFor example: a list\n- of: things\n\nArgs are not described here."

    assert read_docstring(text) == (text, {})


def test_an_empty_docstring_says_nothing() -> None:
    assert read_docstring("") == ("", {})


def test_several_names_share_a_text() -> None:
    numpy = "Add.\n\nParameters\n----------\na, b : int\n    A number.\n"

    assert read_docstring(numpy).parameters == {"a": "A number.", "b": "A number."}
