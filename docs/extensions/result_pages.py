"""Pages of what was measured, made at build time from the result files in benchmarks/ into measured/results/."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent.parent
BENCHMARKS = ROOT / "benchmarks"

# Pages that are not called as their files.
_NAMES = {"sklearn_forest_tests.md": "sklearn-tests"}


def results() -> dict[str, str]:
    """The result files and the names of their pages."""
    files = sorted(BENCHMARKS.rglob("*.md"))
    places = [str(file.relative_to(BENCHMARKS)) for file in files if "results" not in file.parts]
    return {place: _NAMES.get(place, Path(place).stem) for place in places}


def page_text(text: str, source: str) -> str:
    """A result file as a page: a title, where it stands, images beside it, links to other results to their pages."""
    pages = results()
    if not text.startswith("# "):
        text = f"# {Path(source).stem}\n\n{text}"

    def target(found: re.Match[str]) -> str:
        label, place = found[1], found[2]
        if "://" in place or place.startswith("#"):
            return found[0]
        name = Path(place).name
        if place in pages:
            return f"[{label}]({pages[place]}.md)"
        return f"[{label}]({name})" if name.endswith(".png") else f"{label} (`{name}`)"

    head, _, rest = text.partition("\n")
    rest = re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", target, rest)
    return f"{head}\n\n*The file `benchmarks/{source}` of the sources.*\n{rest}"


def write_pages(folder: Path) -> None:
    """Write a page for every result file, and the pictures beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for source, name in results().items():
        page = page_text((BENCHMARKS / source).read_text(encoding="utf-8"), source)
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != page:
            path.write_text(page, encoding="utf-8")
    for picture in BENCHMARKS.rglob("*.png"):
        if "results" not in picture.parts:
            shutil.copyfile(picture, folder / picture.name)


def _write(app: Sphinx) -> None:
    write_pages(Path(app.srcdir) / "measured" / "results")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before Sphinx looks for them."""
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
