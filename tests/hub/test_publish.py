"""`zoo push`: what is built, and that it becomes one commit of one repository."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import HfApi, ModelCard

from tests.toy import Toy
from zoo import DegBins
from zoo.errors import ZooError
from zoo.publish import build, publish, upload, without_secrets

from .roundtrip import (
    REPO,
    retrain,
    roundtrip,
    same,
    tiny,
    write_checkpoint,
    write_record,
    write_run,
)
from .server import TOKEN, Hub

FILES = [
    "README.md",
    "config.json",
    "figures/test_depth.png",
    "metrics.json",
    "model.safetensors",
    "reference.safetensors",
    "training.yaml",
]


@pytest.fixture
def ckpt(tmp_path: Path) -> Path:
    return write_run(tiny(), tmp_path)


@pytest.fixture
def folder(ckpt: Path, tmp_path: Path) -> Path:
    build(DegBins, ckpt, tmp_path / "built", repo_id=REPO, license="mit")
    return tmp_path / "built"


def push(ckpt: Path, **options):
    return publish(DegBins, ckpt, REPO, **{"license": "mit", **options})


def test_a_method_is_pushed_and_pulled(hub: Hub, tmp_path: Path):
    roundtrip(hub, tiny(), tmp_path)


# ---- What is built ---------------------------------------------------------------------------


def test_the_folder_holds_all_of_the_run(folder: Path):
    found = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    assert found == FILES
    assert same(DegBins.from_pretrained(folder), tiny())


def test_no_licence_no_push(hub: Hub, ckpt: Path):
    with pytest.raises(ZooError, match="No licence, no push"):
        push(ckpt, license=None)
    with pytest.raises(ZooError, match=r"no licence 'apache2'\. Did you mean 'apache-2.0'\?"):
        push(ckpt, license="apache2")
    assert not hub.requests
    push(ckpt, license="Apache-2.0")
    assert ModelCard(hub.files(REPO)["README.md"].decode()).data.license == "apache-2.0"


def test_a_checkpoint_without_test_run_is_refused(hub: Hub, ckpt: Path):
    last = write_checkpoint(tiny(tile=512), ckpt.with_name("last.ckpt"))  # not the tested one
    with pytest.raises(ZooError, match=r"no recorded test run of .*run 'zoo test --ckpt_path"):
        push(last)
    assert not hub.requests
    push(last, allow_no_metrics=True)
    assert "metrics.json" not in hub.files(REPO)
    assert not ModelCard(hub.files(REPO)["README.md"].decode()).data.eval_results


def test_the_last_of_several_tests_counts(ckpt: Path, tmp_path: Path):
    for month in ("03", "02"):
        folder = ckpt.parents[2] / f"version_{month}"
        date, metrics = f"2026-{month}-01T00:00:00+00:00", {"test_rmse": float(month)}
        write_record(tiny(), folder, ckpt, date=date, metrics=metrics)
    build(DegBins, ckpt, tmp_path / "built", repo_id=REPO, license="mit")
    record = json.loads((tmp_path / "built/metrics.json").read_text())
    assert record["metrics"] == {"test_rmse": 3.0}


def test_a_test_of_a_checkpoint_from_elsewhere_is_found(tmp_path: Path):
    """`zoo test` leaves its record below the working folder."""
    path = write_checkpoint(tiny(), tmp_path / "mail" / "attached.ckpt")
    write_record(tiny(), Path("runs/degbins/version_4"), path)
    build(DegBins, path, tmp_path / "built", repo_id=REPO, license="mit")


def test_the_test_of_other_weights_in_the_same_file_does_not_count(ckpt: Path):
    """A run that goes on overwrites `last.ckpt`."""
    write_checkpoint(tiny(bins=5), ckpt)
    with pytest.raises(ZooError, match="no recorded test run"):
        push(ckpt)


def test_a_record_of_another_class_does_not_count(ckpt: Path):
    write_record(tiny(), ckpt.parents[1], ckpt, **{"class": "Toy"})
    with pytest.raises(ZooError, match="no recorded test run"):
        push(ckpt)


def test_a_moved_run_keeps_its_record(ckpt: Path, tmp_path: Path):
    moved = ckpt.parents[3].rename(tmp_path / "elsewhere") / ckpt.relative_to(ckpt.parents[3])
    build(DegBins, moved, tmp_path / "built", repo_id=REPO, license="mit")


def test_a_checkpoint_of_another_method_is_refused(tmp_path: Path):
    path = write_checkpoint(Toy(), tmp_path / "toy.ckpt")
    with pytest.raises(ZooError, match="a checkpoint of Toy, not of DegBins"):
        push(path)


def test_a_broken_record_is_one_sentence(ckpt: Path):
    (ckpt.parents[1] / "metrics.json").write_text('{"metrics": NaN')
    with pytest.raises(ZooError, match=r"metrics\.json is no valid JSON"):
        push(ckpt)
    write_record(tiny(), ckpt.parents[1], ckpt)
    (ckpt.parents[1] / "training.yaml").write_text("a: [")
    with pytest.raises(ZooError, match=r"training\.yaml is no valid YAML"):
        push(ckpt)


def test_a_folder_with_other_things_in_it_is_left_alone(ckpt: Path, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("...")
    with pytest.raises(ZooError, match="not empty"):
        build(DegBins, ckpt, tmp_path / "mine", repo_id=REPO, license="mit")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_nothing_of_this_machine_is_published(folder: Path, ckpt: Path):
    training = yaml.safe_load((folder / "training.yaml").read_text())
    assert training["data"]["init_args"] == {"root": "nyu", "api_token": None}
    assert training["trainer"]["logger"][0]["init_args"]["url"] == "https://***host/x"
    assert json.loads((folder / "metrics.json").read_text())["checkpoint"] == ckpt.name
    everything = b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())
    for secret in (b"hunter2", b"/home/me", str(ckpt.parent).encode()):
        assert secret not in everything


def test_paths_and_secrets_in_plain_data():
    home = str(Path.home())
    given = {
        "globs": ["/data/a/*.png", "C:\\data\\b.png", "~/c", "relative/d.png"],
        "command": f"--root={home}/data",
        "hub": "hf_abcdefghijklmnop",
        "wandb_api_key": "0123",
        "lr": 0.1,
    }
    assert without_secrets(given) == {
        "globs": ["*.png", "b.png", "c", "relative/d.png"],
        "command": "--root=~/data",
        "hub": "***",
        "wandb_api_key": None,
        "lr": 0.1,
    }


def test_weights_that_do_not_come_back_are_not_published(hub: Hub, ckpt: Path):
    class Restless(DegBins):
        """Gives something else each time, whatever its weights."""

        calls = 0

        def forward(self, lr_depth, guide):
            Restless.calls += 1
            return {"depth": super().forward(lr_depth, guide)["depth"] + Restless.calls}

    Restless.__name__ = "DegBins"
    with pytest.raises(ZooError, match="output differs"):
        publish(Restless, ckpt, REPO, license="mit")
    assert not hub.requests


# ---- What is uploaded ------------------------------------------------------------------------


def test_a_push_is_one_commit_with_a_version_tag(hub: Hub, ckpt: Path):
    published = push(ckpt)
    assert published == (REPO, hub.commits(REPO)[0].oid, "v1", True)
    assert len(hub.calls("create")) == len(hub.calls("commit")) == len(hub.calls("tag")) == 1
    assert set(hub.files(REPO, "v1")) == {*FILES, ".gitattributes"}


def test_a_second_push_of_the_same_makes_no_commit_and_no_tag(hub: Hub, ckpt: Path):
    first, second = push(ckpt), push(ckpt)
    assert second == first._replace(new=False)
    assert len(hub.calls("commit")) == len(hub.calls("tag")) == 1


def test_new_weights_are_version_two_and_the_first_stays(hub: Hub, ckpt: Path):
    first = push(ckpt)
    hub.put(REPO, {"LICENSE": b"added on the hub"})
    retrain(tiny(bins=5), ckpt)
    (ckpt.parents[1] / "figures" / "test_depth.png").unlink()
    second = push(ckpt)
    assert (second.tag, second.new) == ("v2", True)
    assert "figures/test_depth.png" not in hub.files(REPO)
    assert hub.files(REPO)["LICENSE"] == b"added on the hub"
    assert json.loads(hub.files(REPO, first.tag)["config.json"])["bins"] == 4
    assert json.loads(hub.files(REPO, second.tag)["config.json"])["bins"] == 5


def test_a_push_to_a_branch_leaves_main_alone(hub: Hub, ckpt: Path):
    published = push(ckpt, branch="trial")
    assert published.tag is None
    assert "config.json" in hub.files(REPO, "trial")
    assert "config.json" not in hub.files(REPO)
    assert DegBins.from_pretrained(REPO, revision="trial").init_args()["bins"] == 4


def test_private_is_private_and_never_goes_to_a_public_repository(hub: Hub, ckpt: Path):
    push(ckpt, private=True)
    assert hub.repos["models", REPO].private
    hub.create("org/open")
    with pytest.raises(ZooError, match="org/open exists and is public"):
        publish(DegBins, ckpt, "org/open", license="mit", private=True)
    assert len(hub.commits("org/open")) == 1


def test_a_wrong_repository_name_is_refused_before_anything(hub: Hub, ckpt: Path):
    for name in ("model", "org/model@v1", "a/b/c", "hf://org/model", "org/mo del"):
        with pytest.raises(ZooError, match="org/name"):
            publish(DegBins, ckpt, name, license="mit")
    assert not hub.requests


# ---- What can fail: one sentence, nothing half done, and trying again works --------------------


@pytest.fixture
def online(hub: Hub, ckpt: Path):
    """A repository with an older version."""
    push(ckpt)
    retrain(tiny(bins=5), ckpt)
    hub.requests.clear()
    return hub


def fails(ckpt: Path, match: str) -> None:
    with pytest.raises(ZooError, match=match) as caught:
        push(ckpt)
    assert "\n" not in str(caught.value)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_repository(hub: Hub, ckpt: Path, status: int):
    hub.fail(status, "create", message=f"{TOKEN} may not create this")
    fails(ckpt, rf"org/model: the hub answered {status} \(\*\*\* may .*\): log in with 'hf auth")
    assert not hub.repos
    hub.heal()
    assert push(ckpt).new


def test_a_refused_commit(online: Hub, ckpt: Path):
    before = online.commits(REPO)
    online.fail(403, "commit", message="You are over your quota")
    fails(ckpt, r"the hub answered 403 \(You are over your quota\)")
    assert online.commits(REPO) == before
    online.heal()
    assert push(ckpt).tag == "v2"


def test_too_many_requests(online: Hub, ckpt: Path):
    online.fail(429, "create", retry_after=60)
    fails(ckpt, "429.*too many requests, try again in 60 s")
    online.heal()
    assert push(ckpt).tag == "v2"


def test_a_server_error_in_the_middle_is_tried_again_once(online: Hub, ckpt: Path):
    online.fail(500, "commit", times=1)
    assert push(ckpt).tag == "v2"
    assert [r.status for r in online.calls("commit")] == [500, 200]


def test_a_server_that_keeps_failing(online: Hub, ckpt: Path):
    online.fail(503, "commit")
    before = online.commits(REPO)
    fails(ckpt, "the hub answered 503.*try again later")
    assert online.commits(REPO) == before
    online.heal()
    assert push(ckpt).tag == "v2"


def test_a_lost_answer_does_not_make_a_second_commit(online: Hub, ckpt: Path):
    online.cut("commit", times=1, after=0)  # the commit is made, its answer is lost
    assert push(ckpt).tag == "v2"
    assert len(online.calls("commit")) == 1
    assert len(online.commits(REPO)) == 3


def test_a_lost_tag_is_made_by_the_next_push(online: Hub, ckpt: Path):
    online.fail(500, "tag", times=1)
    fails(ckpt, "the hub answered 500")
    again = push(ckpt)
    assert (again.tag, again.new) == ("v2", False)
    assert len(online.commits(REPO)) == 3


def test_somebody_else_commits_in_between(online: Hub, folder: Path):
    (folder / "README.md").write_text("---\nlicense: mit\n---\nanother text")
    create = HfApi.create_commit

    def late(self, *args, **kwargs):
        online.put(REPO, {"LICENSE": b"in between"})
        return create(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HfApi, "create_commit", late)
        with pytest.raises(ZooError, match=r"412.*commit has happened since"):
            upload(folder, REPO)
    assert online.files(REPO)["LICENSE"] == b"in between"
    assert upload(folder, REPO).tag == "v2"


def test_a_hub_that_is_not_there(online: Hub, ckpt: Path):
    online.stop()
    fails(ckpt, "connection to the hub failed")
    online.start()
    assert push(ckpt).tag == "v2"


def test_averaged_weights_are_published(hub: Hub, tmp_path: Path):
    """Lightning keeps the average in "state_dict" and the raw weights beside it."""
    model = Toy()
    path = write_checkpoint(model, tmp_path / "toy.ckpt")
    stored = torch.load(path, weights_only=True)
    stored["current_model_state"] = {k: v + 1 for k, v in stored["state_dict"].items()}
    torch.save(stored, path)
    publish(Toy, path, "org/toy", license="mit", allow_no_metrics=True)
    assert torch.equal(Toy.from_pretrained("org/toy").head.weight, model.head.weight)
