"""Memory that threads share."""

import ctypes
import mmap

import numpy as np
import pytest

from plait.core.machine.line import LINE, address, lines, pages


@pytest.mark.parametrize("shape", [0, 5, (3, 4), (0, 7), 1 << 17, (3, 1 << 16)])
@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float32, np.dtype("datetime64[us]"), object])
def test_pages_are_an_array_of_zeros(shape: int | tuple[int, ...], kind: object) -> None:
    found, want = pages(shape, kind), np.zeros(shape, kind)  # type: ignore[call-overload]
    assert (found.dtype, found.shape) == (want.dtype, want.shape)
    assert found.flags.c_contiguous
    assert (found == want).all()
    found[...] = 1  # it may be written


def resident(array: np.ndarray) -> int:
    """How many of an array's whole pages are in memory, and how many there are."""
    first = -(-address(array) // mmap.PAGESIZE) * mmap.PAGESIZE
    count = (address(array) + array.nbytes - first) // mmap.PAGESIZE
    told = (ctypes.c_ubyte * count)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mincore(ctypes.c_void_p(first), ctypes.c_size_t(count * mmap.PAGESIZE), told):
        raise OSError(ctypes.get_errno())
    return sum(each & 1 for each in told)


def test_room_that_nobody_writes_costs_nothing() -> None:
    """Also when malloc has had large arrays back, which it would give again, written over with zeros."""
    large = [np.ones(1 << 17, np.int64) for _ in range(64)]
    last = large[-1]  # so that what is freed lies before what is not
    del large
    room = [pages(1 << 17) for _ in range(32)]
    assert [resident(each) for each in room] == [0] * 32
    room[0][5] = 7
    room[0][1 << 16] = 7
    assert resident(room[0]) > 0, "what is written is there"
    assert resident(last) > 0


def test_lines_begin_on_a_border() -> None:
    for words in (1, 100, 1 << 16):
        found = lines(words)
        assert address(found) % (8 * LINE) == 0
        assert len(found) == words
        assert not found.any()
