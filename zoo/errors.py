"""The zoo's one error: what a user can mend, told in one sentence."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches


class ZooError(ValueError):
    """Bad input: what came, what is allowed, and where. The command line prints it and stops."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns ``" Did you mean 'x'?"`` for the nearest of ``known``, or an empty string."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""


def check_choice(option: str, value: str, known: Collection[str]) -> None:
    """Raises a :class:`ZooError` unless an option's value is one of ``known``."""
    if value not in known:
        raise ZooError(
            f"{option}={value!r} is unknown: expected {', '.join(known)}."
            f"{did_you_mean(value, known)}"
        )


def missing_extra(package: str, extra: str) -> ZooError:
    """The error to raise when an optional package of one field is absent."""
    return ZooError(f'This needs the package {package}: pip install "lightning-zoo[{extra}]".')
