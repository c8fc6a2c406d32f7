"""Explanations one row and one tree at a time, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from types import MappingProxyType
from typing import Any

from bigforest.forest.nodes import TreeArrays
from bigforest.kernels.common.layout import LEAF, OBLIQUE
from tests.naive import rng
from tests.naive.predict import Names, find_leaf, goes_left
from tests.naive.shrinkage import shrunk

PURPOSE_PERMUTE = 101
NO_NAMES: Names = MappingProxyType({})
Answers = list[list[float]]
Row = Sequence[Any]
# Values of leaves: "soft", "hard", shrunk by a lambda (float), or given as the result of `answers`.
Vote = str | float | Answers


def answers(tree: TreeArrays, vote: Vote = "soft") -> Answers:
    """Return the value of every node: the ballot of a leaf, or the mean of the leaves below, weighted by the bag."""
    if isinstance(vote, list):
        return vote
    found: Answers = []
    for node in range(tree.feature.size):
        below = list(leaves_below(tree, node))
        ballots = [_ballot(tree, leaf, vote) for leaf in below]
        weights = [float(tree.weight[leaf]) for leaf in below]
        total = math.fsum(weights)
        pairs = list(zip(weights, ballots, strict=True))
        found.append([math.fsum(w * own[k] for w, own in pairs) / total for k in range(len(ballots[0]))])
    return found


def _ballot(tree: TreeArrays, leaf: int, vote: Vote) -> list[float]:
    if isinstance(vote, list):
        return vote[leaf]
    if isinstance(vote, float):
        return [float(share) for share in shrunk(tree, leaf, vote)]
    if tree.value is not None:
        return [float(tree.value[leaf])]
    counts = tree.counts[leaf].tolist()
    if vote == "hard":
        return [1.0 if k == counts.index(max(counts)) else 0.0 for k in range(len(counts))]
    return [count / sum(counts) for count in counts]


def leaves_below(tree: TreeArrays, node: int) -> Iterator[int]:
    """The leaves of the subtree at a node."""
    if tree.feature[node] == LEAF:
        yield node
    else:
        yield from leaves_below(tree, node + 1)
        yield from leaves_below(tree, int(tree.right[node]))


def path(tree: TreeArrays, row: Row, names: Names = NO_NAMES) -> list[int]:
    """The nodes from the root to the leaf of a row."""
    nodes = [0]
    while tree.feature[nodes[-1]] != LEAF:
        node = nodes[-1]
        nodes.append(node + 1 if goes_left(tree, node, row, names) else int(tree.right[node]))
    return nodes


def features_at(tree: TreeArrays, node: int) -> list[int]:
    """Return the features of the split of an inner node."""
    if tree.feature[node] != OBLIQUE:
        return [int(tree.feature[node])]
    assert tree.terms is not None
    found: list[int] = tree.terms.feature[tree.terms.start[node] : tree.terms.start[node + 1]].tolist()
    return found


def shuffled(values: Sequence[Any], seed: int, tree: int, stream: int) -> list[Any]:
    """Return the values, shuffled by the stream of (seed, tree, stream)."""
    state, order = rng.stream_key(seed, PURPOSE_PERMUTE, tree, stream), list(values)
    for last in range(len(order) - 1, -1, -1):
        state = (state + rng.GOLDEN) & rng.MASK
        other = ((rng.mix(state) >> 32) * (last + 1)) >> 32
        order[last], order[other] = order[other], order[last]
    return order


def loss_of(answer: Sequence[float], truth: Any, loss: str) -> float:
    """Return the loss of a prediction on a row."""
    if loss == "mse":
        return (answer[0] - truth) ** 2
    if loss == "poisson_deviance":
        return 2.0 * ((truth * math.log(truth / answer[0]) if truth else 0.0) - truth + answer[0])
    if loss == "error":
        return float(answer.index(max(answer)) != truth)
    least = 2.0**-52
    return -math.log(min(max(answer[truth], least), 1 - least))


def permuted_change(
    tree: TreeArrays,
    rows: Sequence[Row],
    truth: Sequence[Any],
    weight: Sequence[float],
    places: Iterable[int],
    draws: tuple[int, int, int],
    loss: str,
    names: Names = NO_NAMES,
) -> float:
    """Return the weighted sum over rows of the increase of the loss if the features `places` are permuted."""
    seed, number, stream = draws
    columns = {place: shuffled([row[place] for row in rows], seed, number, stream) for place in places}
    known = answers(tree)
    change = []
    for i, row in enumerate(rows):
        other = [columns[place][i] if place in columns else cell for place, cell in enumerate(row)]
        before = loss_of(known[find_leaf(tree, row, names)], truth[i], loss)
        after = loss_of(known[find_leaf(tree, other, names)], truth[i], loss)
        change.append(weight[i] * (after - before))
    return math.fsum(change)


def path_contributions(
    tree: TreeArrays, row: Row, features: int, names: Names = NO_NAMES, vote: Vote = "soft"
) -> Answers:
    """Return the change of the value by each feature along the path, [features][classes]."""
    known = answers(tree, vote)
    found = [[0.0] * len(known[0]) for _ in range(features)]
    for node, child in pairwise(path(tree, row, names)):
        looked = features_at(tree, node)
        for place in looked:
            for k in range(len(known[0])):
                found[place][k] += (known[child][k] - known[node][k]) / len(looked)
    return found


def oob_decrease(
    tree: TreeArrays,
    rows: Sequence[Row],
    truth: Sequence[Any],
    weight: Sequence[float],
    features: int,
    names: Names = NO_NAMES,
) -> list[float]:
    """MDI-oob: the mean over the rows of label times contribution, summed over the classes."""
    total, known = [0.0] * features, answers(tree)
    for row, own, w in zip(rows, truth, weight, strict=True):
        contributions = path_contributions(tree, row, features, names, known)
        for place in range(features):
            label = own if tree.value is not None else 1.0
            total[place] += w * label * contributions[place][0 if tree.value is not None else own]
    return [value / math.fsum(weight) for value in total]


def expectation(
    tree: TreeArrays, row: Row, known: set[int], node: int = 0, names: Names = NO_NAMES, vote: Vote = "soft"
) -> list[float]:
    """Return the prediction from the features `known` alone; at other nodes the mean of both sides, by bag weight."""
    if tree.feature[node] == LEAF:
        return _ballot(tree, node, vote)
    left, right = node + 1, int(tree.right[node])
    if int(tree.feature[node]) in known:
        child = left if goes_left(tree, node, row, names) else right
        return expectation(tree, row, known, child, names, vote)
    a, b = float(tree.weight[left]), float(tree.weight[right])
    pairs = zip(
        expectation(tree, row, known, left, names, vote), expectation(tree, row, known, right, names, vote), strict=True
    )
    return [(a * x + b * y) / (a + b) for x, y in pairs]


def shapley(tree: TreeArrays, row: Row, features: int, names: Names = NO_NAMES, vote: Vote = "soft") -> Answers:
    """Return Shapley values, [features][classes]; the worth of a set of features is its `expectation`."""
    return shapley_values(features, lambda known: expectation(tree, row, known, 0, names, vote))


def shapley_values(features: int, worth: Callable[[set[int]], Sequence[float]]) -> Answers:
    """Shapley values by their definition, over all subsets of the features, [features][outputs]."""
    known = {
        frozenset(subset): worth(set(subset))
        for size in range(features + 1)
        for subset in combinations(range(features), size)
    }
    found: Answers = []
    for place in range(features):
        total = [0.0] * len(known[frozenset()])
        for subset, without in known.items():
            if place not in subset:
                size, with_it = len(subset), known[subset | {place}]
                share = math.factorial(size) * math.factorial(features - 1 - size) / math.factorial(features)
                total = [t + share * (a - b) for t, a, b in zip(total, with_it, without, strict=True)]
        found.append(total)
    return found


def interaction(
    tree: TreeArrays, row: Row, features: int, names: Names = NO_NAMES, vote: Vote = "soft"
) -> list[Answers]:
    """Return Shapley interactions, [features][features][classes]: of pairs i < j, and the rest on the diagonal."""
    values, classes = shapley(tree, row, features, names, vote), len(answers(tree, vote)[0])
    known = {
        frozenset(subset): expectation(tree, row, set(subset), 0, names, vote)
        for size in range(features + 1)
        for subset in combinations(range(features), size)
    }
    found = [[[0.0] * classes for _ in range(features)] for _ in range(features)]
    for i, j in combinations(range(features), 2):
        others = [other for other in range(features) if other not in (i, j)]
        for size in range(features - 1):
            share = math.factorial(size) * math.factorial(features - 2 - size) / math.factorial(features - 1)
            for subset in map(frozenset, combinations(others, size)):
                for k in range(classes):
                    both, neither = known[subset | {i, j}][k], known[subset][k]
                    found[i][j][k] += share * (both - known[subset | {i}][k] - known[subset | {j}][k] + neither)
    for i in range(features):
        for k in range(classes):
            pairs = math.fsum(found[min(i, j)][max(i, j)][k] for j in range(features) if j != i)
            found[i][i][k] = values[i][k] - pairs / 2
    return found


def filled(share: Sequence[float], values: Sequence[Any], category: bool) -> tuple[Any, float]:
    """Return the value that replaces a missing value, and the sum of the proximities of the rows with a value.

    share   proximity to each row
    values  value of each row, None for missing; the code of a category
    """
    known = [(p, value) for p, value in zip(share, values, strict=True) if p > 0 and value is not None]
    mass = math.fsum(p for p, _ in known)
    if not known:
        return None, 0.0
    if category:
        sums = {code: math.fsum(p for p, own in known if own == code) for _, code in known}
        return min(sums, key=lambda code: (-round(sums[code], 12), code)), mass
    return math.fsum(p * value for p, value in known) / mass, mass


def strength(
    votes: Sequence[Sequence[int | None]], truth: Sequence[int], weight: Sequence[float], classes: int
) -> dict[str, float | None]:
    """Return strength, correlation, bound and error of a forest.

    votes  [trees][rows], voted class; None for a row of the bag
    """
    margin: dict[int, float] = {}
    runner_up: dict[int, int] = {}
    wrong = total = 0.0
    for i, own in enumerate(truth):
        heard = [tree[i] for tree in votes if tree[i] is not None]
        if not heard:
            continue
        counts = [heard.count(k) for k in range(classes)]
        runner_up[i] = min((k for k in range(classes) if k != own), key=lambda k: (-counts[k], k))
        margin[i] = (counts[own] - counts[runner_up[i]]) / len(heard)
        total += weight[i]
        wrong += weight[i] * (counts.index(max(counts)) != own)
    s = sum(weight[i] * m for i, m in margin.items()) / total
    variance = sum(weight[i] * m * m for i, m in margin.items()) / total - s * s
    deviations = []
    for tree in votes:
        seen = [i for i, vote in enumerate(tree) if vote is not None]
        if seen:
            whole = sum(weight[i] for i in seen)
            # Variance of the raw margin (1, -1 or 0), from its values instead of the formula.
            raw = [(weight[i], (tree[i] == truth[i]) - (tree[i] == runner_up[i])) for i in seen]
            mean = sum(w * r for w, r in raw) / whole
            deviations.append(math.sqrt(max(0.0, sum(w * (r - mean) ** 2 for w, r in raw) / whole)))
    deviation = sum(deviations) / len(deviations)
    correlation = variance / deviation**2 if deviation > 0 else None
    bound = correlation * (1 - s * s) / s**2 if correlation is not None and s > 0 else None
    return {"strength": s, "variance": variance, "correlation": correlation, "bound": bound, "error": wrong / total}


def proximities(
    leaves: Sequence[Sequence[int]], bags: Sequence[Sequence[int]], weight: Sequence[float], row: int
) -> list[float]:
    """RF-GAP proximities of a row to all rows; leaves and bags are [trees][rows]."""
    trees = [tree for tree in range(len(leaves)) if bags[tree][row] == 0]
    found = [0.0] * len(weight)
    for tree in trees:
        inside = [j for j in range(len(weight)) if bags[tree][j] and leaves[tree][j] == leaves[tree][row]]
        total = sum(bags[tree][j] * weight[j] for j in inside)
        for j in inside:
            found[j] += bags[tree][j] * weight[j] / total / len(trees)
    return found


def refined_change(
    predicted: Callable[[int, Row], Sequence[float] | None],
    rows: Sequence[Row],
    truth: Sequence[Any],
    places: Iterable[int],
    draws: tuple[int, int, int],
    loss: str,
) -> list[float | None]:
    """Return the increase of the loss of each row if the features `places` are permuted, a mean over permutations.

    predicted  function of the number and the cells of a row that returns its out-of-bag prediction, or None
    draws      seed, number of permutations, and stream
    """
    seed, orders, stream = draws
    found: list[list[float]] = [[] for _ in rows]
    plain = [predicted(i, row) for i, row in enumerate(rows)]
    for repetition in range(orders):
        columns = {place: shuffled([row[place] for row in rows], seed, repetition, stream) for place in places}
        for i, (row, before) in enumerate(zip(rows, plain, strict=True)):
            other = [columns[place][i] if place in columns else cell for place, cell in enumerate(row)]
            after = before if other == row else predicted(i, other)
            if before is not None and after is not None:
                found[i].append(loss_of(after, truth[i], loss) - loss_of(before, truth[i], loss))
    return [math.fsum(own) / orders if own else None for own in found]
