"""``zoo push``, ``pull``, ``card``, ``check`` and ``export``; ``--help`` imports no torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from zoo.catalog import get_method, method_class
from zoo.errors import ZooError

COMMANDS = {
    "push": "publish a checkpoint: zoo push NAME --ckpt_path FILE --repo-id ORG/NAME",
    "pull": "fetch a published model: zoo pull ORG/NAME[@REVISION]",
    "card": "render and validate a model card",
    "check": "verify a published folder or repository",
    "export": "write the inference graph: --format onnx or torch_export",
}


def run(args: Sequence[str]) -> None:
    """Runs one of the hub's commands.

    Args:
        args: The command and its options.

    Raises:
        ZooError: What the user can mend.
    """
    options = _parser().parse_args(list(args))
    actions = {"push": _push, "pull": _pull, "card": _card, "check": _check, "export": _export}
    actions[options.command](options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="zoo", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)

    push = commands.add_parser("push", help=COMMANDS["push"], allow_abbrev=False)
    push.add_argument("name", help="of the method")
    push.add_argument("--ckpt_path", required=True, help="of 'zoo fit'; its run folder is read too")
    push.add_argument("--repo-id", required=True, help="ORG/NAME; made if need be")
    push.add_argument("--license", help="of the weights: apache-2.0, cc-by-4.0, ...; required")
    push.add_argument("--branch", "--revision", help="other than main; made if need be")
    push.add_argument("--private", action="store_true", help="make the repository private")
    push.add_argument(
        "--dry-run", metavar="DIR", type=Path, help="write the folder, upload nothing"
    )
    push.add_argument(
        "--allow-no-metrics", action="store_true", help="publish what was never tested"
    )

    pull = commands.add_parser("pull", help=COMMANDS["pull"], allow_abbrev=False)
    pull.add_argument("source", help="ORG/NAME or ORG/NAME@REVISION")
    pull.add_argument("--cache-dir", help="instead of the hub's own cache")

    card = commands.add_parser("card", help=COMMANDS["card"], allow_abbrev=False)
    card.add_argument("name", help="of the method")
    card.add_argument("--ckpt_path", help="adds the metrics of its test run")
    card.add_argument("--repo-id", help="ORG/NAME, for the lines of use")
    card.add_argument("--license", help="of the weights")

    check = commands.add_parser("check", help=COMMANDS["check"], allow_abbrev=False)
    check.add_argument("source", help="a folder, ORG/NAME or ORG/NAME@REVISION")

    export = commands.add_parser("export", help=COMMANDS["export"], allow_abbrev=False)
    export.add_argument("name", help="of the method")
    export.add_argument(
        "--ckpt_path", required=True, help="a checkpoint, a folder, or hf://ORG/NAME"
    )
    export.add_argument("--format", required=True, choices=["onnx", "torch_export"])
    export.add_argument("--output", type=Path, help="default: NAME with the format's suffix")
    return parser


def _push(options: argparse.Namespace) -> None:
    from zoo.publish import build, publish

    cls = method_class(options.name)
    if options.dry_run is not None:
        build(
            cls,
            options.ckpt_path,
            options.dry_run,
            repo_id=options.repo_id,
            license=options.license,
            allow_no_metrics=options.allow_no_metrics,
        )
        sys.stdout.write(f"Written and verified, not uploaded: {options.dry_run}\n")
        return
    published = publish(
        cls,
        options.ckpt_path,
        options.repo_id,
        license=options.license,
        branch=options.branch,
        private=options.private,
        allow_no_metrics=options.allow_no_metrics,
    )
    sys.stdout.write(f"{published}\n")


def _pull(options: argparse.Namespace) -> None:
    from zoo.remote import locate

    sys.stdout.write(f"{locate(options.source, cache_dir=options.cache_dir)}\n")


def _card(options: argparse.Namespace) -> None:
    from zoo.card import check_license, missing_sections, read_card, render_card
    from zoo.publish import read_run

    method = get_method(options.name)
    run = read_run(Path(options.ckpt_path), method.cls) if options.ckpt_path else None
    text = render_card(
        method.cls,
        license=check_license(options.license) if options.license else None,
        repo_id=options.repo_id,
        metrics=run.metrics if run else None,
        figures=[f"figures/{path.name}" for path in run.figures] if run else [],
    )
    sys.stdout.write(text)
    if options.license:
        read_card(text)
    missing = missing_sections(text)
    if missing:
        raise ZooError(
            f"The card of {method.name} lacks {', '.join(missing)}: "
            f"add them to model_cards/{method.name}.md."
        )


def _check(options: argparse.Namespace) -> None:
    from zoo.check import check

    for sentence in check(options.source):
        sys.stdout.write(f"{sentence}\n")


def _export(options: argparse.Namespace) -> None:
    from zoo.export import export
    from zoo.hub import is_published, load
    from zoo.remote import locate

    method = get_method(options.name)
    cls = method_class(method.name)
    path = options.ckpt_path
    model = load(locate(path), cls) if is_published(path) else cls.load_from_checkpoint(path)
    sys.stdout.write(f"{export(model, options.output or Path(method.name), options.format)}\n")
