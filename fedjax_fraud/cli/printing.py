"""What scripts read: strict JSON on standard output."""

from typing import Any


def print_json(value: Any) -> None:
    """Prints ``value`` as strict JSON: NaN and infinities become null."""
    from fedjax_fraud.files import strict_json

    print(strict_json(value), end="")
