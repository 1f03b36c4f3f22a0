"""The commands, as typed."""

import subprocess
import sys
from pathlib import Path

import pytest

from zoo.cli.hub import COMMANDS, run
from zoo.errors import ZooError

from .roundtrip import REPO, tiny, write_run
from .server import TOKEN, Hub


@pytest.fixture
def ckpt(tmp_path: Path) -> str:
    return str(write_run(tiny(), tmp_path))


def push(ckpt: str, *more: str) -> None:
    run(["push", "degbins", "--ckpt_path", ckpt, "--repo-id", REPO, *more])


def test_push_pull_check(hub: Hub, ckpt: str, capsys: pytest.CaptureFixture[str]):
    push(ckpt, "--license", "cc-by-4.0", "--private")
    push(ckpt, "--license", "cc-by-4.0", "--private")
    run(["pull", f"{REPO}@v1"])
    first, second, folder = capsys.readouterr().out.splitlines()
    commit = hub.commits(REPO)[0].oid
    assert first == f"org/model@v1 (new, {commit[:7]})"
    assert second == f"org/model@v1 (unchanged, {commit[:7]})"
    assert Path(folder).name == commit
    assert hub.repos["models", REPO].private
    for source in (folder, REPO):
        run(["check", source])
        assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_dry_run_writes_a_folder_and_asks_nobody(hub: Hub, ckpt: str, tmp_path: Path):
    push(ckpt, "--license", "mit", "--dry-run", str(tmp_path / "built"))
    assert not hub.requests
    run(["check", str(tmp_path / "built")])


def test_push_to_a_branch(hub: Hub, ckpt: str, capsys: pytest.CaptureFixture[str]):
    push(ckpt, "--license", "mit", "--revision", "trial")
    assert capsys.readouterr().out.startswith(f"{REPO}@{hub.commits(REPO, 'trial')[0].oid} (new")


def test_push_without_a_licence_or_a_test_run(hub: Hub, ckpt: str):
    with pytest.raises(ZooError, match="No licence"):
        push(ckpt)
    (Path(ckpt).parents[1] / "metrics.json").unlink()
    with pytest.raises(ZooError, match="zoo test --ckpt_path"):
        push(ckpt, "--license", "mit")
    push(ckpt, "--license", "mit", "--allow-no-metrics")
    assert hub.commits(REPO)


def test_push_of_an_unknown_method(ckpt: str):
    with pytest.raises(ZooError, match=r"Unknown method 'degbin'\. Did you mean 'degbins'"):
        run(["push", "degbin", "--ckpt_path", ckpt, "--repo-id", REPO])


def test_a_card_is_shown_and_validated(ckpt: str, capsys: pytest.CaptureFixture[str]):
    run(["card", "DegBins", "--ckpt_path", ckpt, "--license", "MIT", "--repo-id", REPO])
    shown = capsys.readouterr().out
    assert "license: mit" in shown
    assert "| rmse | 0.03457 |" in shown
    with pytest.raises(ZooError, match="no licence 'mitt'"):
        run(["card", "degbins", "--license", "mitt"])


def test_export_from_a_checkpoint_a_folder_or_the_hub(
    hub: Hub, ckpt: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    seen = []
    monkeypatch.setattr(
        "zoo.export.export", lambda model, path, format: seen.append((model, format)) or path
    )
    push(ckpt, "--license", "mit")
    capsys.readouterr()
    for source in (ckpt, f"hf://{REPO}@v1"):
        run(["export", "degbins", "--ckpt_path", source, "--format", "torch_export"])
    assert [format for _, format in seen] == ["torch_export"] * 2
    assert capsys.readouterr().out == "degbins\n" * 2


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_neither_torch_nor_the_hub(command: str):
    code = (
        "import sys; from zoo.cli.hub import run\n"
        f"try: run([{command!r}, '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'huggingface_hub'} & set(sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert TOKEN not in shown
    assert "--token" not in shown  # it would stand in the shell's history
