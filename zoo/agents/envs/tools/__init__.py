"""Function calling: thirty executable tools, generated tasks, and published benchmarks."""

from zoo.agents.envs.tools.calls import Call as Call
from zoo.agents.envs.tools.calls import CallError as CallError
from zoo.agents.envs.tools.calls import parse_calls as parse_calls
from zoo.agents.envs.tools.env import ToolEnv as ToolEnv
from zoo.agents.envs.tools.env import execute as execute
from zoo.agents.envs.tools.env import state_diff as state_diff
from zoo.agents.envs.tools.readers import BfclEnv as BfclEnv
from zoo.agents.envs.tools.readers import bfcl_tasks as bfcl_tasks
from zoo.agents.envs.tools.readers import tau2_tasks as tau2_tasks
from zoo.agents.envs.tools.tasks import tool_tasks as tool_tasks
from zoo.agents.envs.tools.toolbox import TOOLS as TOOLS
from zoo.agents.envs.tools.toolbox import ToolError as ToolError
