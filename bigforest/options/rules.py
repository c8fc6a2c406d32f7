"""The rules between training options: which combinations are invalid."""

from __future__ import annotations

from bigforest.errors import ConfigError, api
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
        raise ConfigError(
            f"whole groups cannot be drawn by class; drop {api('group')} or {api('sampling')} {config.sampling!r}"
        )
    described = config.sample_fraction != 1.0 or not config.replace or config.sampling != "uniform"
    described = described or config.group is not None
    if not config.bootstrap and described:
        raise ConfigError(
            f"{api('sample_fraction')}, {api('replace')}, {api('sampling')} and {api('group')} describe the bag, but "
            f"{api('bootstrap')} is off; drop one of them"
        )
    if config.sample_fraction > 1.0 and not config.replace:
        raise ConfigError(
            f"{api('sample_fraction')} {config.sample_fraction} draws rows more than once, which needs "
            f"{api('replace')}; make it at most "
            "1, or draw with replacement"
        )


def _check_calibration(config: TrainOptions) -> None:
    if config.calibration is None:
        return
    if not config.bootstrap:
        raise ConfigError(
            f"{api('calibration')} keeps rows out of all bags, and there are no bags without {api('bootstrap')}; drop "
            "one"
        )
    if config.boosts:
        raise ConfigError(
            f"{api('calibration')} does not support {api('sampling')} {config.sampling!r}, which draws by the errors "
            "of all rows; "
            f"drop {api('calibration')}, or use another sampling"
        )
    if config.stop_oob is not None:
        raise ConfigError(f"{api('stop_oob')} uses the rows that {api('calibration')} holds out; drop one of them")


def _check_boosting(config: TrainOptions) -> None:
    if not config.boosts:
        return
    named = f"{api('sampling')} {config.sampling!r}"
    if not config.bootstrap:
        raise ConfigError(f"{named} draws a bag for each tree, but {api('bootstrap')} is off; drop one of them")
    if not config.replace:
        raise ConfigError(f"{named} draws rows by their weights, with replacement; drop {api('replace')}")
    if config.group is not None:
        raise ConfigError(
            f"{named} draws rows by their weights, and not whole groups; drop {api('group')} or {api('sampling')}"
        )
    if config.weighs_rows:
        raise ConfigError(
            f"{named} gives rows weights of its own; drop {api('weight')} and {api('class_weight')}, or drop "
            f"{api('sampling')}"
        )
    if config.vote != "hard":
        raise ConfigError(
            f"{named} evaluates trees by the classes they vote for; {api('vote')} must be 'hard', not {config.vote!r}"
        )
    biased = f"{named} makes the out-of-bag error biased, as rows that are hard are rarely out of bag"
    if config.stop_oob is not None:
        raise ConfigError(
            f"{biased}, so {api('stop_oob')} cannot use it; drop {api('stop_oob')} and set the number of trees"
        )
    if config.shrink == "auto":
        raise ConfigError(
            f"{biased}, so {api('shrink')} cannot be chosen by it; set the amount, or drop {api('shrink')}"
        )


def _check_out_of_bag(config: TrainOptions) -> None:
    if config.keep_votes and not config.bootstrap:
        raise ConfigError(
            f"{api('keep_votes')} is for out-of-bag rows, and there are none without {api('bootstrap')}; drop one of "
            "them"
        )
    if config.stop_oob is None:
        return
    if not config.bootstrap:
        raise ConfigError(
            f"{api('stop_oob')} uses the out-of-bag error, which does not exist without {api('bootstrap')}; drop it"
        )
    if not config.replace and config.sample_fraction == 1.0:
        raise ConfigError(f"{api('stop_oob')} uses the out-of-bag error, and all rows are in every bag; sample fewer")


def _check_family(config: TrainOptions) -> None:
    if config.density is not None and config.projection_kind == "rerf":
        raise ConfigError(f"rerf has as many weights as projections; drop {api('density')}, or choose sporf")
    if config.mean_difference == "none" and config.mean_difference_scope != "tree":
        raise ConfigError(
            f"{api('mean_difference_scope')} applies to the means that {api('mean_difference')} offers; set "
            f"{api('mean_difference')}, or drop it"
        )
    if config.has_components and config.axes is not None:
        raise ConfigError(f"{config.rotation} has as many axes as features; drop {api('axes')}, or choose random axes")
    if config.chooses_axes and config.axes is not None:
        raise ConfigError(
            f"{api('axes_from')} auto has as many axes as the table has features; drop {api('axes')}, or name the "
            "features"
        )
    if len(set(config.axes_from)) < len(config.axes_from):
        raise ConfigError(f"{api('axes_from')} must be different columns, not {list(config.axes_from)!r}")
    if config.has_components and not config.orthogonal:
        raise ConfigError(f"principal components are orthogonal; drop {api('orthogonal')}, or choose random axes")
    if config.axis_features is not None and not config.has_components:
        raise ConfigError(
            f"{api('axis_features')} applies to principal components, and random axes use all features; choose the "
            f"rotation pca or pca-classes, or drop {api('axis_features')}"
        )
    if config.feature_fraction is not None and config.mtry not in (None, "sqrt", "half", "all"):
        raise ConfigError(f"{api('feature_fraction')} replaces {api('mtry')}; drop one of them")
    if base_family(config.family) == "tree" and (config.trees != 1 or config.bootstrap):
        raise ConfigError(
            f"the family tree is a single tree on all rows; drop {api('trees')} and {api('bootstrap')}, or choose "
            "another family"
        )
    if config.in_subspaces and config.bootstrap:
        raise ConfigError(f"the family {config.family} grows every tree on all rows: {api('bootstrap')} must be off")
