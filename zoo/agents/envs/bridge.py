"""An environment that runs in another Python, for packages whose pins don't fit this one."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
from pathlib import Path
from typing import Any

from zoo.agents.envs.base import Obs, State, Step, Task
from zoo.errors import ZooError

SERVER = Path(__file__).with_name("bridge_server.py")


class HttpEnvBridge:
    """An environment behind HTTP on this machine.

    >>> env = HttpEnvBridge.start("/opt/appworld/bin/python", "my_appworld:make_env")

    Args:
        port: Of a running ``bridge_server``.
        token: That it printed.
        timeout_s: Of a request.
    """

    def __init__(self, port: int, token: str, timeout_s: float = 300.0) -> None:
        self._token, self._process = token, None
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)

    @classmethod
    def start(
        cls,
        python: str,
        factory: str,
        folder: str | None = None,
        environment: dict[str, str] | None = None,
        timeout_s: float = 300.0,
    ) -> HttpEnvBridge:
        """Starts a server in another Python; ``close`` ends it.

        Args:
            python: Of the other virtual environment.
            factory: ``module:function`` that makes the environment there.
            folder: In which it starts, and finds modules.
            environment: Its environment variables; this process's if not given.
            timeout_s: Of a request.

        Raises:
            ZooError: If it does not start.
        """
        try:
            process = subprocess.Popen(
                [python, str(SERVER), factory],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=environment,
                text=True,
            )
        except OSError as error:
            raise ZooError(f"{python} can't be started: {error.strerror}.") from None
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            where = json.loads(line)
            bridge = cls(where["port"], where["token"], timeout_s)
        except (ValueError, KeyError, TypeError):
            _, errors = process.communicate()
            last = (errors.strip().split("\n") or [""])[-1]
            raise ZooError(f"{python} did not serve '{factory}': {last}") from None
        bridge._process = process  # type: ignore[assignment]
        return bridge

    def _ask(self, what: str, **body: Any) -> Any:
        headers = {"X-Token": self._token, "Content-Type": "application/json"}
        try:
            self._connection.request("POST", f"/{what}", json.dumps(body), headers)
            answer = json.loads(self._connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            raise ZooError(f"The environment's server did not answer: {error!r}.") from None
        if "error" in answer:
            raise ZooError(f"The environment's server answered: {answer['error']}")
        return answer["result"]

    def reset(self, task: Task) -> Obs:
        """Begins a task."""
        return Obs(**self._ask("reset", task=task.to_dict()))

    def step(self, action: str) -> Step:
        """Takes one action."""
        obs, reward, done, info = self._ask("step", action=action)
        return Step(Obs(**obs), reward, done, {"success": False, "valid": True, **info})

    def close(self) -> None:
        """Closes the environment, and ends its server if ``start`` started it."""
        process: Any = self._process
        if process is None:
            self._connection.close()
            return
        with contextlib.suppress(ZooError):
            self._ask("close")
        self._connection.close()
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()
        self._process = None

    def vocabulary(self) -> list[str]:
        """Of the environment."""
        return list(self._ask("vocabulary"))

    def verify(self, task: Task, state: State) -> bool:
        """Whether a state solves a task, by the environment."""
        return bool(self._ask("verify", task=task.to_dict(), state=state))

    def state_dict(self) -> State:
        """Of the environment."""
        return dict(self._ask("state_dict"))

    def load_state_dict(self, state: State) -> None:
        """Goes back to a state."""
        self._ask("load_state_dict", state=state)
