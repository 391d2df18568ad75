"""What all tests share. This folder is importable: `from models import ...`, `from fakes import ...`."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, Phase, settings

# The same examples in every run; `--hypothesis-profile thorough` looks for new ones.
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "steady", deadline=None, derandomize=True, database=None, phases=_PHASES, suppress_health_check=_SLOW
)
settings.register_profile("thorough", deadline=None, max_examples=2000, phases=_PHASES, suppress_health_check=_SLOW)
settings.load_profile("steady")

# A shell that runs the tests in the background has them ignore Ctrl-C, which some of them are about.
signal.signal(signal.SIGINT, signal.default_int_handler)
