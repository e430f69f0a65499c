"""A Ray cluster of several nodes gives the same bytes, even if one of them is lost on the way."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support.sweep_runs import DIVERGES, alone, results, seeds

from mecheval.cli import main
from mecheval.core.errors import InvalidInput
from mecheval.sweeps import ray as cluster

pytestmark = pytest.mark.slow


def test_without_ray_it_says_how_to_get_it_and_writes_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["sweep", "run", "demo", "--ray", "local", "--out", str(tmp_path / "out")]) == 2
    assert "pip install 'mecheval[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "out" / "sweep.json").exists()


@pytest.mark.parametrize("address", ["nonsense", "here:port", "http://here:1", ""])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(InvalidInput, match="HOST:PORT"):
        cluster.check_address(address)


@pytest.mark.parametrize("listens", [False, True])
def test_an_address_that_does_not_answer_is_given_up_soon(listens, monkeypatch, tmp_path, capsys):
    """Nothing listens there, or something else than Ray."""
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 3.0)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        start = time.monotonic()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert main(["sweep", "run", "demo", "--ray", address, "--out", str(tmp_path / "out")]) == 3
    assert time.monotonic() - start < 20
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert f"ray={address} does not answer" in line
    assert list((tmp_path / "out").iterdir()) == []


SCENE = """
import json, os, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ray.cluster_utils import Cluster as Nodes
from support.sweep_runs import DIVERGES, seeds
from mecheval.sweeps.ray import Cluster
from mecheval.sweeps.options import SweepOptions
from mecheval.sweeps.sweep import Sweep

room, out, rooms = Path(tempfile.gettempdir()), Path(sys.argv[2]), set()
nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
lost = [nodes.add_node(num_cpus=1)]  # the only one that can work, until it has begun

def lose_one(runs):
    rooms.update(room.glob("*/*.partial"))
    if lost and rooms:
        nodes.remove_node(lost.pop(), allow_graceful=False)
        for _ in range(2):
            nodes.add_node(num_cpus=1)

experiments = [*seeds(3, train_steps=400, eval_every=100), *seeds(1, **DIVERGES)]
sweep = Sweep(experiments, out, "mine", "own", SweepOptions())
runs = sweep.execute(lambda: Cluster(nodes.address, 1), watch=lose_one)
print(json.dumps({"lost": not lost, "begun": len(rooms), "statuses": [run.status for run in runs]}))
nodes.shutdown()
"""
SOON = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "2",
}


def test_several_nodes_and_the_loss_of_one_give_the_same_bytes(tmp_path):
    pytest.importorskip("ray", reason="ray is not installed")
    room = Path(tempfile.mkdtemp(prefix="mecheval-"))  # short: Ray's sockets are in it
    try:
        done = subprocess.run(
            [sys.executable, "-c", SCENE, Path(__file__).parents[1], tmp_path / "out"],
            env={**os.environ, "TMPDIR": str(room), "RAY_TMPDIR": str(room), **SOON},
            capture_output=True,
            text=True,
            timeout=600,
        )
    finally:
        shutil.rmtree(room, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["lost"], "no node was lost while it worked"
    assert found["begun"] >= 4, "what the lost node had begun was begun again elsewhere"
    assert found["statuses"] == ["done", "done", "done", "diverged"]
    experiments = [*seeds(3, train_steps=400, eval_every=100), *seeds(1, **DIVERGES)]
    assert results(tmp_path / "out") == alone(experiments, tmp_path / "alone")
