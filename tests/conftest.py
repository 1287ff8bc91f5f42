"""Settings shared by every test: strict JAX, quick compiling, a cache, seeded hypothesis, the shared data folder."""

import os
import pathlib

import chex
import hypothesis
import jax
import pytest

ROOT = pathlib.Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"

# XLA's optimisers save microseconds here and cost half of the tests' time. With FEDJAX_FRAUD_OPTIMISED=1 programs are
# compiled as users compile them; so are, in every CI run, the tests marked `compiled`.
QUICK = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
if jax.__version_info__ < (0, 11):  # later ones do not know the flag, and XLA ends a process at an unknown one
    QUICK.append("--xla_cpu_use_fusion_emitters=false")
if not os.environ.get("FEDJAX_FRAUD_OPTIMISED"):
    os.environ["XLA_FLAGS"] = " ".join([*QUICK, os.environ.get("XLA_FLAGS", "")])  # for processes that tests start too

os.environ["FEDJAX_FRAUD_CACHE"] = str(ROOT / ".jax_cache")  # for processes that tests start
jax.config.update("jax_num_cpu_devices", 1)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(ROOT / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

hypothesis.settings.register_profile("repo", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repo"))


@pytest.fixture(autouse=True)
def _fresh_trace_counts():
    """``chex.assert_max_traces`` counts per test, not per session."""
    chex.clear_trace_counter()
    yield


@pytest.fixture
def shared_data() -> pathlib.Path:
    """The folder of real data, where there is one."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the shared data folder is not here")
    return SHARED / "data"
