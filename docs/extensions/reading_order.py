"""Pages that are executed are spread over the processes of Sphinx, which would read neighbours in one process.

Sphinx cuts the list of pages into chunks of neighbours and gives each process the next one. Executed pages take nearly
all of the time, and stand beside each other in the gallery and the guide. Here they are dealt to the chunks, those with
most cells first, each to the chunk that has fewest so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sphinx.util.parallel import make_chunks

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

# What takes time: a cell, and a command in a cell.
_CELLS = ("```{code-cell}", "\nbigforest ")


def dealt(cells: dict[str, int], processes: int) -> list[str]:
    """The pages in the order in which Sphinx is to read them; `cells` says how many there are in each."""
    pages = list(cells)
    sizes = [len(chunk) for chunk in make_chunks(pages, processes)]
    # As many chunks as all processes have; what is left over has pages without cells.
    full = len(sizes) - len(sizes) % processes or len(sizes)
    chunks: list[list[str]] = [[] for _ in sizes]
    loads = [0] * full
    for page in sorted((page for page in pages if cells[page]), key=lambda page: -cells[page]):
        room = [place for place in range(full) if len(chunks[place]) < sizes[place]]
        if not room:
            break
        place = min(room, key=loads.__getitem__)
        chunks[place].append(page)
        loads[place] += cells[page]
    rest = iter([page for page in pages if not any(page in chunk for chunk in chunks)])
    for chunk, size in zip(chunks, sizes, strict=True):
        chunk += [next(rest) for _ in range(size - len(chunk))]
    return [page for chunk in chunks for page in chunk]


def _spread(app: Sphinx, env: BuildEnvironment, pages: list[str]) -> None:
    if app.parallel < 2 or len(pages) < 2:
        return
    cells = {}
    for page in pages:
        text = env.doc2path(page).read_text(encoding="utf-8")
        cells[page] = sum(map(text.count, _CELLS)) if _CELLS[0] in text else 0
    pages[:] = dealt(cells, app.parallel)


def setup(app: Sphinx) -> dict[str, bool]:
    """Order the pages before they are read."""
    app.connect("env-before-read-docs", _spread)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
