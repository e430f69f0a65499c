import numpy as np
import pytest

from mecheval.core.errors import InvalidInput
from mecheval.interventions.positions import positions
from mecheval.tasks.documents import ROLES
from mecheval.tasks.recall import Recall
from mecheval.tasks.treecall import Treecall

TASKS = {"recall": Recall(pairs=6, min_pairs=1, vocab=32), "treecall": Treecall(max_len=30)}


@pytest.fixture(params=TASKS.values(), ids=TASKS.keys())
def docs(request):
    return request.param.documents(0, "test", 0, 60)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_where_the_document_says(docs, role):
    where, there = positions(docs, role)
    assert there.all()
    assert np.array_equal(where, docs.roles[role])


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("offset", [-7, -1, 1, 2, 7])
def test_an_offset_counts_tokens_and_may_lead_out_of_a_document(docs, role, offset):
    where, there = positions(docs, f"{role}{offset:+d}")
    for i in range(len(docs)):
        place = docs.roles[role][i] + offset
        assert there[i] == (0 <= place < docs.lengths[i])
        assert where[i] == (place if there[i] else 0), (
            "what is not there points at a token all the same"
        )


def test_offsets_lead_out_on_both_sides_and_padding_is_outside(docs):
    assert not positions(docs, "bos-1")[1].any()
    assert not positions(docs, "query+1")[1].any()
    _, there = positions(docs, "value+4")
    assert there.any()
    assert not there.all()
    assert (docs.roles["value"] + 4 < docs.tokens.shape[1])[~there].any(), (
        "inside the table, outside the document"
    )


@pytest.mark.parametrize("place", [0, 1, 5, 6, 29, 10**9])
def test_a_number_is_a_position_in_every_document_that_long(docs, place):
    where, there = positions(docs, f"@{place}")
    assert np.array_equal(there, docs.lengths > place)
    assert (where[there] == place).all()


@pytest.mark.parametrize("offset", [10**9, 2**31 - 1, 2**31, 10**18 - 1])
@pytest.mark.parametrize("place", ["value+{}", "value-{}", "@{}"])
def test_no_document_has_a_place_however_far_out(docs, place, offset):
    _, there = positions(docs, place.format(offset))
    assert not there.any()


@pytest.mark.parametrize(
    ("place", "meant"),
    [
        ("vlaue", "did you mean 'value'?"),
        ("kye+1", "did you mean 'key'?"),
        ("nextkey", "did you mean 'next_key'?"),
        ("answer", "(known: bos, divider, key, next_key, query, value)"),
        ("value+", "did you mean 'value'?"),
        ("value + 1", "did you mean 'value'?"),
        ("value+1.5", "did you mean 'value'?"),
        ("value1", "did you mean 'value'?"),
        ("Value", "did you mean 'value'?"),
        ("@", "(known:"),
        ("@-1", "(known:"),
        ("@5+1", "(known:"),
        ("5", "(known:"),
        ("", "(known:"),
        ("@" + 19 * "1", "(known:"),
        ("value+" + 19 * "1", "(known:"),
        ("@٣", "(known:"),
        ("value\n", "did you mean 'value'?"),
    ],
)
def test_what_is_no_place_is_answered_with_near_ones(docs, place, meant):
    with pytest.raises(InvalidInput) as error:
        positions(docs, place)
    assert str(error.value).startswith(f"role={place!r} must be a role, a role with an offset")
    assert meant in str(error.value)
