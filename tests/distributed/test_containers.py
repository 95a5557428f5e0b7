# SPDX-License-Identifier: MIT
"""Ranks in containers of one machine: whether they share memory is tried, and told, or another transport is taken."""

import container_ranks
import pytest

pytestmark = pytest.mark.skipif(
    not container_ranks.is_permitted(), reason="unshare -Urn is not permitted here: no namespaces to try"
)


def check_refused(error):
    kind, text = error
    assert kind == "InvalidUsageError"
    assert "network namespaces of one machine" in text
    assert "--network" in text


def test_networks_of_their_own():
    found = container_ranks.run("rendezvous_by_tcp", "-n")
    for rank, own in enumerate(found):
        check_refused(own["from_env"])
        assert f"shares no memory with ranks [{1 - rank}]" in own["from_env"][1]


def test_networks_ipc_and_mounts_of_their_own():
    for own in container_ranks.run("rendezvous_by_tcp", "-n", "-i", "-m"):
        check_refused(own["from_env"])


@pytest.mark.torch
def test_torch_in_networks_of_their_own():
    found = container_ranks.run("rendezvous_by_torch", "-n")
    assert [len(own["warned"]) for own in found] == [1, 0]
    for own in found:
        check_refused(own["backend"])
        assert own["kind"] == "CarriedCommunicator"
        assert own["sum"] == [3.0]
        assert own["rccl"][0] == "InvalidArgumentError"
        assert "shares no memory" in own["rccl"][1]


def test_process_ids_of_their_own():
    found = container_ranks.run("work_and_die", "--fork", "--pid", "--mount-proc")
    for own in found:
        assert own["sum"] == [2.0] * 3
        assert own["pid"] < 100
        assert own["processes"] == ["alive", "alive"]
    assert found[0]["dead"] == 1


def test_a_process_id_of_another_namespace_is_not_looked_up():
    late, other = container_ranks.run("be_late_with_a_decoy", "--fork", "--pid", "--mount-proc")
    assert late["is_decoy"]
    assert late["processes"] == ["alive", "alive"]
    assert "waiting for rank 1" in late["late"][1]
    assert "stopped" not in late["late"][1]
    assert other["late"][0] == "RemoteError"
