from collections.abc import Iterator

import pytest
from tests.examples.running import Stack, stack


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with stack(tmp_path_factory.mktemp("examples")) as found:
        yield found
