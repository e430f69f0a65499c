import numpy as np
import pytest
from numba import njit
from scipy import stats

from mecheval.tasks.kernels.stream import below as compiled_below
from mecheval.tasks.kernels.stream import fill
from mecheval.tasks.philox import CHUNK, Stream, below, key_of, permutation, philox, words


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the known answers that come with Random123
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(counter, key, expected):
    outputs = philox([np.array([word], np.uint64) for word in counter], key)
    assert tuple(int(word[0]) for word in outputs) == expected


@pytest.mark.parametrize("place", [(0, 0, 0), (2**64 - 1, 2**40 + 5, 9999), (12345, 77, 1)])
def test_the_compiled_stream_has_the_same_words(place):
    key, index, attempt = place
    compiled = np.empty(5 * CHUNK, np.uint32)
    for chunk in range(5):
        fill(compiled, chunk, np.uint64(key), index, attempt)
    assert compiled.tolist() == words(key, index, attempt, range(5)).tolist()
    stream = Stream(key, index, attempt)
    assert compiled.tolist() == [stream.word() for _ in range(5 * CHUNK)]
    assert stream.drawn == 5 * CHUNK


def test_the_compiled_choices_are_the_same():
    @njit
    def choose(word, n):
        return compiled_below(word, n)

    drawn = words(5, 0, 0, range(4)).tolist()
    for n in (1, 2, 3, 20, 4096, 10**6):
        stream = Stream(5, 0)
        assert [choose(np.uint32(word), n) for word in drawn] == [stream.below(n) for _ in drawn]


def test_many_choices_at_once_are_those_of_the_streams():
    index, bound = np.arange(500) * 2**31, np.arange(1, 501)
    assert below(9, index, bound).tolist() == [
        Stream(9, int(i)).below(int(b)) for i, b in zip(index, bound, strict=True)
    ]


@pytest.mark.slow
def test_choices_are_uniform():
    counts = np.bincount([Stream(3, i).below(7) for i in range(7000)], minlength=7)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_streams_of_neighbours_are_unrelated():
    rows = np.stack([words(1, i, 0, range(4)) for i in range(200)]).astype(float)
    correlations = np.corrcoef(rows)[np.triu_indices(200, 1)]
    assert abs(correlations).max() < 6 / np.sqrt(rows.shape[1])


def test_a_key_depends_on_every_part():
    keys = {
        key_of("task", 0, "train"),
        key_of("task", 1, "train"),
        key_of("task", 0, "dev"),
        key_of("other", 0, "train"),
    }
    assert len(keys) == 4


def test_a_permutation_has_every_number_once():
    assert sorted(permutation(4, 1000).tolist()) == list(range(1000))
    assert permutation(4, 1000).tolist() != permutation(5, 1000).tolist()
