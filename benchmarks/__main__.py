"""``python -m benchmarks claims degbins --seeds 0 1 2`` and ``python -m benchmarks readme``."""

from __future__ import annotations

import argparse
import re
import sys
from importlib import import_module
from pathlib import Path

from benchmarks import runner
from benchmarks.curves import curve_tables, draw_curves
from zoo.atomic import atomic_path, write_text
from zoo.catalog import get_method, list_methods

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Runs the command that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    claims = commands.add_parser("claims", help="run the arms of a method's claim over seeds")
    claims.add_argument("method")
    claims.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    claims.add_argument("--arms", nargs="+", help="run only these; the table has all measured ones")
    claims.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    claims.add_argument("--card", action="store_true", help="write the table into the card")
    commands.add_parser("readme", help="renew the README's table from the cards")
    options = parser.parse_args()
    if options.command == "readme":
        replace_section(ROOT / "README.md", "methods", readme_table())
        return
    name = get_method(options.method).name
    claim = import_module(f"benchmarks.claims.{name}").CLAIM
    figures = runner.run(claim, options.seeds, options.arms, options.jobs)
    text = f"{runner.table(figures)}\n{runner.verdicts(figures)}"
    if claim.validation and figures.lines:
        text += f"\n{curve_tables(figures)}"
        with atomic_path(runner.RESULTS / f"{name}.png") as path:
            draw_curves(figures).savefig(path, dpi=80)
    sys.stdout.write(text)
    if options.card:
        replace_section(ROOT / f"model_cards/{name}.md", "claims", text)


def readme_table() -> str:
    """The methods with their default config's figures, from the cards' front matter."""
    rows = [
        "| method | task | result of the default config | train | peak memory |",
        "| --- " * 5 + "|",
    ]
    for method in list_methods():
        r = method.result
        rows.append(
            f"| [{method.cls}](model_cards/{method.name}.md) | {method.task} | {r['metric']}: "
            f"{r['value']} ({r['baseline']}) | {r['run_time']} | {r['peak_memory']} |"
        )
    return "\n".join(rows) + "\n"


def replace_section(path: Path, name: str, text: str) -> None:
    """Replaces what stands between ``<!-- name:begin -->`` and ``<!-- name:end -->``."""
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    old = path.read_text(encoding="utf-8")
    if not pattern.search(old):
        raise SystemExit(f"{path} has no lines '{begin.strip()}' and '{end}'.")
    write_text(path, pattern.sub(lambda _: begin + text + end, old))


if __name__ == "__main__":
    main()
