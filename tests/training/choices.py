"""What tests of options that a table chooses share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

import bigforest as bf
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.training.choose import rules_for


def rules(config: TrainConfig, features: int, rows: int, classes: int = 1) -> list[object]:
    """The values of `mtry` that may be chosen for a table of this size."""
    return [rule.mtry for rule in rules_for(config, Shape(rows, (1,) * features, 2 * features, classes))]


def check_choice(frame: pl.DataFrame, folder: Path, usual: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
    """The forest in the folder, of ten trees and the target y, is the one of the `chosen` options, better than that of
    the `usual` ones, and keeps them when trees are added."""
    forest, said = bf.read_forest(folder), bf.train(frame, "y", trees=10, **chosen)
    assert forest.config == said.config
    assert forest.nodes.collect().equals(said.nodes.collect())
    assert forest.oob.error < bf.train(frame, "y", trees=10, **usual).oob.error
    assert bf.train(frame, resume=folder, trees=15).config == replace(said.config, trees=15)
