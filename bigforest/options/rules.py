"""The rules between training options: which combinations are invalid."""

from __future__ import annotations

from bigforest.errors import ConfigError
from bigforest.options.names import base_family
from bigforest.options.train_options import TrainOptions
from bigforest.options.values import check_power


def check_rules(config: TrainOptions) -> None:
    """Raise ConfigError where options contradict each other."""
    _check_boosting(config)
    _check_bag(config)
    _check_calibration(config)
    _check_out_of_bag(config)
    _check_family(config)
    if not isinstance(config.power, str):
        check_power(config.power)


def _check_bag(config: TrainOptions) -> None:
    if config.group is not None and config.draws_by_class:
        raise ConfigError(f"whole groups cannot be drawn by class; drop group or sampling {config.sampling!r}")
    described = config.sample_fraction != 1.0 or not config.replace or config.sampling != "uniform"
    described = described or config.group is not None
    if not config.bootstrap and described:
        raise ConfigError(
            "sample_fraction, replace, sampling and group describe the bag, but bootstrap is off; drop one of them"
        )
    if config.sample_fraction > 1.0 and not config.replace:
        raise ConfigError(
            f"sample_fraction {config.sample_fraction} draws rows more than once, which needs replace; make it at most "
            "1, or draw with replacement"
        )


def _check_calibration(config: TrainOptions) -> None:
    if config.calibration is None:
        return
    if not config.bootstrap:
        raise ConfigError("calibration keeps rows out of all bags, and there are no bags without bootstrap; drop one")
    if config.boosts:
        raise ConfigError(
            f"calibration does not support sampling {config.sampling!r}, which draws by the errors of all rows; "
            "drop calibration, or use another sampling"
        )
    if config.stop_oob is not None:
        raise ConfigError("stop_oob uses the rows that calibration holds out; drop one of them")


def _check_boosting(config: TrainOptions) -> None:
    if not config.boosts:
        return
    named = f"sampling {config.sampling!r}"
    if not config.bootstrap:
        raise ConfigError(f"{named} draws a bag for each tree, but bootstrap is off; drop one of them")
    if not config.replace:
        raise ConfigError(f"{named} draws rows by their weights, with replacement; drop replace")
    if config.group is not None:
        raise ConfigError(f"{named} draws rows by their weights, and not whole groups; drop group or sampling")
    if config.weighs_rows:
        raise ConfigError(f"{named} gives rows weights of its own; drop weight and class_weight, or drop sampling")
    if config.vote != "hard":
        raise ConfigError(
            f"{named} evaluates trees by the classes they vote for; vote must be 'hard', not {config.vote!r}"
        )
    biased = f"{named} makes the out-of-bag error biased, as rows that are hard are rarely out of bag"
    if config.stop_oob is not None:
        raise ConfigError(f"{biased}, so stop_oob cannot use it; drop stop_oob and set the number of trees")
    if config.shrink == "auto":
        raise ConfigError(f"{biased}, so shrink cannot be chosen by it; set the amount, or drop shrink")


def _check_out_of_bag(config: TrainOptions) -> None:
    if config.keep_votes and not config.bootstrap:
        raise ConfigError("keep_votes is for out-of-bag rows, and there are none without bootstrap; drop one of them")
    if config.stop_oob is None:
        return
    if not config.bootstrap:
        raise ConfigError("stop_oob uses the out-of-bag error, which does not exist without bootstrap; drop it")
    if not config.replace and config.sample_fraction == 1.0:
        raise ConfigError("stop_oob uses the out-of-bag error, and all rows are in every bag; sample fewer")


def _check_family(config: TrainOptions) -> None:
    if config.density is not None and config.projection_kind == "rerf":
        raise ConfigError("rerf has as many weights as projections; drop density, or choose sporf")
    if config.mean_difference == "none" and config.mean_difference_scope != "tree":
        raise ConfigError(
            "mean_difference_scope applies to the means that mean_difference offers; set mean_difference, or drop it"
        )
    if config.has_components and config.axes is not None:
        raise ConfigError(f"{config.rotation} has as many axes as features; drop axes, or choose random axes")
    if config.chooses_axes and config.axes is not None:
        raise ConfigError("axes_from auto has as many axes as the table has features; drop axes, or name the features")
    if len(set(config.axes_from)) < len(config.axes_from):
        raise ConfigError(f"axes_from must be different columns, not {list(config.axes_from)!r}")
    if config.has_components and not config.orthogonal:
        raise ConfigError("principal components are orthogonal; drop orthogonal, or choose random axes")
    if config.axis_features is not None and not config.has_components:
        raise ConfigError(
            "axis_features applies to principal components, and random axes use all features; choose the "
            "rotation pca or pca-classes, or drop axis_features"
        )
    if config.feature_fraction is not None and config.mtry not in (None, "sqrt", "half", "all"):
        raise ConfigError("feature_fraction replaces mtry; drop one of them")
    if base_family(config.family) == "tree" and (config.trees != 1 or config.bootstrap):
        raise ConfigError(
            "the family tree is a single tree on all rows; drop trees and bootstrap, or choose another family"
        )
    if config.in_subspaces and config.bootstrap:
        raise ConfigError(f"the family {config.family} grows every tree on all rows: bootstrap must be off")
