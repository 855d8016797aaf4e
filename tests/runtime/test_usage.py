"""What a process has used: of its own work by its own clock, and in the simulator of its virtual threads."""

from __future__ import annotations

import builtins
import gc
import mmap
import resource
import threading
import time
from typing import Any

import pytest

from medusa.nodes.load.loads import LOOK_US, Usage
from medusa.runtime.machine.usage import process_usage, thread_cpu_us
from tests.nodes.test_explaining import Three


def burn(ms: int) -> None:
    """CPU time of this thread."""
    end = time.thread_time_ns() + ms * 1_000_000
    while time.thread_time_ns() < end:
        pass


def test_the_process_and_one_of_its_threads_grow_by_what_they_do() -> None:
    go, done, end = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        go.wait(30)
        burn(30)
        done.set()
        end.wait(30)

    thread = threading.Thread(target=work)
    assert thread_cpu_us(thread) is None, "it hasn't begun"
    thread.start()
    before_us, before = thread_cpu_us(thread), process_usage(7)
    burn(20)
    go.set()
    assert done.wait(30)
    after_us, after = thread_cpu_us(thread), process_usage(None)
    assert before_us is not None
    assert after_us is not None
    assert 30_000 <= after_us - before_us <= after.cpu_us - before.cpu_us - 20_000
    assert (before.engine_us, after.engine_us) == (7, None)
    assert after.cores >= 1
    end.set()
    thread.join()
    assert thread_cpu_us(thread) is None


def test_memory_is_what_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    gc.collect()  # or what other tests left might be given back in between
    now = process_usage().memory_bytes
    assert now > 1 << 20
    with mmap.mmap(-1, 64 << 20) as held:  # New pages, whatever the allocator keeps of other tests.
        for at in range(0, len(held), 1 << 12):
            held[at] = 1
        assert process_usage().memory_bytes - now > 32 << 20

    def refuse(*args: Any, **more: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(builtins, "open", refuse)
    assert process_usage().memory_bytes >= most, "the most that it ever was"


def test_virtual_nodes_use_virtual_time() -> None:
    """Each step of an engine takes some 50 us: its share is so much of virtual time, and known."""
    three = Three()
    node = three.federation.nodes["e1"]
    loop, asked = node.loop, list[int]()
    assert loop is not None
    used = loop._usage
    assert used is not None

    def counted() -> Usage:
        asked.append(three.federation.world.now_us)
        return used()

    loop._usage = counted
    three.publish("e1", "a", *range(1, 50))
    three.passes(5_000_000)
    loads = node.brain.loads
    assert 8 <= len(asked) <= 5_000_000 // LOOK_US + 1
    assert loads.engine_share is not None
    assert loads.cpu_share is not None
    assert 0 < loads.engine_share < loads.cpu_share < 0.1
