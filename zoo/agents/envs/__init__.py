"""Worlds for language agents: text in, text out, and a verdict from the world's own state."""

from zoo.agents.envs.base import Env as Env
from zoo.agents.envs.base import Obs as Obs
from zoo.agents.envs.base import State as State
from zoo.agents.envs.base import Step as Step
from zoo.agents.envs.base import Task as Task
from zoo.agents.envs.base import VectorEnv as VectorEnv
from zoo.agents.envs.base import VectorStep as VectorStep
from zoo.agents.envs.base import check_disjoint as check_disjoint
from zoo.agents.envs.base import draw_tasks as draw_tasks
from zoo.agents.envs.base import split_seeds as split_seeds
from zoo.agents.envs.household import HouseholdEnv as HouseholdEnv
from zoo.agents.envs.household import household_tasks as household_tasks
from zoo.agents.envs.shop import ShopEnv as ShopEnv
from zoo.agents.envs.shop import WebShopEnv as WebShopEnv
from zoo.agents.envs.shop import shop_tasks as shop_tasks
from zoo.agents.envs.sokoban import SokobanEnv as SokobanEnv
from zoo.agents.envs.sokoban import SokobanVectorEnv as SokobanVectorEnv
from zoo.agents.envs.sokoban import boxoban_tasks as boxoban_tasks
from zoo.agents.envs.sokoban import sokoban_tasks as sokoban_tasks
from zoo.agents.envs.tools import ToolEnv as ToolEnv
from zoo.agents.envs.tools import tool_tasks as tool_tasks
from zoo.agents.envs.workspace import SandboxEnv as SandboxEnv
from zoo.agents.envs.workspace import harbor_tasks as harbor_tasks
