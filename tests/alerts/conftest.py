import pytest

from .harness import Scene


@pytest.fixture
def scene(tmp_path):
    """Makes scenes and ends them."""
    made = []

    def make(**given):
        made.append(Scene(tmp_path / f"data{len(made)}", **given))
        return made[-1]

    yield make
    for each in made:
        each.close()
