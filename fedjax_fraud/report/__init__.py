"""From a sweep's result to what people read: tables, pictures, a dossier, a folder of files, lines for a terminal."""

from fedjax_fraud.files import strict_json, write_bytes_atomically

from .bank_tables import bank_summary, bank_table, partition_table
from .bundle import write, write_partitions
from .compare import as_json, compare, differences, load_runs
from .compare_view import (
    check_comparison_file,
    comparison_lines,
    comparison_page,
    comparison_tables,
    print_comparison,
    write_comparison,
)
from .console import partition_lines, print_partitions, print_summary, summary_lines, summary_tables
from .dossier import dossier
from .intervals import Interval, mean_interval
from .plan_view import plan_lines, print_plan
from .store import StoredResult, check_output_folder, load
from .tables import (
    best_settings,
    cost_to_target,
    paired_differences,
    score_targets,
    summarise,
)

__all__ = [
    "Interval",
    "StoredResult",
    "as_json",
    "bank_summary",
    "bank_table",
    "best_settings",
    "check_comparison_file",
    "check_output_folder",
    "compare",
    "comparison_lines",
    "comparison_page",
    "comparison_tables",
    "cost_to_target",
    "differences",
    "dossier",
    "load",
    "load_runs",
    "mean_interval",
    "paired_differences",
    "partition_lines",
    "partition_table",
    "plan_lines",
    "print_comparison",
    "print_partitions",
    "print_plan",
    "print_summary",
    "score_targets",
    "strict_json",
    "summarise",
    "summary_lines",
    "summary_tables",
    "write",
    "write_bytes_atomically",
    "write_comparison",
    "write_partitions",
]
