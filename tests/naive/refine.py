"""The boosted stage, slow and plain: sums are Python integers, and scores float64 in the order of the kernels."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import combinations
from typing import NamedTuple

from tests.naive.rng import GOLDEN, MASK, mix, stream_key
from tests.naive.split import threshold_between

PURPOSE_REFINE = 9
RATE, LEAVES, PENALTY, SMOOTH = 0.5, 15, 1.0, 10.0
MAX_BINS, LEAST_BINS, BIN_ROWS = 255, 32, 128
PAIRS = list(combinations(range(6), 2))

Row = Sequence[float | int | None]


class Column(NamedTuple):
    """Cells of a feature: numbers, or levels, and None for missing. gaps: cells of the table may be missing."""

    cells: Sequence[float | int | None]
    category: bool
    gaps: bool


class Tree(NamedTuple):
    """A node, with the number of its rows; a leaf has no feature."""

    rows: int
    value: list[float]
    feature: int | None = None
    threshold: float = math.nan
    default_left: bool = False
    listed: frozenset[int | None] = frozenset()
    left: Tree | None = None
    right: Tree | None = None

    def goes_left(self, cell: float | int | None, category: bool) -> bool:
        """Return True if a cell of the feature goes to the left child."""
        if category:
            return (cell in self.listed) != self.default_left
        return self.default_left if cell is None else cell <= self.threshold


def left_out(seed: int, number: int) -> tuple[int, int]:
    """The sequences that do not use the row, or the group, of this number."""
    key = stream_key(seed, PURPOSE_REFINE, 0, 0)
    random = mix((key + (number + 1) * GOLDEN) & MASK)
    return PAIRS[(random >> 32) * len(PAIRS) >> 32]


def exponential(x: float) -> float:
    """e**x by the rational function of fdlibm, from operations in a fixed order."""
    x = min(max(x, -700.0), 700.0)
    k = round(x * 1.44269504088896338700e00)  # halves to the even number
    high, low = x - k * 6.93147180369123816490e-01, k * 1.90821492927058770002e-10
    r = high - low
    t, series = r * r, 0.0
    for factor in (
        *(4.13813679705723846039e-08, -1.65339022054652515390e-06, 6.61375632143793436117e-05),
        *(-2.77777777770155933842e-03, 1.66666666666666019037e-01),
    ):
        series = series * t + factor
    c = r - t * series
    return math.ldexp(1.0 - ((low - (r * c) / (2.0 - c)) - high), k)


def link(loss: str, prediction: Sequence[float], least: float) -> list[float]:
    """The scores of a prediction: a number, or probabilities."""
    if loss == "squared":
        return list(prediction)
    if loss == "logistic":
        return [math.log(max(prediction[1], least) / max(prediction[0], least))]
    return [math.log(max(share, least)) for share in prediction]


def start(loss: str, prediction: Sequence[float], least: float) -> list[float]:
    """The number, the odds or the probabilities of a prediction."""
    if loss == "squared":
        return list(prediction)
    shares = [max(share, least) for share in prediction]
    return [shares[1] / shares[0]] if loss == "logistic" else shares


def corrected(loss: str, start: Sequence[float], added: Sequence[float]) -> list[float]:
    """Return the number or probabilities of `start` after `added` was added to the scores."""
    if loss == "squared":
        return [own + more for own, more in zip(start, added, strict=True)]
    most = max(added) if loss == "softmax" else 0.0
    found = [min(own * exponential(more - most), 1e304) for own, more in zip(start, added, strict=True)]
    if loss == "logistic":
        return [found[0] / (1.0 + found[0])]
    total = 0.0
    for own in found:
        total += own
    return [own / total for own in found] if loss == "softmax" else found


def slopes(loss: str, means: Sequence[float], truth: float, weight: float) -> list[tuple[float, float]]:
    """Gradient and curvature of the loss of a row by each score, from its predictions."""
    found = []
    for k, mean in enumerate(means):
        wanted = truth if loss != "softmax" else float(k == truth)
        curve = {"squared": 1.0, "poisson": mean}.get(loss, mean * (1.0 - mean))
        found.append((weight * (mean - wanted), weight * curve))
    return found


class _Sums(NamedTuple):
    """Sums of the slopes of some rows, as whole numbers; rows: the number of rows."""

    gradient: list[int]
    curvature: list[int]
    rows: int

    @classmethod
    def of(cls, whole: Sequence[Sequence[tuple[int, int]]], outputs: int) -> _Sums:
        return cls(*([sum(row[k][part] for row in whole) for k in range(outputs)] for part in (0, 1)), len(whole))

    def less(self, other: _Sums) -> _Sums:
        pairs = zip(self[:2], other[:2], strict=True)
        return _Sums(*([a - b for a, b in zip(*pair, strict=True)] for pair in pairs), self.rows - other.rows)


def _scores(sides: Sequence[_Sums], units: tuple[float, float], penalty: float) -> float:
    found = 0.0
    for k in range(len(sides[0].gradient)):
        for side in sides:
            slope = side.gradient[k] * units[0]
            found += slope * slope / (side.curvature[k] * units[1] + penalty)
    return found


def grow(
    columns: Sequence[Column],
    truth: Sequence[float],
    weight: Sequence[float],
    start: Sequence[Sequence[float]],
    loss: str,
    key: int,
    rounds: int,
    least: int,
) -> list[Tree]:
    """Trees of a sequence from the first round on."""
    size, outputs = len(truth), len(start[0])
    added = [[0.0] * outputs for _ in range(size)]
    trees = []
    drawn = len(columns) if outputs == 1 else max(1, round(0.4 * len(columns)))
    for number in range(rounds):
        found = [slopes(loss, corrected(loss, start[i], added[i]), truth[i], weight[i]) for i in range(size)]
        units, whole = [], [[[0, 0] for _ in range(outputs)] for _ in range(size)]
        for part in (0, 1):
            total = 0.0
            for row in found:
                for pair in row:
                    total += abs(pair[part])
            exponent = math.frexp(max(total, 1e-290))[1] - 31
            units.append(math.ldexp(1.0, exponent))
            for i, row in enumerate(found):
                for k, pair in enumerate(row):
                    whole[i][k][part] = int(pair[part] * math.ldexp(1.0, -exponent))
        order, state = list(range(len(columns))), mix(key ^ mix((number + GOLDEN) & MASK))
        for place in range(drawn):
            state = (state + GOLDEN) & MASK
            other = place + ((mix(state) >> 32) * (len(order) - place) >> 32)
            order[place], order[other] = order[other], order[place]
        pairs = [[(one[0], one[1]) for one in row] for row in whole]
        tree, values = _grow_tree(columns, order[:drawn], pairs, (units[0], units[1]), least, outputs)
        trees.append(tree)
        for i in range(size):
            added[i] = [a + v for a, v in zip(added[i], values[i], strict=True)]
    return trees


class _Node:
    """A node under construction."""

    def __init__(self, rows: list[int], total: _Sums) -> None:
        self.rows, self.total = rows, total
        self.best: tuple[float, int, Tree] | None = None  # gain, feature, and a node with the rule
        self.children: tuple[_Node, _Node] | None = None


def _grow_tree(
    columns: Sequence[Column],
    features: Sequence[int],
    whole: Sequence[Sequence[tuple[int, int]]],
    units: tuple[float, float],
    least: int,
    outputs: int,
) -> tuple[Tree, list[list[float]]]:
    def made(rows: list[int]) -> _Node:
        node = _Node(rows, _Sums.of([whole[i] for i in rows], outputs))
        node.best = _best(columns, features, whole, node, units, least, outputs)
        return node

    nodes = [made(list(range(len(whole))))]
    while sum(node.children is None for node in nodes) < LEAVES:
        open_nodes = [node for node in nodes if node.children is None and node.best is not None]
        if not open_nodes:
            break
        node = max(open_nodes, key=lambda node: node.best[0] if node.best else 0.0)  # the first of the largest
        assert node.best is not None
        _, feature, rule = node.best
        left = [i for i in node.rows if rule.goes_left(columns[feature].cells[i], columns[feature].category)]
        right = [i for i in node.rows if i not in set(left)]
        node.children = made(left), made(right)
        nodes += node.children
    values: list[list[float]] = [[] for _ in whole]

    def finished(node: _Node) -> Tree:
        value = [
            -(RATE * (gradient * units[0] / (curvature * units[1] + PENALTY)))
            for gradient, curvature in zip(node.total.gradient, node.total.curvature, strict=True)
        ]
        if node.children is None:
            for i in node.rows:
                values[i] = value
            return Tree(len(node.rows), value)
        assert node.best is not None
        left, right = map(finished, node.children)
        return node.best[2]._replace(rows=len(node.rows), value=value, left=left, right=right)

    return finished(nodes[0]), values


def _best(
    columns: Sequence[Column],
    features: Sequence[int],
    whole: Sequence[Sequence[tuple[int, int]]],
    node: _Node,
    units: tuple[float, float],
    least: int,
    outputs: int,
) -> tuple[float, int, Tree] | None:
    own = _scores([node.total], units, PENALTY)
    best, found = own, None
    size = len(node.rows)
    for feature in features:
        column = columns[feature]
        cells = {i: column.cells[i] for i in node.rows}

        def tried(left: list[int], penalty: float) -> float:
            """Return the score of the split with these rows on the left."""
            if not least <= len(left) <= size - least:
                return -math.inf
            one = _Sums.of([whole[i] for i in left], outputs)
            return _scores([one, node.total.less(one)], units, penalty)

        if column.category:
            levels = sorted(set(cells.values()), key=lambda level: (level is not None, level or 0))
            sums = {level: _Sums.of([whole[i] for i in node.rows if cells[i] == level], outputs) for level in levels}
            levels = _ordered(sums, units)
            for count in range(1, len(levels)):
                left = [i for i in node.rows if cells[i] in levels[:count]]
                score = tried(left, PENALTY + SMOOTH)
                if score > best:
                    default = 2 * len(left) >= size
                    listed = frozenset(levels[count:] if default else levels[:count])
                    best, found = score, (feature, Tree(0, [], feature, math.nan, default, listed))
            continue
        values = sorted({cell for cell in column.cells if cell is not None})  # of all rows of the sequence
        ends = _bin_ends(column)
        missing = [i for i in node.rows if cells[i] is None]
        for missing_left in (True, False) if missing else (True,):
            for value in sorted({min(e for e in ends if e >= cell) for cell in cells.values() if cell is not None}):
                left = [i for i in node.rows if (missing_left if cells[i] is None else cells[i] <= value)]
                score = tried(left, PENALTY)
                if score > best:
                    above = [other for other in values if other > value]
                    threshold = threshold_between(value, above[0]) if above else math.inf
                    default = missing_left if missing else 2 * len(left) >= size
                    best, found = score, (feature, Tree(0, [], feature, threshold, default))
    return None if found is None else (best - own, *found)


def _bin_ends(column: Column) -> list[float]:
    """Return the largest value of each bin: a bin per value or, for many values, stretches of about equal size."""
    cells = sorted(cell for cell in column.cells if cell is not None)
    most = min(MAX_BINS, max(LEAST_BINS, len(cells) // BIN_ROWS)) - column.gaps
    last = {cell: place for place, cell in enumerate(cells)}
    if len(last) <= most:
        return list(last)
    return list({place * most // len(cells): cell for cell, place in last.items()}.values())


def _ordered(sums: dict[int | None, _Sums], units: tuple[float, float]) -> list[int | None]:
    """Return the levels by gradient / curvature, for the output with the largest differences between levels."""

    def of(level: int | None, k: int) -> tuple[float, float]:
        return sums[level].gradient[k] * units[0], sums[level].curvature[k] * units[1] + SMOOTH

    differences = []
    for k in range(len(next(iter(sums.values())).gradient)):
        total = 0.0
        for level in sums:
            slope, curve = of(level, k)
            total += slope * slope / curve
        differences.append(total)
    chosen = differences.index(max(differences))
    return sorted(sums, key=lambda level: of(level, chosen)[0] / of(level, chosen)[1])  # stable


def add(tree: Tree, row: Row, category: Sequence[bool]) -> list[float]:
    """Return the values that a tree adds to the scores of a row."""
    while tree.feature is not None:
        assert tree.left is not None
        assert tree.right is not None
        side = tree.goes_left(row[tree.feature], category[tree.feature])
        tree = tree.left if side else tree.right
    return tree.value


def refined(
    loss: str,
    prediction: Sequence[float],
    least: float,
    sequences: Sequence[Sequence[Tree]],
    row: Row,
    category: Sequence[bool],
    factor: float = 1.0,
) -> list[float]:
    """The prediction of a row, corrected by the mean of some sequences, times a factor."""
    total = [0.0] * (1 if loss == "logistic" else len(prediction))
    for trees in sequences:
        for tree in trees:
            total = [t + v for t, v in zip(total, add(tree, row, category), strict=True)]
    mean = [factor * t / len(sequences) for t in total]
    if loss == "logistic":  # as softmax, so that neither share is 1 minus the other
        return corrected("softmax", [max(share, least) for share in prediction], [0.0, *mean])
    return corrected(loss, start(loss, prediction, least), mean)


def expectation(tree: Tree, row: Row, known: Collection[int], category: Sequence[bool]) -> list[float]:
    """Return the values of a tree from the features `known` alone; at other nodes the mean of both sides, by rows."""
    if tree.feature is None:
        return tree.value
    assert tree.left is not None
    assert tree.right is not None
    if tree.feature in known:
        side = tree.left if tree.goes_left(row[tree.feature], category[tree.feature]) else tree.right
        return expectation(side, row, known, category)
    sides = [(side.rows / tree.rows, expectation(side, row, known, category)) for side in (tree.left, tree.right)]
    return [math.fsum(share * own[k] for share, own in sides) for k in range(len(tree.value))]


def path_contributions(tree: Tree, row: Row, features: int, category: Sequence[bool]) -> list[list[float]]:
    """Return the change of the values of a tree by each feature along the path, [features][outputs]."""
    found = [[0.0] * len(tree.value) for _ in range(features)]
    while tree.feature is not None:
        assert tree.left is not None
        assert tree.right is not None
        child = tree.left if tree.goes_left(row[tree.feature], category[tree.feature]) else tree.right
        pair = expectation(child, row, (), category), expectation(tree, row, (), category)
        found[tree.feature] = [old + a - b for old, a, b in zip(found[tree.feature], *pair, strict=True)]
        tree = child
    return found


def scores(loss: str, prediction: Sequence[float], least: float, power: float, sums: float) -> list[float]:
    """Return scores from the shares of votes. With softmax, a score depends on the share of its class and on `sums`.

    sums  sum of the powers of all shares of the row. Its logarithm is left out of the scores with softmax
    """
    if loss == "softmax":
        return [power * math.log(max(share, (least * sums) ** (1.0 / power))) for share in prediction]
    if loss == "logistic":
        total = math.fsum(share**power for share in prediction)
        return link(loss, [share**power / total for share in prediction], least)
    return link(loss, prediction, least)


class RowLosses(NamedTuple):
    """Weighted losses of a row by number of rounds, from 0 on.

    bucket        rows of a bucket are compared as one row
    reported      loss with the two sequences that leave the row out, as in the report
    extrapolated  loss extrapolated to all six sequences
    """

    bucket: int
    reported: list[float]
    extrapolated: list[float]


def bucket_of(seed: int, number: int) -> int:
    """The bucket, of 1,024, of the row or group of this number."""
    return mix((stream_key(seed, PURPOSE_REFINE, 3, 0) + (number + 1) * GOLDEN) & MASK) >> 54


def row_loss(prediction: Sequence[float], truth: float) -> float:
    """The squared error of a number, or the log loss of a class."""
    return (prediction[0] - truth) ** 2 if len(prediction) == 1 else -math.log(prediction[int(truth)])


def least_loss(rows: Sequence[RowLosses]) -> float:
    """Return the least extrapolated loss over the numbers of rounds."""
    return min(math.fsum(losses) for losses in zip(*(row.extrapolated for row in rows), strict=True))


def choose(rows: Sequence[RowLosses]) -> int:
    """Return the number of rounds, by place, with the least extrapolated loss, or 0 if it gains too little.

    The gain over no rounds must exceed half its standard error over buckets. The reported loss must be lower, too.
    """
    totals = [math.fsum(losses) for losses in zip(*(row.extrapolated for row in rows), strict=True)]
    best = totals.index(min(totals))
    by_bucket: dict[int, float] = {}
    for row in rows:
        gain = row.extrapolated[0] - row.extrapolated[best]
        by_bucket[row.bucket] = by_bucket.get(row.bucket, 0.0) + gain
    gains, reported = list(by_bucket.values()), math.fsum(row.reported[0] - row.reported[best] for row in rows)
    mean = math.fsum(gains) / len(gains)
    error = math.sqrt(math.fsum((gain - mean) ** 2 for gain in gains))
    return best if math.fsum(gains) > 0.5 * error and reported > 0.0 else 0
