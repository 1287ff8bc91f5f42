"""``python -m fedjax_fraud`` is ``fedjax-fraud``."""

import sys

from fedjax_fraud.cli import main

if __name__ == "__main__":
    sys.exit(main())
