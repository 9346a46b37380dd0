"""How a session is set up: its blocks, its prompt, its compaction. Sessions and managers share these builder calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self, cast

from leafward.core.callables import is_async
from leafward.core.errors import ConfigurationError
from leafward.core.ids import check_id
from leafward.core.tokens import TokenCounter
from leafward.sessions.user_functions import TIMEOUT_S

if TYPE_CHECKING:
    from leafward.core.compaction import CompactFunction

    # Loaded with the first block: many sessions have none.
    from leafward.sessions.providers import PromptProviderLike, ProviderLike, Source

ErrorHandler = Callable[[Exception], object]
"""`fn(error)`, plain or async."""


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """How one context block is set up."""

    label: str
    description: str | None = None
    max_tokens: int | None = None
    provider: ProviderLike | None = None
    shared: bool = False
    timeout: float = TIMEOUT_S

    def __post_init__(self) -> None:
        check_id("block label", self.label)
        if self.description is not None and not isinstance(self.description, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"the description of block {self.label!r} is text, not {self.description!r}")
        limit = self.max_tokens
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"max_tokens of block {self.label!r} is a number of at least 1, not {limit!r}")
        seconds = self.timeout
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not seconds > 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"timeout of block {self.label!r} is a number of seconds above 0, not {seconds!r}")

    @property
    def static_text(self) -> str | None:
        """The text, if the program fixes it."""
        from leafward.sessions.providers import fixed_text

        return fixed_text(self.provider)


@dataclass(frozen=True, slots=True)
class Block:
    """A configured block and where its content comes from."""

    config: ContextConfig
    source: Source


@dataclass(slots=True)
class Setup:
    """Everything that builder calls set."""

    blocks: dict[str, Block] = field(default_factory=dict[str, Block])
    cached_prompt: bool = False
    prompt_provider: object = None
    on_compaction: CompactFunction | None = None
    compact_after: int | None = None
    compact_in_background: bool = False
    token_counter: TokenCounter | None = None
    on_compaction_error: ErrorHandler | None = None
    has_agent_compaction: bool = False
    """Whether an agent compacts its sessions, so that they are not to do it themselves."""

    def copy(self) -> Setup:
        """Return the same for another handle, which may then add blocks of its own."""
        return replace(self, blocks=dict(self.blocks))

    def add(self, config: ContextConfig) -> Block:
        """Add a block.

        Raises:
            ConfigurationError: there is one of that label, or the provider has no method that a block can use.
        """
        if config.label in self.blocks:
            raise ConfigurationError(
                f"there is a block {config.label!r} already: remove_context it first, or take another label"
            )
        from leafward.sessions.providers import Source, StoredContextProvider

        provider = StoredContextProvider() if config.provider is None else config.provider
        block = self.blocks[config.label] = Block(config, Source(config.label, provider, config.timeout))
        return block

    def check_compacts_itself(self) -> None:
        """Refuse a second compaction beside that of an agent."""
        if self.has_agent_compaction:
            raise ConfigurationError(
                "the agent compacts this session: leave on_compaction() and compact_after() out, "
                "or make the agent without compaction="
            )

    def check(self) -> None:
        """Raise what only shows when all is set."""
        if self.compact_after is None:
            return
        if self.on_compaction is None:
            raise ConfigurationError(
                "compact_after needs a compaction function: add .on_compaction(create_compact_function(summarize=...))"
            )
        check_threshold = getattr(self.on_compaction, "check_threshold", None)
        if check_threshold is not None:
            check_threshold(self.compact_after)


class Configurable(ABC):
    """The builder calls; each returns the same object."""

    _setup: Setup

    @abstractmethod
    def _check_unused(self, advice: str) -> None:
        """Raise when it is too late to set something up."""

    def with_context(
        self,
        label: str,
        *,
        description: str | None = None,
        max_tokens: int | None = None,
        provider: ProviderLike | None = None,
        shared: bool = False,
        timeout: float = TIMEOUT_S,
    ) -> Self:
        """Add a context block: a section of the system prompt, which its provider fills.

        Without a provider the block is writable and kept in the store, for this session alone or, `shared`, for all
        sessions of this user with this agent. A plain text is a read-only block. `max_tokens` limits what is written to
        it, or each of its entries; `timeout` is how many seconds the provider has to answer.

        Raises:
            ConfigurationError: the label is taken, the session is in use already, or the provider has no method that a
                block can use.
        """
        self._check_unused(f"add_context({label!r}, ...)")
        self._setup.add(ContextConfig(label, description, max_tokens, provider, shared, timeout))
        return self

    def with_cached_prompt(self, provider: PromptProviderLike | None = None) -> Self:
        """Keep the frozen system prompt in the store, or where `provider` keeps it with `get()` and `set(text)`.

        Raises:
            ConfigurationError: the provider lacks one of them, or would mix the prompts of a manager's sessions.
        """
        self._check_unused("with_cached_prompt() before it")
        if provider is not None:
            self._check_prompt_provider(provider)
        self._setup.cached_prompt = True
        self._setup.prompt_provider = provider
        return self

    def _check_prompt_provider(self, provider: object) -> None:
        from leafward.sessions.providers import find_methods

        if "set" not in find_methods(provider, "the provider of the cached prompt"):
            raise ConfigurationError("the provider of the cached prompt needs get() and set(text)")

    def on_compaction(self, fn: CompactFunction) -> Self:
        """Have `fn` choose and summarise what `compact()` and `compact_after` replace by a summary."""
        self._check_unused("on_compaction() before it")
        self._setup.check_compacts_itself()
        if not callable(fn):
            raise ConfigurationError(f"on_compaction takes a function, not {fn!r}")
        self._setup.on_compaction = fn
        return self

    def compact_after(
        self, threshold: int, token_counter: TokenCounter | None = None, *, background: bool = False
    ) -> Self:
        """Compact whenever an append makes prompt and history exceed `threshold` tokens.

        It runs inside that append, after its message is stored; with `background=True` in a task that goes on when the
        append has returned. Closing the store cancels that task, and the next append over the threshold starts another.
        An `upsert_message` compacts, too; its message stays out of the summary as long as it is the newest one.
        """
        self._check_unused("compact_after() before it")
        self._setup.check_compacts_itself()
        if not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"compact_after takes a number of tokens of at least 1, not {threshold!r}")
        self._setup.compact_after = threshold
        self._setup.compact_in_background = background
        if token_counter is not None:
            self._set_counter(token_counter)
        return self

    def on_compaction_error(self, fn: ErrorHandler) -> Self:
        """Have `fn(error)` called when an automatic compaction failed or left more than the threshold."""
        self._check_unused("on_compaction_error() before it")
        if not callable(fn):
            raise ConfigurationError(f"on_compaction_error takes a function, not {fn!r}")
        self._setup.on_compaction_error = fn
        return self

    def _set_counter(self, counter: TokenCounter) -> None:
        if not callable(counter) or is_async(counter):
            raise ConfigurationError(f"token_counter takes a plain function of a message, not {counter!r}")
        self._setup.token_counter = counter

    def _apply(
        self,
        context: Iterable[ContextConfig | Mapping[str, Any]],
        cached_prompt: bool | PromptProviderLike | None,
        on_compaction: CompactFunction | None,
        compact_after: int | None,
        token_counter: TokenCounter | None,
        on_compaction_error: ErrorHandler | None,
    ) -> None:
        """Set what was given to the constructor."""
        for item in context:
            self._setup.add(as_config(item))
        if cached_prompt is True:
            self.with_cached_prompt()
        elif cached_prompt is not False and cached_prompt is not None:
            self.with_cached_prompt(cached_prompt)
        if on_compaction is not None:
            self.on_compaction(on_compaction)
        if compact_after is not None:
            self.compact_after(compact_after)
        if token_counter is not None:
            self._set_counter(token_counter)
        if on_compaction_error is not None:
            self.on_compaction_error(on_compaction_error)


def as_config(item: object) -> ContextConfig:
    """Return how a block is set up, given as a dict or as that.

    Raises:
        ConfigurationError: it is something else.
    """
    if isinstance(item, ContextConfig):
        return item
    if not isinstance(item, Mapping):
        raise ConfigurationError(f"a context block is set up by a dict or a ContextConfig, not {item!r}")
    given, known = cast(Mapping[str, Any], item), [one.name for one in fields(ContextConfig) if one.init]
    if wrong := [key for key in given if key not in known]:
        raise ConfigurationError(f"a context block has no {wrong[0]!r}; its keys are {', '.join(known)}")
    try:
        return ContextConfig(**given)
    except TypeError as error:
        raise ConfigurationError(f"a context block is not set up like this: {error}") from None
