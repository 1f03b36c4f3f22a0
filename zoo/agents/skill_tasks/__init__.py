"""Tasks that come with skills: read, admitted, and described by numbers."""

from zoo.agents.skill_tasks.admission import admit as admit
from zoo.agents.skill_tasks.admission import leaks as leaks
from zoo.agents.skill_tasks.features import FEATURES as FEATURES
from zoo.agents.skill_tasks.features import features as features
from zoo.agents.skill_tasks.outcomes import Outcome as Outcome
from zoo.agents.skill_tasks.outcomes import lift_rows as lift_rows
from zoo.agents.skill_tasks.outcomes import read_outcomes as read_outcomes
from zoo.agents.skill_tasks.outcomes import write_outcomes as write_outcomes
from zoo.agents.skill_tasks.task import SkillTask as SkillTask
from zoo.agents.skill_tasks.task import embedded_tasks as embedded_tasks
from zoo.agents.skill_tasks.task import read_task as read_task
from zoo.agents.skill_tasks.task import read_tasks as read_tasks
