"""From a sweep's result to what people read: tables, pictures, a dossier, a folder of files, lines for a terminal."""

from fedjax_fraud.files import strict_json, write_bytes_atomically

from .bundle import write, write_partitions
from .console import partition_lines, print_partitions, print_summary, summary_lines, summary_tables
from .dossier import dossier
from .store import StoredResult, check_output_folder, load
from .tables import (
    Interval,
    bank_summary,
    bank_table,
    best_settings,
    cost_to_target,
    mean_interval,
    paired_differences,
    partition_table,
    score_targets,
    summarise,
)

__all__ = [
    "Interval",
    "StoredResult",
    "bank_summary",
    "bank_table",
    "best_settings",
    "check_output_folder",
    "cost_to_target",
    "dossier",
    "load",
    "mean_interval",
    "paired_differences",
    "partition_lines",
    "partition_table",
    "print_partitions",
    "print_summary",
    "score_targets",
    "strict_json",
    "summarise",
    "summary_lines",
    "summary_tables",
    "write",
    "write_bytes_atomically",
    "write_partitions",
]
