"""`python -m headwater` is the command line."""

import sys

from headwater.cli.main import main

sys.exit(main())
