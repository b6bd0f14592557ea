"""The package's names are there, each is documented, and asking for one loads only its file."""

import pytest

import longpole_analytics


@pytest.mark.parametrize("name", longpole_analytics.__all__)
def test_every_public_name_exists_and_is_documented(name):
    assert getattr(longpole_analytics, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        longpole_analytics.nothing  # noqa: B018 - the access is the point
