"""The stages of the work, and what each may take."""

from __future__ import annotations

import enum


class Limit(enum.Enum):
    """Who limits the time and the memory of a stage."""

    RATION = "by the size of the files"
    OWN = "by itself; twice the memory of a ration is a fault"
    NONE = "nobody"


class Stage(enum.Enum):
    """A stage; its value is the name that users, reports and the other process read.

    Stages without a limit take long for good reasons, such as the user's many samples or the start of TensorRT, or have
    one of their own. What they leave in memory does not count later: with a GPU TensorRT begins with gigabytes.
    """

    AUDIT = "audit"
    BISECT = "bisect"
    BUILD = "build"
    CALIBRATE = "calibrate"
    CAST = "cast"
    CHECK = "check"
    COMPARE = "compare"
    COMPARE_METHODS = "compare methods"
    ENGINE = "engine"
    EQUALIZE = "equalize"
    EXPLAIN = "explain"
    EXPORT = "export"
    FINISH = "finish"
    IMAGES = "images"
    INPUTS = "inputs"
    LOAD = "load"
    MEASURE = "measure"
    PARSE = "parse"
    PLAN = "plan"
    PROOF = "proof"
    PROVE = "prove"
    RACE = "race"
    REDUCE = "reduce"
    REFERENCE = "reference"
    REWRITE = "rewrite"
    REWRITTEN = "rewritten model"
    RULES = "rules"
    RUN = "run"
    RUNTIME = "runtime"
    SELF_CHECK = "self-check"
    SHARE = "share"
    SIZES = "sizes"
    TIME = "time"
    TUNE = "tune"
    VALIDATE = "validate"
    VALUES = "values"
    VERIFY = "verify"
    WHOLE_MODEL = "the whole model"
    WRITE = "write"

    @property
    def limit(self) -> Limit:
        """Who limits it."""
        return _LIMITS.get(self, Limit.RATION)


_LIMITS = {
    Stage.PROVE: Limit.OWN,
    **dict.fromkeys(
        (
            Stage.RUNTIME,
            Stage.TUNE,
            Stage.BUILD,
            Stage.RACE,
            Stage.VERIFY,
            Stage.WRITE,
            Stage.EQUALIZE,
            Stage.CALIBRATE,
            Stage.COMPARE_METHODS,
            Stage.MEASURE,
        ),
        Limit.NONE,
    ),
}


def limit_of(name: str) -> Limit:
    """Returns the limit of the stage that another process says it is in; attempts and batches name theirs freely."""
    return Stage(name).limit if name in Stage._value2member_map_ else Limit.RATION
