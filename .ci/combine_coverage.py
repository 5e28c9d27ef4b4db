"""Add up the coverage of the databases' test runs, keeping their files, and print the report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def coverage(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "coverage", *arguments], check=True)


if __name__ == "__main__":
    # One file a test environment: .coverage.py313-django61-sqlite and so on.
    files = [str(path) for path in sorted(Path(sys.argv[1]).glob(".coverage.py*"))]
    if not files:
        sys.exit("No coverage files: run tox -e py313-django61-sqlite (or another database) first.")
    print("Combining", *files)
    coverage("combine", "--keep", "--quiet", *files)
    coverage("report")
