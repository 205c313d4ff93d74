"""``python -m offcert``: the command line without its script."""

import sys

from offcert.cli import main

if __name__ == "__main__":
    sys.exit(main())
