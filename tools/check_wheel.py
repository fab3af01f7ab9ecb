"""Does a wheel hold every file of the package that is under version control?

python tools/check_wheel.py dist/egohieraloc-*.whl
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

SOURCE = Path(__file__).parents[1] / "src"


def missing_files(wheel: Path) -> list[str]:
    """Tracked files below src/ that the wheel does not hold."""
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=SOURCE, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    with ZipFile(wheel) as archive:
        return sorted({name for name in tracked if name} - set(archive.namelist()))


def main() -> None:
    wheel = Path(sys.argv[1])
    missing = missing_files(wheel)
    if missing:
        sys.exit(f"{wheel.name} misses {len(missing)} files:\n" + "\n".join(missing))
    print(f"{wheel.name}: complete, {wheel.stat().st_size / 1e6:.1f} MB.")


if __name__ == "__main__":
    main()
