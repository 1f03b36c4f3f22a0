"""The README's commands and examples are those of this version."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import readme_table
from zoo.cli.main import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.partition(" #")[0].strip()
    for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
]
HUB = [c for c in COMMANDS if re.match(r"zoo (push|pull|check|export) ", c)]
FITS = [c for c in COMMANDS if re.match(r"zoo (fit|test|predict) ", c)]


def test_there_are_two_set_up_commands():
    setup = [c for c in COMMANDS if c.startswith("pip install")]
    assert [c.partition("&&")[2].strip() for c in setup] == [
        "zoo fit --config zoo/degbins.yaml",
        "pytest",
    ]


@pytest.mark.parametrize("command", FITS)
def test_command_parses(command, monkeypatch):
    """All but the checkpoints, which are a reader's own."""
    monkeypatch.chdir(ROOT)
    words = shlex.split(command)[1:]
    if "--ckpt_path" in words:
        at = words.index("--ckpt_path")
        del words[at : at + 2]
    with pytest.raises(SystemExit) as stop:
        main([*words, "--print_config"])
    assert stop.value.code in (0, None)


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if re.match(r"zoo (push|pull|check|ex)", c)]
)
def test_hub_command_has_these_options(command):
    from zoo.cli.hub import _parser

    _parser().parse_args(shlex.split(command)[1:])


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
def test_yaml_example_is_a_config(example, tmp_path):
    (tmp_path / "mine.yaml").write_text(example)
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--config", "degbins", "--config", "mine.yaml", "--print_config"])
    assert stop.value.code in (0, None)


@pytest.mark.slow
def test_python_example_runs(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "my-degbins/model.safetensors").is_file()


def test_table_is_that_of_the_cards():
    section = re.search(r"<!-- methods:begin -->\n(.*?)<!-- methods:end -->", README, re.DOTALL)
    assert section
    assert section[1] == readme_table()
