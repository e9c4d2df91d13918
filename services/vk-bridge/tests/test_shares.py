"""How many logs the people of one namespace of a pool may read at one time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vk_bridge.core.shares import LogPlaces, Tenant

SHOP, BANK, SHOP_OF_OTHER = Tenant("pool-1", "shop"), Tenant("pool-1", "bank"), Tenant("pool-2", "shop")
TENANTS = [SHOP, BANK, SHOP_OF_OTHER]


def places_with(*tenants: Tenant, most: int = 8) -> LogPlaces:
    places = LogPlaces(most)
    for tenant in tenants:
        places.take_place(tenant)
    return places


SHARE = "4 logs of namespace shop of pool-1 are being read already: at most as many as it leaves free of 8"


@pytest.mark.parametrize(
    ("places", "tenant", "text"),
    [
        pytest.param(places_with(*[SHOP] * 3), SHOP, "", id="up to half"),
        pytest.param(places_with(*[SHOP] * 4), SHOP, SHARE, id="half"),
        pytest.param(places_with(*[SHOP] * 4), BANK, "", id="another namespace"),
        pytest.param(places_with(*[SHOP] * 4), SHOP_OF_OTHER, "", id="a namespace of this name in another pool"),
        pytest.param(places_with(*[SHOP] * 7), BANK, "", id="the last place is another's first"),
        pytest.param(places_with(*[SHOP] * 8), BANK, "8 logs are being read already", id="no place is left"),
        pytest.param(places_with(most=1), SHOP, "", id="the only place"),
    ],
)
def test_who_may_read_one_more_log(places: LogPlaces, tenant: Tenant, text: str) -> None:
    assert places.refusal_text(tenant) == text


def test_a_log_that_ends_gives_its_place_back() -> None:
    places = places_with(*[SHOP] * 4)
    places.give_back_place(SHOP)
    assert places.refusal_text(SHOP) == ""


@given(asked=st.lists(st.sampled_from(TENANTS), max_size=40))
def test_no_tenant_takes_all_places_but_its_first(asked: list[Tenant]) -> None:
    places, held = LogPlaces(16), list[Tenant]()
    for tenant in asked:
        if not places.refusal_text(tenant):
            places.take_place(tenant)
            held.append(tenant)
            assert held.count(tenant) == 1 or held.count(tenant) <= 16 - len(held)
    assert len(held) <= 16
