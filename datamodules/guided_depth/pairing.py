"""Which of a user's files belong together: a depth map and its guide, found by name."""

import os
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path

from zoo.depth_files import channels_and_size
from zoo.errors import ZooError

from .readers import Files

# Endings that tell the two files of a pair apart; the longer ones are tried first.
ENDINGS = ("_lr_depth", "_depth", "_guide", "_color", "_rgb", "_lr")


def pair_key(path: Path) -> str:
    """Returns the stem without an ending such as ``_depth``: the same for both files."""
    for ending in ENDINGS:
        if path.stem.lower().endswith(ending) and len(path.stem) > len(ending):
            return path.stem[: -len(ending)]
    return path.stem


def pair_files(paths: Sequence[Path]) -> list[Files]:
    """Pairs depth maps (one channel) with guides (three channels).

    Two files are a pair if their folder and stem agree, endings apart; else if their folder holds
    exactly one of each; else if their stems agree across folders.

    Args:
        paths: Pictures or .npy arrays, of both kinds.

    Returns:
        The pairs in the order of their depth maps, each with a name of its own.

    Raises:
        ZooError: If a file has no partner, or several.
    """
    depths: list[Path] = []
    guides: list[Path] = []
    for path in paths:
        channels, _ = channels_and_size(path)
        (depths if channels == 1 else guides).append(path)
    pairs: dict[Path, Path] = {}
    alone = set(paths)
    for rule in (_folder_and_stem, _folder, _stem):
        partners: dict[Hashable, tuple[list[Path], list[Path]]] = defaultdict(lambda: ([], []))
        for side, files in enumerate((depths, guides)):
            for path in files:
                partners[rule(path)][side].append(path)
        for some_depths, some_guides in partners.values():
            pair = {*some_depths, *some_guides}
            if len(some_depths) == len(some_guides) == 1 and pair <= alone:
                pairs[some_depths[0]] = some_guides[0]
                alone -= pair
    if alone:
        first = min(alone)
        kind, wanted = ("depth map", "guide") if first in depths else ("guide", "depth map")
        raise ZooError(
            f"{first} is a {kind} without exactly one {wanted}: expected one of the same name, "
            f"endings apart ({', '.join(ENDINGS)}), or a folder with one of each."
        )
    return _named(pairs)


def _folder_and_stem(path: Path) -> Hashable:
    return path.parent, pair_key(path)


def _folder(path: Path) -> Hashable:
    return path.parent


def _stem(path: Path) -> Hashable:
    return pair_key(path)


def _named(pairs: dict[Path, Path]) -> list[Files]:
    # A pair is called by its stem, or by its folders where the stem does not tell it apart.
    keys = Counter(pair_key(depth) for depth in pairs)
    parents = [depth.absolute().parent for depth in pairs]
    above = Path(os.path.commonpath(parents))
    above = above.parent if above in parents else above
    files: list[Files] = []
    for depth, guide in sorted(pairs.items()):
        key, folders = pair_key(depth), depth.absolute().parent.relative_to(above).parts
        if key != pair_key(guide):  # paired by folder
            name = "_".join(folders)
        else:
            name = key if keys[key] == 1 else "_".join((*folders, key))
        files.append(Files(name, guide, depth))
    return files
