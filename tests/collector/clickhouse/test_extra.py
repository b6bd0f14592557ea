"""Says so where ClickHouse is not tried; its tests are left out then."""

import pytest

from .extra import IS_THERE


@pytest.mark.skipif(not IS_THERE, reason="needs longpole[clickhouse] and chdb")
def test_the_extra_is_installed() -> None:
    from longpole_collector.stores.clickhouse.client import SETTINGS

    assert SETTINGS
