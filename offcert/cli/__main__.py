"""``python -m offcert.cli`` is ``python -m offcert``."""

import sys

from offcert.cli import main

if __name__ == "__main__":
    sys.exit(main())
