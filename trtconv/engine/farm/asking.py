"""Asks the scheduler of a farm what it does."""

from __future__ import annotations

from trtconv.core.decode import Fault, parsed
from trtconv.core.documents.farm import FarmStatus
from trtconv.core.errors import EnvironmentMissing
from trtconv.core.requests.farm import FarmRequest
from trtconv.engine.farm.connection import Connection


def ask(request: FarmRequest) -> FarmStatus:
    """Asks a scheduler what its farm does.

    Args:
        request: Where it is.

    Raises:
        InputError: The address is none, or keys are missing.
        EnvironmentMissing: Nobody answers, or not as a scheduler does.
    """
    connection = Connection(request)
    try:
        return parsed(FarmStatus, connection.status())
    except Fault as fault:
        raise EnvironmentMissing(
            f"{connection.address} does not tell what a scheduler does: {fault}",
            "Install the same version of trtconv on all machines.",
        ) from fault
    finally:
        connection.close()
