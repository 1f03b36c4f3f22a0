"""Who does the tasks: clients of language models, and simulated agents."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from zoo.agents.llm import AgentProfile, LLMClient, OpenAICompatClient
from zoo.errors import ZooError, check_choice
from zoo.skills_bench.simulated import SimulatedProgrammer

CLIENTS = ("simulated", "openai", "local", "tiny")


@dataclass(frozen=True)
class AgentArgs:
    """One agent of the benchmark.

    Attributes:
        name: In the tables.
        client: "openai", any server that speaks its protocol; "local", a model in this process;
            "tiny", a small model that is trained on a few of the embedded tasks when it is first
            asked; or "simulated", whose competence is known.
        model: Name on the server, or hub id or folder of a local one.
        base_url: Of the server.
        api_key_env: Environment variable with the server's key; ``None`` for servers without.
        temperature: Of sampling.
        max_tokens: Of a reply.
        profile: Of a simulated agent: the fields of :class:`~zoo.agents.llm.AgentProfile`.
    """

    name: str
    client: str = "simulated"
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = "OPENAI_API_KEY"
    temperature: float = 0.7
    max_tokens: int = 2048
    profile: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("client", self.client, CLIENTS)
        if not self.name:
            raise ZooError("An agent needs a name.")
        if self.client == "openai" and not (self.model and self.base_url):
            raise ZooError(f"Agent '{self.name}': client 'openai' needs model and base_url.")
        if self.client == "local" and not self.model:
            raise ZooError(f"Agent '{self.name}': client 'local' needs a model, hub id or folder.")
        if self.client == "simulated":
            self.to_profile()

    def to_profile(self) -> AgentProfile:
        """The simulated agent's.

        Raises:
            ZooError: For an unknown field, or no probability.
        """
        known = set(AgentProfile.__dataclass_fields__) - {"name"}
        for key in self.profile:
            check_choice(f"agent '{self.name}', profile", key, sorted(known))
        return AgentProfile(self.name, **self.profile)


# Three who differ in what they know without help, in how much they take from a skill, and in how
# easily long texts distract them. "plain" are tasks whose instruction says all.
SIMULATED = (
    {"default": 0.30, "uptake": 0.85, "distraction": 0.4, "competence": {"plain": 0.97}},
    {"default": 0.20, "uptake": 0.70, "distraction": 0.5, "competence": {"plain": 0.95}},
    {"default": 0.45, "uptake": 0.90, "distraction": 0.3, "competence": {"plain": 0.98}},
)
DEFAULT_AGENTS = tuple(
    asdict(AgentArgs(name, profile=profile))
    for name, profile in zip(("steady", "hasty", "expert"), SIMULATED, strict=True)
)


def make_client(agent: AgentArgs, cache_dir: str | None = None) -> LLMClient:
    """The client of an agent.

    Args:
        agent: Which.
        cache_dir: For a server's replies that are certain to recur.
    """
    if agent.client == "openai":
        assert agent.base_url is not None
        assert agent.model is not None
        return OpenAICompatClient(
            agent.base_url, agent.model, agent.api_key_env, cache_dir=cache_dir
        )
    if agent.client == "local":
        from zoo.agents.llm.local import LocalClient

        assert agent.model is not None
        return LocalClient(agent.model)
    if agent.client == "tiny":
        from zoo.skills_bench.tiny import tiny_client

        return tiny_client()
    return SimulatedProgrammer(agent.to_profile())
