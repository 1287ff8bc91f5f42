"""Whether an algorithm keeps the contract of ``FedAlgorithm``: the checks that every algorithm of this package passes.

Nothing in the package imports this: it is for tests, yours and ours. An algorithm is given as its *build*, a function
from hyperparameters to a ``FedAlgorithm``, because the engine builds it anew inside compiled code::

    from fedjax_fraud import testing

    def build(hyper):
        return my_algorithm(optax.sgd(hyper["client_lr"]), mu=hyper["mu"])

    testing.check_algorithm(build)
"""

from fedjax_fraud.testing.contract import (
    CHECKS,
    check_algorithm,
    check_empty_clients_and_neighbours,
    check_invariant,
    check_jit_equals_eager,
    check_ledger,
    check_one_trace,
    check_packing,
    check_state_keeps_its_form,
    check_strict_dtypes,
)

__all__ = [
    "CHECKS",
    "check_algorithm",
    "check_empty_clients_and_neighbours",
    "check_invariant",
    "check_jit_equals_eager",
    "check_ledger",
    "check_one_trace",
    "check_packing",
    "check_state_keeps_its_form",
    "check_strict_dtypes",
]
