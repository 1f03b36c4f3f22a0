"""A folder that an untrusted program writes to, used without following what it planted there.

Paths are opened one component at a time below a handle of the folder, and a link is never followed:
a program may swap a folder for a link at any time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from zoo.errors import ZooError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def parts_of(path: str) -> tuple[str, ...]:
    """The components of a relative path.

    Raises:
        ZooError: If it is empty, absolute, or leads out.
    """
    pure = PurePosixPath(path)
    if not pure.parts or pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise ZooError(f"{path!r} is no path inside the folder: relative, and without '..'.")
    return pure.parts


@contextlib.contextmanager
def folder_of(root: Path, parts: tuple[str, ...], owner: int | None = None) -> Iterator[int]:
    """A handle of the folder that holds the last component.

    Args:
        root: To begin from.
        parts: Components of a path.
        owner: Missing folders are made for this user; -1 for the present one, ``None`` makes none.

    Raises:
        ZooError: If a component is a link, no folder, or missing.
    """
    handle = os.open(root, FOLDER)
    try:
        for number, part in enumerate(parts[:-1], 1):
            if owner is not None:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=handle)
                    os.chown(part, owner, owner, dir_fd=handle, follow_symlinks=False)
            try:
                inner = os.open(part, FOLDER, dir_fd=handle)
            except OSError as error:
                name = "/".join(parts[:number])
                raise ZooError(f"{name!r} is no folder of the sandbox: {error.strerror}.") from None
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def write_file(
    root: Path, path: str, content: str | bytes, owner: int = -1, executable: bool = False
) -> None:
    """Writes a file below ``root`` for ``owner``; -1 stands for the present user.

    Raises:
        ZooError: If the path leads out, or through a link.
    """
    parts = parts_of(path)
    data = content.encode() if isinstance(content, str) else content
    with folder_of(root, parts, owner) as folder:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(parts[-1], dir_fd=folder)
        mode = 0o755 if executable else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            handle = os.open(parts[-1], flags, mode, dir_fd=folder)
        except OSError as error:
            raise ZooError(f"{path!r} can't be written: {error.strerror}.") from None
        with os.fdopen(handle, "wb") as file:
            os.fchown(handle, owner, owner)
            os.fchmod(handle, mode)
            file.write(data)


def read_file(root: Path, path: str, limit: int) -> bytes:
    """The content of a regular file below ``root``.

    Raises:
        ZooError: If the path leads out or through a link, or is no regular file of at most
            ``limit`` bytes.
    """
    parts = parts_of(path)
    with folder_of(root, parts) as folder:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            handle = os.open(parts[-1], flags, dir_fd=folder)
        except OSError as error:
            raise ZooError(f"{path!r} can't be read: {error.strerror}.") from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ZooError(f"{path!r} is no regular file.")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ZooError(f"{path!r} is larger than {limit} bytes.")
    return data


def walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Path and status of everything below ``root``, sorted; links are named, not followed."""
    stack = [""]
    while stack:
        prefix = stack.pop()
        try:
            with os.scandir(root / prefix) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:  # removed meanwhile, or unreadable
            continue
        folders = []
        for entry in found:
            with contextlib.suppress(OSError):
                path = f"{prefix}{entry.name}"
                yield path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{path}/")
        stack += reversed(folders)


def remove(folder: Path) -> None:
    """Deletes a folder, also where a program took away its own permissions."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    for path, _, _, handle in os.fwalk(folder, follow_symlinks=False, onerror=lambda _: None):
        del path
        with contextlib.suppress(OSError):
            os.fchmod(handle, 0o700)
        for entry in os.scandir(handle):
            if entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    os.chmod(entry.name, 0o700, dir_fd=handle)
    shutil.rmtree(folder, ignore_errors=True)
