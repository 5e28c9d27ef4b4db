"""Copy the tree without the package: tests that run there can only import the installed wheel.

The copy is what git knows and what is new but not ignored: stray databases and caches stay behind.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = "django_jobqueue"


def tracked_files(root: Path) -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [name for name in listing.split("\0") if name and (root / name).is_file()]


def stage(root: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    for name in tracked_files(root):
        if not name.startswith(f"{PACKAGE}/"):
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy)


def package_origin(root: Path, target: Path) -> Path:
    """Return where a test run in `target` would import the package from, importing nothing."""
    code = f"import importlib.util as u; print(u.find_spec({PACKAGE!r}).origin)"
    origin = Path(
        subprocess.run(
            [sys.executable, "-c", code], cwd=target, check=True, capture_output=True, text=True
        ).stdout.strip()
    )
    if origin.is_relative_to(root / PACKAGE) or origin.is_relative_to(target):
        sys.exit(f"The tests would import {origin}, not the built wheel.")
    return origin


if __name__ == "__main__":
    root, target = (Path(argument).resolve() for argument in sys.argv[1:3])
    stage(root, target)
    print(f"Tests run in {target} against {package_origin(root, target)}")
