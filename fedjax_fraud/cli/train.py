"""``fedjax-fraud train``: one chosen setting, kept as a model that scores new transactions."""

import argparse

from fedjax_fraud.cli import folders, options, processes, rows
from fedjax_fraud.cli.parser import PROGRAM, Parser
from fedjax_fraud.cli.printing import print_json
from fedjax_fraud.cli.progress import Display

MODEL = "model.safetensors"
SHARES = (0.001, 0.005, 0.01)
BASIC = (
    *("data", "label", "positive", "silo", "time", "entity", "drop", "alpha", "clients", "partition"),
    *("algorithm", "seed", "rounds", "epochs", "client_lr", "mu", "hidden", "out", "config", "json"),
)
EXAMPLES = """examples:
  fedjax-fraud train --algorithm scaffold --alpha 0.5 --rounds 30 --out model
  fedjax-fraud train --data claims.csv --label is_fraud --silo bank --out model
  fedjax-fraud score model/model.safetensors tomorrow.csv
"""


def add(commands) -> None:
    """Adds the command."""
    parser: Parser = commands.add_parser(
        "train",
        help="train one chosen setting and keep the model",
        description="Trains one federation, scores its model on the test rows and keeps it with its preprocessing.",
        usage=f"{PROGRAM} train [options]",
        epilog=EXAMPLES,
        basic=BASIC,
    )
    options.add_data(parser)
    options.add_banks(parser, one=True)
    options.add_training(parser, one=True)
    options.add_privacy(parser, one=True)
    options.add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Trains and writes the folder."""
    processes.set_up_jax(args.cache)
    out = folders.new(args.out)
    try:
        result, scorer = _train(args)
    except (ValueError, OSError):
        folders.remove_if_empty(out)
        raise
    _write(result, scorer, out, args)


def _train(args: argparse.Namespace):
    """The sweep of this one setting, and its model as a scorer."""
    import jax

    from fedjax_fraud import models
    from fedjax_fraud.conditions import IDEAL
    from fedjax_fraud.grid import CONDITION_KEYS
    from fedjax_fraud.scorer import make_scorer
    from fedjax_fraud.sweep import check_options, sweep

    chosen = dict(
        algorithms=[args.algorithm],
        alphas=[args.alpha],
        seeds=[args.seed],
        num_clients=args.clients,
        num_rounds=args.rounds,
        num_epochs=[args.epochs],
        batch_size=args.batch_size,
        client_lr=[args.client_lr],
        mu=[args.mu],
        server_lr=None if args.server_lr is None else [args.server_lr],
        client_optimizer=args.client_optimizer,
        partition_kind=args.partition,
        min_positives=args.min_positives,
        bank_sizes=args.bank_sizes,
        bank_prevalences=args.bank_prevalences,
        noise_multiplier=[args.noise_multiplier],
        clip_norm=[args.clip_norm],
        delta=args.delta,
    )
    ideal = {name: [getattr(IDEAL, name)] for name in CONDITION_KEYS}
    check_options(**(ideal | chosen), straggler_work=IDEAL.straggler_work, max_update_norm=None)
    train, test = rows.load(args)
    hidden = tuple(args.hidden)
    with Display(args.quiet) as display:
        result = sweep(
            train,
            test,
            **chosen,
            partition_feature=args.partition_feature,
            model=models.perceptron(train.features.shape[1], hidden),
            baselines=False,
            progress=display,
        )
    if bool(result.rounds["diverged"].any()):
        raise ValueError(
            f"{args.algorithm} diverged: its last loss is {result.rounds['log_loss'].iloc[-1]:.3g}. "
            "Lower --client-lr, or choose another algorithm; nothing was written."
        )
    rows.record(result.manifest["config"], args)
    params = jax.tree.map(lambda leaf: leaf[0], result.params)
    return result, make_scorer(train, test, params, hidden=hidden, about=result.manifest)


def _write(result, scorer, out, args: argparse.Namespace) -> None:
    """The model, the report of its training, and what is printed."""
    from fedjax_fraud import report
    from fedjax_fraud.scorer import save_scorer

    with folders.writing(out):
        report.write(result._replace(params=None), out)  # the model is kept once, as a scorer
        path = save_scorer(scorer, out / MODEL)
    last, side = result.rounds.iloc[-1], result.manifest["data"]["test"]
    thresholds = {share: scorer.threshold(share) for share in SHARES}
    if args.json:
        print_json(
            dict(
                model=str(path),
                average_precision=last["average_precision"],
                roc_auc=last["roc_auc"],
                log_loss=last["log_loss"],
                test=side,
                thresholds=thresholds,
            )
        )
        return
    print(
        f"Average precision {last['average_precision']:.4f} on {side['num_rows']:,} test rows "
        f"(prevalence {side['prevalence']:.4f}), ROC-AUC {last['roc_auc']:.3f}, log loss {last['log_loss']:.4f}. "
        "One seed: no interval; `fedjax-fraud sweep` gives one."
    )
    if "epsilon" in result.banks:
        print(
            f"Privacy: at delta {args.delta:g}, epsilon of a row is at most {result.banks['epsilon'].max():.3g} (any "
            "bank); the thresholds below and the scaling of features are not private."
        )
    for share, threshold in thresholds.items():
        print(f"Alerts on {100 * share:g} % of the transactions: probability {threshold:.4f} or more")
    print(f"Model: {path}, report: {out / 'dossier.md'}")
