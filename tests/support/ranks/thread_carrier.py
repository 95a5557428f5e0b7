# SPDX-License-Identifier: MIT
"""A transport between threads of one process, for communicators that another library carries."""

from collections import defaultdict, deque

from rank_threads import on_rank_threads

DEADLINE_S = 60.0


class ThreadCarrier:
    """The end of one rank; `mail` is shared by all of them."""

    name = "threads"

    def __init__(self, mail, rank, nranks):
        self.mail, self.rank, self.nranks = mail, rank, nranks

    def start(self, kind, source, target, rank, timeout_s):
        """Post what this rank sends; what it awaits, as pairs of a rank and where its bytes go."""
        assert timeout_s > 0
        ranks = range(self.nranks)
        parts = {
            "broadcast": lambda: dict.fromkeys(ranks, target),
            "all_gather": lambda: dict.fromkeys(ranks, source),
            "gather": lambda: {rank: source},
            "all_to_all": lambda: dict(enumerate(source.reshape(self.nranks, -1))),
            "scatter": lambda: dict(enumerate(source.reshape(self.nranks, -1))),
            "send": lambda: {rank: source},
            "recv": dict,
        }[kind]
        if kind not in ("broadcast", "scatter") or self.rank == rank:
            for peer, part in parts().items():
                self.mail[self.rank, peer].append(part.copy())
        if target is None:
            return []
        if kind in ("broadcast", "scatter", "recv"):
            return [(rank, target)]
        return list(zip(ranks, target.reshape(self.nranks, -1), strict=True))

    def test(self, request):
        """Take what has come."""
        for awaited in list(request):
            peer, memory = awaited
            if self.mail[peer, self.rank]:
                memory[:] = self.mail[peer, self.rank].popleft()
                request[:] = [other for other in request if other is not awaited]
        return not request


def on_carried(nranks, body, *, timeout_s=20.0):
    """Run body(comm) on a thread for each rank, with a carried communicator; give what each returned or raised."""
    from rocpy.rccl.carriers.communicator import CarriedCommunicator

    mail = defaultdict(deque)
    return on_rank_threads(
        nranks, lambda rank: body(CarriedCommunicator(ThreadCarrier(mail, rank, nranks), timeout_s, "")), DEADLINE_S
    )
