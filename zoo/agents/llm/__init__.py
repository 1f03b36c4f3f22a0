"""Language models to talk to: in this process, behind a server, or simulated."""

from zoo.agents.llm.base import ClientError as ClientError
from zoo.agents.llm.base import LLMClient as LLMClient
from zoo.agents.llm.base import Reply as Reply
from zoo.agents.llm.base import Request as Request
from zoo.agents.llm.base import Usage as Usage
from zoo.agents.llm.openai_compat import ClientArgs as ClientArgs
from zoo.agents.llm.openai_compat import OpenAICompatClient as OpenAICompatClient
from zoo.agents.llm.prompts import prompt_versions as prompt_versions
from zoo.agents.llm.prompts import render_prompt as render_prompt
from zoo.agents.llm.scripted import AgentProfile as AgentProfile
from zoo.agents.llm.scripted import ScriptedClient as ScriptedClient
from zoo.agents.llm.scripted import SimulatedAgentClient as SimulatedAgentClient


def __getattr__(name: str) -> object:
    if name == "LocalClient":  # imports torch
        from zoo.agents.llm.local import LocalClient

        return LocalClient
    raise AttributeError(name)
