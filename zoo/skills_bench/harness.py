"""The harness: a language model acts on a task's folder with four tools until it is done.

Reason and act (arXiv 2210.03629): each reply is a call, each observation the next message. What is
the same in all conditions is all of it but the block of skills.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from zoo.agents.llm import LLMClient, Reply, Usage
from zoo.agents.skill_tasks import SkillTask
from zoo.agents.skills import Skill
from zoo.agents.trajectory import Cost, Trajectory, Turn
from zoo.skills_bench.conditions import system_prompt
from zoo.skills_bench.workspace import SkillEnv

Message = dict[str, Any]


def _tool(name: str, description: str, **arguments: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    parameters = {"type": "object", "properties": properties, "required": list(arguments)}
    inner = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": inner}


TOOLS = (
    _tool("read", "Gives a file's content.", path="Below the folder."),
    _tool("write", "Writes a file.", path="Below the folder.", text="The whole content."),
    _tool("list", "Names the files."),
    _tool("run", "Runs a command in the folder, without network.", command="For the shell."),
    _tool("done", "Ends the task: the files are judged as they are."),
)


class ReActHarness:
    """Plays one task with one client.

    Args:
        client: Of the model.
        env: The folder; one task at a time.
        temperature: Of sampling.
        max_tokens: Of a reply.
        timeout_s: Seconds of a trajectory, replies and commands together.
    """

    def __init__(
        self,
        client: LLMClient,
        env: SkillEnv,
        temperature: float = 0.7,
        max_tokens: int = 2048,
        timeout_s: float = 600.0,
    ) -> None:
        self.client, self.env = client, env
        self.temperature, self.max_tokens, self.timeout_s = temperature, max_tokens, timeout_s

    def play(self, item: SkillTask, skills: Sequence[Skill], seed: int) -> Trajectory:
        """One attempt.

        Args:
            item: The task; its own skills are not looked at.
            skills: That are offered.
            seed: Of the replies.

        Returns:
            The trajectory, judged by the task's tests; ``meta`` has ``status``, "done", "steps" (no
            more were left) or "timeout", and ``tests``, whether each passed.

        Raises:
            ClientError: If the model can't be asked.
            SandboxError: If commands can't be run.
        """
        began = time.monotonic()
        with closing(self.env):
            first: Message = {"role": "user", "content": self.env.begin(item, skills)}
            if "simulation" in item.task.payload:
                first["simulation"] = item.task.payload["simulation"]
            messages: list[Message] = [{"role": "system", "content": system_prompt(skills)}, first]
            turns = [Turn(m["role"], m["content"]) for m in messages]
            usage, late = Usage(), False
            while not self.env.done and not late:
                (reply,) = self.client.chat(
                    messages,
                    tools=TOOLS,
                    temperature=self.temperature,
                    max_tokens=self.max_tokens,
                    seed=seed,
                )
                usage += reply.usage
                self._act(reply, messages, turns)
                late = time.monotonic() - began > self.timeout_s
            verdict = self.env.finish()
            status = "done" if self.env.ended else "timeout" if late else "steps"
        return Trajectory(
            item.name,
            item.task.family,
            turns,
            skills=[s.name for s in skills],
            reward=float(verdict.passed),
            success=verdict.passed,
            cost=Cost(
                usage.prompt_tokens,
                usage.completion_tokens,
                usage.calls,
                time.monotonic() - began,
            ),
            meta={"status": status, "tests": dict(verdict.tests)},
        )

    def _act(self, reply: Reply, messages: list[Message], turns: list[Turn]) -> None:
        """Carries the actions of a reply out, and adds them to the conversation."""
        calls = [
            {"id": f"call_{len(messages)}_{i}", **call.to_dict()}
            for i, call in enumerate(reply.tool_calls)
        ]
        message: Message = {"role": "assistant", "content": reply.text}
        if calls:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
                }
                for call in calls
            ]
        messages.append(message)
        turns.append(Turn("assistant", reply.text, tool_calls=calls))
        # A model without tools writes its call: after the last "Action:", or as all that it wrote.
        texts = [json.dumps(call) for call in calls]
        for number, text in enumerate(texts or [reply.text.rpartition("Action:")[2].strip("` \n")]):
            if self.env.done:
                observation = "not carried out: the task has ended"
            else:
                observation = self.env.step(text).obs.text
            answer: Message = {"role": "tool" if calls else "user", "content": observation}
            if calls:
                answer["tool_call_id"] = calls[number]["id"]
            messages.append(answer)
            turns.append(Turn(answer["role"], observation))
