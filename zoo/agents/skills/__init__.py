"""Agent skills: folders of instructions that an agent reads when a task calls for them.

A skill is ``<name>/SKILL.md``, YAML front matter and Markdown, with files beside it if need be, as
at https://agentskills.io. Skills come from strangers or from the agent itself: they are data. Here
they are read, checked, searched, changed under a log, and quoted as data; what runs a skill's
scripts is the sandbox.

    from zoo.agents.skills import Skill, SkillLibrary

    library = SkillLibrary("library")
    library.add(Skill("heat-food", "Heats food with the microwave.", "find it; heat it; put it"))
    library.retrieve("put a hot apple on the table", k=3)
"""

from zoo.agents.skills.library import SkillLibrary as SkillLibrary
from zoo.agents.skills.library import Stats as Stats
from zoo.agents.skills.library import render as render
from zoo.agents.skills.skill import Skill as Skill
from zoo.agents.skills.skill import SkillError as SkillError
from zoo.agents.skills.skill import load_skill as load_skill
from zoo.agents.skills.skill import parse_skill as parse_skill
from zoo.agents.skills.skill import slug as slug
