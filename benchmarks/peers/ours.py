"""This package: `fedjax_fraud.sweep`, on every core as a device. Scores of every bank come on top of the work.

A first process with an empty compilation cache is a cold start, the next with the same folder a warm one:

    FEDJAX_FRAUD_CACHE=cache python -m benchmarks.peers.ours --case sweep27 --json out.json

``--form padded`` gives every client a lane of its own for as many steps as the largest client makes, which is what a
``vmap`` over padded clients does.
"""

import jax
import numpy as np

import fedjax_fraud
from benchmarks.peers import contender
from benchmarks.peers.work import BATCH_SIZE, CLIENT_LR, HIDDEN, MU, NUM_FEATURES, SCORES, Case, Inputs, read_inputs
from fedjax_fraud import devices


def padded_form(case: Case, inputs: Inputs, num_devices: int) -> dict:
    """Arguments of ``sweep``: a lane for every client of a device, in chunks as long as the largest client's epoch."""
    settings_each = -(-len(case.settings) // num_devices)
    largest = max(len(rows) for clients in inputs.owned.values() for rows in clients)
    return dict(num_lanes=settings_each * case.num_clients, chunk_length=-(-largest // BATCH_SIZE))


def final_scores(case: Case, rounds) -> np.ndarray:
    """``[settings, 3]`` in the order of the case's settings."""
    last = rounds[rounds["round"] == case.num_rounds].set_index(["algorithm", "alpha", "seed"])
    return np.array([last.loc[tuple(setting), list(SCORES)].to_numpy(float) for setting in case.settings])


def main() -> None:
    parser = contender.options(__doc__)
    parser.add_argument("--form", choices=("packed", "padded"), default="packed")
    arguments = parser.parse_args()
    devices.use_all_cores()
    clock = contender.Clock()
    clock.lap("import")
    case = contender.chosen_case(arguments)
    inputs = read_inputs(arguments.inputs, case)
    names = tuple(f"x{i}" for i in range(NUM_FEATURES))
    train = fedjax_fraud.Transactions(inputs.features, inputs.labels, names)
    test = fedjax_fraud.Transactions(inputs.test_features, inputs.test_labels, names)
    form = padded_form(case, inputs, len(jax.devices())) if arguments.form == "padded" else {}
    clock.lap("setup")
    result = fedjax_fraud.sweep(
        train,
        test,
        algorithms=case.algorithms,
        alphas=case.alphas,
        seeds=case.seeds,
        num_clients=case.num_clients,
        num_rounds=case.num_rounds,
        batch_size=BATCH_SIZE,
        client_lr=CLIENT_LR,
        mu=MU,
        model=fedjax_fraud.models.mlp(NUM_FEATURES, HIDDEN),
        baselines=False,
        **form,
    )
    clock.lap("setup")
    timings, manifest_work = result.manifest["timings"], result.manifest["work"]
    for phase, name in (("warm_up", "compile_seconds"), ("run", "run_seconds")):
        clock.seconds[phase] = timings[name]
        clock.seconds["setup"] -= timings[name]
    steps = {name: manifest_work[name] for name in ("useful_steps", "executed_steps")}
    packages = ("fedjax-fraud", "jax", "jaxlib", "flax", "optax", "numpy")
    contender.write_record(arguments, case, clock, final_scores(case, result.rounds), packages, **steps)


if __name__ == "__main__":
    main()
