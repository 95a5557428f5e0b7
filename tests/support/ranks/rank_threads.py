# SPDX-License-Identifier: MIT
"""Ranks on threads of this process, whatever they join."""

import threading


def on_rank_threads(count, run, deadline_s):
    """Call run(rank) on a thread for each rank; give what each returned or raised."""
    results = [None] * count

    def target(rank):
        try:
            results[rank] = run(rank)
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=target, args=(rank,), daemon=True) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(deadline_s)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results
