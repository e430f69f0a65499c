import pytest
import torch

from mecheval.core.errors import InvalidInput
from mecheval.models import edits
from mecheval.models.site import Site

AT = torch.tensor([2, 0, 4])


@pytest.fixture(params=["batch time d_model", "batch head time source"])
def site(request):
    return Site(request.param, "a place")


@pytest.fixture
def x(site):
    shape = (3, 5, 4) if len(site.axes) == 3 else (3, 2, 5, 5)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def at(x, site, row):
    return x[row, AT[row]] if site.time == 1 else x[row, :, AT[row]]


def elsewhere(x, site):
    """Return a copy with the edited positions set to zero."""
    x = x.clone()
    for row in range(3):
        if site.time == 1:
            x[row, AT[row]] = 0
        else:
            x[row, :, AT[row]] = 0
    return x


def test_put_replaces_one_position_of_each_row(site, x):
    other = torch.randn_like(x)
    new = edits.put(other, AT)(x, site)
    for row in range(3):
        assert torch.equal(at(new, site, row), at(other, site, row))
    assert torch.equal(elsewhere(new, site), elsewhere(x, site))


def test_put_takes_values_without_a_time_axis(site, x):
    value = torch.ones_like(x.select(site.time, 0))
    new = edits.put(value, AT)(x, site)
    for row in range(3):
        assert (at(new, site, row) == 1).all()


def test_put_zero_mean_add_and_swap_at_every_position(site, x):
    assert torch.equal(edits.put(x + 1)(x, site), x + 1)
    assert (edits.zero()(x, site) == 0).all()
    assert torch.allclose(edits.mean()(x, site), x.mean(dim=0, keepdim=True).expand_as(x))
    assert torch.equal(edits.add(torch.tensor(2.0))(x, site), x + 2)
    assert torch.equal(edits.swap(torch.tensor([1, 2, 0]))(x, site), x[[1, 2, 0]])


def test_zero_mean_and_add_at_one_position(site, x):
    here = torch.stack([at(x, site, row) for row in range(3)])
    for edit, expected in (
        (edits.zero(AT), torch.zeros_like(here)),
        (edits.mean(AT), here.mean(dim=0, keepdim=True).expand_as(here)),
        (edits.add(torch.tensor(1.0), AT), here + 1),
        (edits.swap(torch.tensor([1, 2, 0]), AT), here[[1, 2, 0]]),
    ):
        new = edit(x, site)
        assert torch.allclose(torch.stack([at(new, site, row) for row in range(3)]), expected)
        assert torch.equal(elsewhere(new, site), elsewhere(x, site))


def test_the_input_is_not_changed_in_place(site, x):
    before = x.clone()
    for edit in (edits.put(x + 1, AT), edits.zero(AT), edits.mean(), edits.add(torch.ones(()), AT)):
        edit(x, site)
    assert torch.equal(x, before)


def test_a_value_of_another_shape_is_rejected(site, x):
    with pytest.raises(InvalidInput, match="shape"):
        edits.put(torch.zeros(3, 7))(x, site)
