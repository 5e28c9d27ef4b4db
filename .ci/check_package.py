"""Compare the built wheel and sdist with the package's folder, then install and import the wheel.

The wheel must hold every file of django_jobqueue/ that git knows, and nothing beside it: a template
that was forgotten and a test that slipped in are both found, whatever their names.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from stage import PACKAGE, tracked_files


def only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"Expected one {pattern} in {folder}, found {[path.name for path in found]}.")
    return found[0]


def complain(title: str, names: set[str]) -> bool:
    for name in sorted(names):
        print(f"{title}: {name}", file=sys.stderr)
    return bool(names)


def check_wheel(root: Path, wheel: Path) -> bool:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.endswith("/")}
    dist_info = "-".join(wheel.name.split("-")[:2]) + ".dist-info/"
    content = {name for name in held if not name.startswith(dist_info)}
    wanted = {name for name in tracked_files(root) if name.startswith(f"{PACKAGE}/")}
    needed = {f"{PACKAGE}/py.typed", f"{PACKAGE}/migrations/0001_initial.py"}
    needed |= {f"{name[:-3]}.mo" for name in wanted if name.endswith(".po")}
    print(f"{wheel.name}: {len(content)} files of {PACKAGE}/")
    problems = [
        complain("missing from the wheel", (wanted | needed) - content),
        complain("in the wheel, but not of the package", content - wanted),
        complain("missing from the wheel", {f"{dist_info}licenses/LICENSE"} - held),
    ]
    return not any(problems)


def check_sdist(root: Path, sdist: Path) -> bool:
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    wanted = {name for name in tracked_files(root) if name.startswith((f"{PACKAGE}/", "tests/", "docs/"))}
    return not complain("missing from the sdist", wanted - held)


def install_and_import(wheel: Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", str(wheel)], check=True)
    # Before any settings are configured, from a folder that does not hold the package.
    code = f"import {PACKAGE} as p; print(p.__file__, p.__version__)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=wheel.parent, check=True)


if __name__ == "__main__":
    root, dist = (Path(argument).resolve() for argument in sys.argv[1:3])
    wheel = only(dist, "*.whl")
    good = [check_wheel(root, wheel), check_sdist(root, only(dist, "*.tar.gz"))]
    if not all(good):
        sys.exit(1)
    install_and_import(wheel)
