"""`python -m tuner`: the command line's entry, and the only place that ends the process."""

from __future__ import annotations

import sys
from typing import NoReturn

from tuner.cli import main


def run() -> NoReturn:
    """Run the command line and exit with its code."""
    raise SystemExit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
