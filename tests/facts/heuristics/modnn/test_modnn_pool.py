"""The segments of a pool, and offloading schemes, the paper's Fig. 6 among them."""

from offcert.heuristics.modnn.schemes import MemoryPool, best_scheme


def filled(sizes: list[tuple[int | None, int]]) -> MemoryPool:
    """Return a pool of blocks and free segments (None) with these sizes, in this order."""
    pool = MemoryPool(sum(size for _, size in sizes))
    for number, (_, size) in enumerate(sizes):
        segment = pool.find(size) if number < len(sizes) - 1 else None
        segment = segment or next(each for each in pool.segments if each.block is None)
        pool.take(segment, number, size)
    for number, (block, _) in enumerate(sizes):
        if block is None:
            pool.release(number, 0)
    return pool


def layout(pool: MemoryPool) -> list[tuple[int, int, int | None]]:
    return [(segment.address, segment.size, segment.block) for segment in pool.segments]


def test_exact_fit_first_then_first_fit() -> None:
    pool = filled([(None, 5), (1, 1), (None, 3), (3, 1), (None, 4)])
    exact = pool.find(3)
    assert exact is not None
    assert exact.address == 6
    first = pool.find(2)
    assert first is not None
    assert first.address == 0
    assert pool.find(6) is None
    assert sum(each.size for each in pool.segments if each.block is None) == 12


def test_what_is_released_joins_its_neighbours_and_keeps_the_latest_time() -> None:
    pool = MemoryPool(10)
    for block, size in ((0, 2), (1, 3), (2, 5)):
        segment = pool.find(size)
        assert segment is not None
        assert pool.take(segment, block, size) == 0
    assert layout(pool) == [(0, 2, 0), (2, 3, 1), (5, 5, 2)]
    pool.release(0, 7)
    pool.release(2, 9)
    assert layout(pool) == [(0, 2, None), (2, 3, 1), (5, 5, None)]
    pool.release(1, 8)
    assert layout(pool) == [(0, 10, None)]
    assert pool.segments[0].since == 9
    # Whoever takes a part waits for that, and so does whoever takes the rest.
    assert pool.take(pool.segments[0], 5, 4) == 9
    rest = pool.find(6)
    assert rest is not None
    assert pool.take(rest, 6, 6) == 9
    assert 6 in pool
    assert pool.find(1) is None


def scheme_of(pool: MemoryPool, size: int, times: dict[int, int], held: set[int]):  # type: ignore[no-untyped-def]
    """Return the blocks of the best scheme; a block takes its time on an idle link at time 0."""

    def leaving(block: int, link: int) -> tuple[int, int] | None:
        return None if block in held else (link + times[block], link + times[block])

    found = best_scheme(
        pool, size, leaving, 0, 0, lambda blocks: (sum(times[each] for each in blocks),)
    )
    return None if found is None else (found.blocks, found.ready)


def test_figure_6_has_two_schemes_and_the_faster_one_is_taken() -> None:
    # Blocks 1 to 6 side by side, an allocation of 4, and block 4 may not leave. The text gives no
    # sizes; with these, 1 and 2, and 5 and 6, are the only schemes, as it says.
    pool = filled([(1, 2), (1, 2), (1, 1), (1, 3), (1, 2), (1, 2)])
    slow = {0: 9, 1: 9, 2: 1, 3: 1, 4: 8, 5: 8}
    assert scheme_of(pool, 4, slow, {3}) == ((4, 5), 16)
    fast = slow | {0: 1, 1: 1}
    assert scheme_of(pool, 4, fast, {3}) == ((0, 1), 2)
    # Without them there is none: blocks 2 and 3 are too small, and block 4 ends what begins there.
    assert scheme_of(pool, 4, slow, {0, 3, 5}) is None
    assert scheme_of(pool, 3, slow, {0, 3, 5}) == ((1, 2), 10)


def test_free_segments_belong_to_schemes() -> None:
    pool = filled([(None, 2), (1, 2), (None, 1), (1, 5)])
    assert scheme_of(pool, 4, {1: 6, 3: 5}, set()) == ((3,), 5)
    assert scheme_of(pool, 4, {1: 4, 3: 5}, set()) == ((1,), 4)
    assert scheme_of(pool, 6, {1: 4, 3: 5}, {3}) is None


def test_where_delays_are_equal_the_rank_decides() -> None:
    pool = filled([(1, 2), (1, 2), (1, 2)])
    for wanted in range(3):
        found = best_scheme(
            pool,
            2,
            lambda block, link: (5, link),
            0,
            9,
            lambda blocks, wanted=wanted: (blocks[0] != wanted,),  # type: ignore[misc]
        )
        assert found is not None
        assert found.blocks == (wanted,)


def test_an_empty_pool_has_no_room() -> None:
    assert MemoryPool(0).find(1) is None


def test_a_block_is_put_into_the_middle_of_what_is_free() -> None:
    pool = filled([(None, 2), (1, 4), (None, 3)])
    pool.release(1, 50)
    assert layout(pool) == [(0, 9, None)]
    pool.take_at(2, 7, 4)
    assert layout(pool) == [(0, 2, None), (2, 4, 7), (6, 3, None)]
    assert [segment.since for segment in pool.segments if segment.block is None] == [50, 50]
    pool.take_at(6, 8, 3)
    pool.take_at(0, 9, 1)
    assert layout(pool) == [(0, 1, 9), (1, 1, None), (2, 4, 7), (6, 3, 8)]
    pool.release(7, 60)
    pool.release(8, 60)
    pool.release(9, 60)
    assert layout(pool) == [(0, 9, None)]
