import pytest
from tests.reference.judge import EXECUTORS, Execute


# For the whole session, since hypothesis calls a test many times with one value of a fixture.
@pytest.fixture(scope="session", params=list(EXECUTORS))
def execute(request: pytest.FixtureRequest) -> Execute:
    """Computes a case: every test that takes this runs once on each executor."""
    return EXECUTORS[request.param]
