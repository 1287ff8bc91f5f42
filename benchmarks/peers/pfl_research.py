"""Apple's pfl-research, FedAvg: its simulated backend with PyTorch, one thread a process.

    python -m benchmarks.peers.pfl_research --case k10-fedavg --json out.json
    python -m torch.distributed.run --nproc-per-node 2 -m benchmarks.peers.pfl_research     # clients dealt to two

Users are tensors in memory, pfl's fastest kind; each is handed out in a fresh order, since pfl does not shuffle it.
"""

import os

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn

from benchmarks.peers import contender
from benchmarks.peers.work import BATCH_SIZE, CLIENT_LR, HIDDEN, NUM_FEATURES, Inputs, Scorer, Setting, read_inputs


class Perceptron(nn.Module):
    """The network with the two methods that pfl asks for."""

    def __init__(self, start):
        super().__init__()
        wide, narrow = HIDDEN
        self.layers = nn.Sequential(
            nn.Linear(NUM_FEATURES, wide), nn.ReLU(), nn.Linear(wide, narrow), nn.ReLU(), nn.Linear(narrow, 1)
        )
        with torch.no_grad():
            for layer, (kernel, bias) in zip(self.layers[::2], start, strict=True):
                layer.weight.copy_(torch.from_numpy(kernel.T))
                layer.bias.copy_(torch.from_numpy(bias))

    def loss(self, rows, labels):
        """Mean log loss of a batch."""
        return nn.functional.binary_cross_entropy_with_logits(self.layers(rows), labels)

    def metrics(self, rows, labels):
        """pfl evaluates every user in the first round whatever it is told; this keeps that short."""
        del labels
        return {"rows": Weighted(len(rows), 1)}


class TestScores(TrainingProcessCallback):
    """Scores on the test rows after every round."""

    def __init__(self, inputs: Inputs):
        self.scores = []
        self._features = torch.from_numpy(inputs.test_features)
        self._scorer = Scorer(inputs.test_labels)

    @torch.no_grad()
    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.scores.append(self._scorer(model.pytorch_model.layers(self._features).numpy()[:, 0]))
        return False, Metrics()


def make_users(inputs: Inputs, setting: Setting) -> tuple[FederatedDataset, int]:
    """The clients that hold rows, in turn, and their number."""
    features = torch.from_numpy(inputs.features)
    labels = torch.from_numpy(inputs.labels.astype(np.float32)[:, None])
    rng = np.random.default_rng(setting.seed)
    clients = [rows for rows in inputs.owned[setting.alpha, setting.seed] if len(rows)]

    def make_user(client: int) -> PyTorchTensorDataset:
        rows = torch.from_numpy(rng.permutation(clients[client]))
        return PyTorchTensorDataset((features[rows], labels[rows]), user_id=client)

    return FederatedDataset(make_user, get_user_sampler("minimize_reuse", range(len(clients)))), len(clients)


def main() -> None:
    arguments = contender.options(__doc__).parse_args()
    clock = contender.Clock()
    clock.lap("import")
    case = contender.chosen_case(arguments)
    setting = contender.the_fedavg_setting(arguments, case)
    torch.set_num_threads(1)
    inputs = read_inputs(arguments.inputs, case)
    module = Perceptron(inputs.start[setting.seed])
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    users, num_users = make_users(inputs, setting)
    scores = TestScores(inputs)
    clock.lap("setup")
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=case.num_rounds,
            evaluation_frequency=case.num_rounds,
            train_cohort_size=num_users,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(users, users, postprocessors=[WeightByDatapoints()]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=CLIENT_LR, local_batch_size=BATCH_SIZE
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[scores],
        send_metrics_to_platform=False,
    )
    clock.lap("run")
    if os.environ.get("RANK", "0") == "0":
        contender.write_record(arguments, case, clock, np.array(scores.scores[-1:]), ["pfl", "torch", "numpy"])


if __name__ == "__main__":
    main()
