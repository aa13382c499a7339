"""`python -m toolkit` is the command line."""

import sys

from toolkit.cli import main

sys.exit(main())
