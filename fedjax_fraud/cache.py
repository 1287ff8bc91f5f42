"""Where things are kept between runs: compiled programs, and parsed tables.

The folder is ``FEDJAX_FRAUD_CACHE`` if that is set ('' or 'off' = keep nothing), else ``fedjax_fraud`` in the user's
cache folder. Everything in it can be deleted at any time.
"""

import os
import sys
from pathlib import Path

import jax

VARIABLE = "FEDJAX_FRAUD_CACHE"
OFF = ("", "off")
LARGEST = 2**30  # bytes of compiled programs; JAX drops those that were not used for the longest time


def cache_folder() -> Path | None:
    """The folder, which need not exist yet; None where nothing is to be kept."""
    chosen = os.environ.get(VARIABLE)
    if chosen is not None:
        return None if chosen in OFF else Path(chosen).expanduser()
    return _user_folder() / "fedjax_fraud"


def _user_folder() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def use_compilation_cache() -> None:
    """Lets JAX keep compiled programs, unless the caller has chosen a folder of JAX's own or nothing is to be kept.

    A program is found again if its text, JAX's version and the device are the same: other seeds, rates, mu, epochs,
    participation or data of the same shape need no compilation.
    """
    folder = cache_folder()
    if folder is None or jax.config.jax_compilation_cache_dir is not None:
        return
    try:
        (folder / "programs").mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # A read-only home: compile anew each time.
    jax.config.update("jax_compilation_cache_dir", str(folder / "programs"))
    jax.config.update("jax_compilation_cache_max_size", LARGEST)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
