"""The agents of the examples, run as programs with the real SDKs against a stand-in for the endpoint."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leafward import Message, Session, open_store, user
from tests.examples.stub import Call, Stub, stub_endpoint

ROOT = Path(__file__).parent.parent.parent
NOTE = Call("call_1", "set_context", {"label": "memory", "content": "Takes coffee black."})


def openai_system(request: dict[str, Any]) -> str:
    assert request["messages"][0]["role"] == "system"
    return request["messages"][0]["content"]


@dataclass(frozen=True)
class Sdk:
    """An example, and where its requests have what."""

    program: Path
    system: Callable[[dict[str, Any]], str]
    spoken: Callable[[dict[str, Any]], list[dict[str, Any]]]
    tool_names: Callable[[dict[str, Any]], list[str]]


OPENAI = Sdk(
    ROOT / "examples" / "agent_openai.py",
    system=openai_system,
    spoken=lambda request: request["messages"][1:],
    tool_names=lambda request: [tool["function"]["name"] for tool in request["tools"]],
)
STREAMING = Sdk(
    ROOT / "examples" / "streaming_openai.py", OPENAI.system, spoken=OPENAI.spoken, tool_names=OPENAI.tool_names
)
ANTHROPIC = Sdk(
    ROOT / "examples" / "agent_anthropic.py",
    system=lambda request: request["system"],
    spoken=lambda request: request["messages"],
    tool_names=lambda request: [tool["name"] for tool in request["tools"]],
)


REACT = Sdk(ROOT / "examples" / "react_openai.py", OPENAI.system, spoken=OPENAI.spoken, tool_names=OPENAI.tool_names)


@pytest.fixture(params=[OPENAI, STREAMING, ANTHROPIC], ids=["openai", "streaming", "anthropic"])
def sdk(request: pytest.FixtureRequest) -> Sdk:
    return request.param


@pytest.fixture
def stub() -> Generator[Stub]:
    with stub_endpoint() as stub:
        yield stub


def run_agent(sdk: Sdk, stub: Stub, home: Path, *words: str) -> str:
    """Run an example in a process of its own and return what it printed."""
    done = start_agent(sdk, stub, home, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def start_agent(sdk: Sdk, stub: Stub, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    keys = {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
    where = {"OPENAI_BASE_URL": f"{stub.url}/v1", "ANTHROPIC_BASE_URL": stub.url}
    return subprocess.run(
        [sys.executable, str(sdk.program), *words],
        cwd=home,
        env=kept | keys | where,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("words", [(), ("monday", "Hello?", "more")])
def test_an_agent_called_wrongly_says_how_to_call_it(sdk: Sdk, tmp_path: Path, words: tuple[str, ...]) -> None:
    command = [sys.executable, str(sdk.program), *words]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert done.stderr.strip().endswith(f": python {sdk.program.name} SESSION QUESTION")
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_an_agent_remembers_in_a_new_process_and_in_a_new_conversation(sdk: Sdk, stub: Stub, tmp_path: Path) -> None:
    stub.script += [[NOTE], "Noted.", "Black.", "Black, as ever."]

    assert run_agent(sdk, stub, tmp_path, "chat-1", "I take my coffee black.") == "Noted."
    assert run_agent(sdk, stub, tmp_path, "chat-1", "How do I take my coffee?") == "Black."
    assert run_agent(sdk, stub, tmp_path, "chat-2", "Coffee, please.") == "Black, as ever."

    first, second, next_process, new_chat = stub.requests
    assert sdk.tool_names(first) == ["set_context"]
    assert "Written to memory" in str(sdk.spoken(second)[-1])
    # The request grows at its end only, so a provider's prompt cache stays warm, across processes too.
    assert sdk.system(first) == sdk.system(second) == sdk.system(next_process)
    assert sdk.spoken(next_process)[: len(sdk.spoken(second))] == sdk.spoken(second)
    assert "How do I take my coffee?" in str(sdk.spoken(next_process)[-1])
    # A new conversation starts with what was noted in another one.
    assert "Takes coffee black." not in sdk.system(first)
    assert "Takes coffee black." in sdk.system(new_chat)
    assert [message["role"] for message in sdk.spoken(new_chat)] == ["user"]


def test_a_model_that_calls_wrongly_is_told_and_can_mend_it(sdk: Sdk, stub: Stub, tmp_path: Path) -> None:
    wrong = [Call("call_0", "set_context", {"label": "soul", "content": "Be rude."}), Call("call_9", "sing", {})]
    stub.script += [wrong, [NOTE], "Noted."]

    assert run_agent(sdk, stub, tmp_path, "chat-1", "I take my coffee black.") == "Noted."

    told = str(sdk.spoken(stub.requests[1]))
    assert 'Error: block "soul" is readonly. Blocks you can write: memory.' in told.replace("\\", "")
    assert "Error: there is no tool 'sing'. Call one of: set_context." in told.replace("\\'", "'")


async def test_an_agent_that_died_during_a_call_goes_on(sdk: Sdk, stub: Stub, tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": NOTE.id, "name": NOTE.name, "input": NOTE.arguments}
    async with open_store(f"sqlite:///{tmp_path}/agent.db") as store:
        session = Session(store, "chat-1", user_id="alice")
        await session.append_messages([user("I take my coffee black."), Message("assistant", [call])])
    stub.script += ["Where were we?"]

    assert run_agent(sdk, stub, tmp_path, "chat-1", "Are you there?") == "Where were we?"

    async with open_store(f"sqlite:///{tmp_path}/agent.db") as store:
        stored = await Session(store, "chat-1", user_id="alice").get_history()
    assert [message.role for message in stored] == ["user", "assistant", "user", "assistant"]


async def test_a_stream_that_breaks_leaves_the_text_that_was_shown(stub: Stub, tmp_path: Path) -> None:
    stub.script += ["Take the train at nine."]
    stub.breaks_after = 4

    done = start_agent(STREAMING, stub, tmp_path, "chat-1", "When do we leave?")

    assert done.returncode != 0
    assert done.stdout == "Take the train "
    async with open_store(f"sqlite:///{tmp_path}/agent.db") as store:
        stored = await Session(store, "chat-1", user_id="alice").get_history()
    assert [message.text for message in stored] == ["When do we leave?", "Take the train "]


async def test_a_stream_that_breaks_within_a_call_stores_no_part_of_the_call(stub: Stub, tmp_path: Path) -> None:
    stub.script += [[NOTE], "Noted."]
    stub.breaks_after = 2

    assert start_agent(STREAMING, stub, tmp_path, "chat-1", "I take my coffee black.").returncode != 0
    stub.breaks_after = None

    assert run_agent(STREAMING, stub, tmp_path, "chat-1", "Are you there?") == "Noted."
    assert [message["role"] for message in STREAMING.spoken(stub.requests[1])] == ["user", "user"]


def test_an_agent_with_a_model_of_its_own_calls_tools_and_remembers_in_a_new_process(
    stub: Stub, tmp_path: Path
) -> None:
    stub.script += [[Call("call_1", "forecast", {"city": "Kyoto"})], "Sunny in Kyoto.", "I said: sunny."]

    assert run_agent(REACT, stub, tmp_path, "chat-1", "How is Kyoto?") == "Sunny in Kyoto."
    assert run_agent(REACT, stub, tmp_path, "chat-1", "Pardon?") == "I said: sunny."

    first, second, next_process = (request["messages"] for request in stub.requests)
    assert REACT.tool_names(stub.requests[0]) == ["forecast"]
    assert second[-1]["content"] == "Kyoto: sunny"
    assert second[: len(first)] == first
    assert [message["content"] for message in next_process[-2:]] == ["Sunny in Kyoto.", "Pardon?"]


async def test_a_question_whose_stream_broke_is_asked_again_and_stored_once(stub: Stub, tmp_path: Path) -> None:
    stub.script += ["Take the train at nine."] * 4
    stub.breaks_after = 4

    done = start_agent(REACT, stub, tmp_path, "chat-1", "When do we leave?")
    assert "ModelError: the model failed" in done.stderr
    assert len(stub.requests) == 3, "the agent asked twice again"
    stub.breaks_after = None

    assert run_agent(REACT, stub, tmp_path, "chat-1", "When do we leave?") == "Take the train at nine."
    async with open_store(f"sqlite:///{tmp_path}/agent.db") as store:
        stored = await Session(store, "chat-1", user_id="alice", agent_id="helper").get_history()
    assert [message.text for message in stored] == ["When do we leave?", "Take the train at nine."]


def test_the_guide_to_models_shows_the_example_that_is_run() -> None:
    guide = (ROOT / "docs" / "guides" / "models.md").read_text(encoding="utf-8")

    assert REACT.program.read_text(encoding="utf-8") in guide


def test_the_guide_shows_the_streaming_example_that_is_run() -> None:
    guide = (ROOT / "docs" / "guides" / "streaming.md").read_text(encoding="utf-8")

    assert STREAMING.program.read_text(encoding="utf-8") in guide


async def test_a_model_is_sent_the_id_of_a_summary_it_may_look_under() -> None:
    async with open_store("memory://") as store:
        session = Session(store)
        await session.append_messages([user("One.", id="1"), user("Two.", id="2"), user("Three.", id="3")])
        await session.add_compaction("They counted.", "1", "2")

        (summary_id,) = await session.get_summary_ids()
        tools = await session.tools()

    assert summary_id in str(tools.to_openai())
    assert summary_id in str(tools.to_anthropic())


def test_the_agent_of_the_readme_remembers_in_a_second_process(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## An agent in ten lines\n")[2]
    program, output = (section.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("python", "console"))
    lines = [line for line in program.splitlines() if line]

    said = [
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]

    assert len(lines) <= 10
    assert said == re.findall(r"^(?!\$).+\n", output, re.MULTILINE) == ["I know 1 messages.\n", "I know 3 messages.\n"]


def test_the_guide_shows_the_example_that_is_run() -> None:
    guide = (ROOT / "docs" / "guides" / "agent-loop.md").read_text(encoding="utf-8")

    assert OPENAI.program.read_text(encoding="utf-8") in guide


def test_the_loop_has_fifteen_lines_and_is_the_one_that_the_guide_explains() -> None:
    guide = (ROOT / "docs" / "guides" / "agent-loop.md").read_text(encoding="utf-8")
    _, found, rest = OPENAI.program.read_text(encoding="utf-8").partition("async def ask")
    loop = found + rest.partition("\n\n\n")[0]

    assert found
    assert len(loop.splitlines()) <= 15
    assert loop in guide
