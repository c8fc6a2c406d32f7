"""Images to features as the definitions say, a pixel at a time."""

from __future__ import annotations

from fractions import Fraction

Image = list[list[int]]


def ink_box(image: Image, ink: int) -> Image:
    """The smallest box that holds every pixel of at least `ink`; empty for a blank image."""
    rows = [r for r, line in enumerate(image) if any(value >= ink for value in line)]
    columns = [c for c in range(len(image[0])) if any(line[c] >= ink for line in image)]
    if not rows:
        return []
    return [line[columns[0] : columns[-1] + 1] for line in image[rows[0] : rows[-1] + 1]]


def shrunk(image: Image, rows: int, columns: int) -> Image:
    """The image as large as fits into rows x columns with its proportions, each new pixel the mean of its area."""
    height, width = len(image), len(image[0])
    factor = min(Fraction(rows, height), Fraction(columns, width))
    new_rows, new_columns = (max(1, half_up(side * factor)) for side in (height, width))

    def mean(row: int, column: int) -> int:
        top, bottom = Fraction(row * height, new_rows), Fraction((row + 1) * height, new_rows)
        left, right = Fraction(column * width, new_columns), Fraction((column + 1) * width, new_columns)
        total = sum(
            (min(bottom, r + 1) - max(top, r)) * (min(right, c + 1) - max(left, c)) * image[r][c]
            for r in range(height)
            for c in range(width)
            if min(bottom, r + 1) > max(top, r) and min(right, c + 1) > max(left, c)
        )
        return half_up(total / ((bottom - top) * (right - left)))

    return [[mean(row, column) for column in range(new_columns)] for row in range(new_rows)]


def half_up(value: Fraction) -> int:
    return (value + Fraction(1, 2)).__floor__()


def fitted(image: Image, rows: int, columns: int, crop: bool, ink: int) -> Image:
    """The image, or the box of its ink, in the middle of a black canvas; scaled down if it does not fit."""
    box = ink_box(image, ink) if crop else image
    canvas = [[0] * columns for _ in range(rows)]
    if not box:
        return canvas
    if len(box) > rows or len(box[0]) > columns:
        box = shrunk(box, rows, columns)
    top, left = (rows - len(box)) // 2, (columns - len(box[0])) // 2
    for r, line in enumerate(box):
        for c, value in enumerate(line):
            canvas[top + r][left + c] = value
    return canvas


def neighbours(bits: list[list[bool]], stride: str) -> dict[str, bool]:
    """The directional features of Ho 1995 of a binary image, by name.

    H, V, N and S are pairs of pixels two apart; H', V', N' and S' are the OR of four pairs. With stride "paper" H' is
    taken at every second row, V' at every second column, N' and S' at every second row and column.
    """
    rows, columns = len(bits), len(bits[0])

    def pair(i: int, j: int, down: int, right: int) -> bool | None:
        """Both pixels are set; None where one is outside."""
        if not (0 <= i < rows and 0 <= j < columns and 0 <= i + down < rows and 0 <= j + right < columns):
            return None
        return bits[i][j] and bits[i + down][j + right]

    found: dict[str, bool] = {}
    for letter, down, right, run in (
        ("h", 0, 2, [(k, 0) for k in range(4)]),
        ("v", 2, 0, [(0, k) for k in range(4)]),
        ("n", 2, 2, [(k, -k) for k in range(4)]),
        ("s", 2, -2, [(k, k) for k in range(4)]),
    ):
        places = {}
        for i in range(rows):
            for j in range(columns):
                pairs = [pair(i + a, j + b, down, right) for a, b in run]
                if None not in pairs:
                    places[i, j] = any(pairs)
        used_rows = sorted({i for i, _ in places})[:: 2 if stride == "paper" and letter in "hns" else 1]
        used_columns = sorted({j for _, j in places})[:: 2 if stride == "paper" and letter in "vns" else 1]
        found.update({f"{letter}_{i}_{j}": places[i, j] for i in used_rows for j in used_columns})
    return found


def features(image: Image, kind: str, stride: str, threshold: int | None) -> dict[str, int | bool]:
    """All features of a fitted image, by name, in order."""
    if threshold is None:
        return {f"p_{r}_{c}": value for r, line in enumerate(image) for c, value in enumerate(line)}
    bits = [[value >= threshold for value in line] for line in image]
    found = {f"p_{r}_{c}": value for r, line in enumerate(bits) for c, value in enumerate(line)}
    return found | (neighbours(bits, stride) if kind == "neighbours" else {})
