"""``zoo``: reads the subcommand and imports only what that one needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from zoo._version import __version__
from zoo.cli.hub import COMMANDS as HUB
from zoo.errors import ZooError, did_you_mean

RUN = {
    "fit": "train, then test the best checkpoint",
    "validate": "run the validation split",
    "test": "run the test split: metrics.json and figures",
    "predict": "write predictions for files: --data.inputs 'folder/*.png'",
}
CATALOG = {
    "list": "the methods there are: zoo list [--task TASK] [PATTERN]",
    "info": "one method: zoo info degbins",
}

USAGE = f"""\
usage: zoo COMMAND ...

Run a method (LightningCLI; 'zoo fit --help' shows every option):
{chr(10).join(f"  {name:<10}{text}" for name, text in RUN.items())}

Look around:
{chr(10).join(f"  {name:<10}{text}" for name, text in CATALOG.items())}

Publish:
{chr(10).join(f"  {name:<10}{text}" for name, text in HUB.items())}

  zoo fit --config zoo/degbins.yaml     trains on the data that comes with the package
  zoo --version
"""


def main(args: Sequence[str] | None = None) -> None:
    """Runs one command.

    Args:
        args: As on the command line, without the program's name; ``None`` for ``sys.argv``.

    Raises:
        SystemExit: With one sentence if the user can mend it, with code 2 for a wrong command.
    """
    arguments = list(sys.argv[1:] if args is None else args)
    command = arguments[0] if arguments else "--help"
    try:
        if command in ("-h", "--help", "help"):
            sys.stdout.write(USAGE)
        elif command == "--version":
            sys.stdout.write(f"zoo {__version__}\n")
        elif command in RUN:
            from zoo.cli.lightning import run

            run(arguments)
        elif command in CATALOG:
            from zoo.cli.catalog import run as run_catalog

            run_catalog(arguments)
        elif command in HUB:
            from zoo.cli.hub import run as run_hub

            run_hub(arguments)
        else:
            hint = did_you_mean(command, [*RUN, *CATALOG, *HUB])
            raise ZooError(f"Unknown command '{command}'.{hint} See 'zoo --help'.")
    except ZooError as error:
        sys.exit(f"zoo: {error}")
