"""Print the shell block that README.md marks with `<!-- ci: NAME -->`, exactly as it is written."""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def command(name: str) -> str:
    marker = rf"^<!-- ci: {re.escape(name)} -->\n+```sh\n(.*?)^```$"
    found = re.findall(marker, README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    if len(found) != 1:
        sys.exit(f"README.md: expected one ```sh block after <!-- ci: {name} -->, found {len(found)}.")
    return str(found[0])


if __name__ == "__main__":
    print(command(sys.argv[1]), end="")
