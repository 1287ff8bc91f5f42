"""What the site needs beyond the pages: the measured results that pages link to, which stand outside ``docs/``."""

import pathlib
import re

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = "benchmarks/results"


def on_files(files: Files, config) -> Files:
    """Adds the pages and pictures of the measured results."""
    for path in sorted((ROOT / RESULTS).iterdir()):
        if path.suffix in (".md", ".png"):
            files.append(File.generated(config, f"{RESULTS}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page, **_) -> str:
    """Links from a page in ``docs/`` to the results, which on the site stand beside it."""
    if page.file.src_uri.startswith("benchmarks/"):
        return markdown
    return re.sub(rf"\]\(\.\./{RESULTS}/", f"]({RESULTS}/", markdown)
