"""Prompts, each a Jinja2 file beside this one (or in a method's own package) with a version.

A file begins with ``{# version: 3 #}``. Values are put in as they are: what stands in a skill or an
observation is never taken for a template.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from zoo.errors import ZooError, did_you_mean

VERSION = re.compile(r"\{#-? version: (\d+) -?#\}")
PACKAGE = __name__


@cache
def _source(name: str, package: str) -> str:
    folder = files(package)
    path = folder.joinpath(f"{name}.jinja")
    if not path.is_file():
        known = [p.name.removesuffix(".jinja") for p in folder.iterdir() if ".jinja" in p.name]
        raise ZooError(f"There is no prompt '{name}' in {package}.{did_you_mean(name, known)}")
    return path.read_text(encoding="utf-8")


@cache
def _template(name: str, package: str) -> Any:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # plain text, no HTML
    )
    return environment.from_string(_source(name, package))


def render_prompt(name: str, package: str = PACKAGE, **values: Any) -> str:
    """A prompt with its values.

    Args:
        name: Of the file, without its ending.
        package: In which it lies.
        values: All that it names.

    Raises:
        ZooError: If there is no such prompt, or a value is missing.
    """
    from jinja2 import TemplateError

    try:
        return str(_template(name, package).render(**values)).strip()
    except TemplateError as error:
        raise ZooError(f"Prompt '{name}' of {package}: {error}.") from None


def prompt_versions(package: str = PACKAGE) -> dict[str, int]:
    """The version of each prompt of a package, to be kept with a checkpoint.

    Raises:
        ZooError: If a file names none.
    """
    found = {}
    for path in sorted(files(package).iterdir(), key=lambda p: p.name):
        if path.name.endswith(".jinja"):
            name = path.name.removesuffix(".jinja")
            match = VERSION.match(_source(name, package))
            if match is None:
                raise ZooError(f"Prompt '{name}' of {package} does not begin with its version.")
            found[name] = int(match[1])
    return found
