"""``ftrma graph`` on the command line: what it reads, computes and writes.

Law: it does what the programs do, kills change no bit, and no file of a user is lost.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from jobs import FTRMA, Result, run_command
from scipy.sparse import csgraph


def command(*words: str) -> Result:
    return run_command([FTRMA, "graph", *words])


@pytest.mark.full
def test_the_command_line(tmp_path: Path) -> None:
    """Law: it does what the program does, of a file or a graph that is made, and a kill changes no
    bit; a mistake is one line, before anything starts where that can be known."""
    matrix = scipy.sparse.random(50, 50, 0.04, format="csr", random_state=2)
    scipy.sparse.save_npz(tmp_path / "graph.npz", matrix)
    where, out = str(tmp_path / "graph.npz"), tmp_path / "out.npy"
    result = command("sssp", where, "-n", "2", "--source", "3", "--out", str(out))
    assert result.status == 0 and json.loads(result.stdout)["vertices"] == 50, result
    assert np.allclose(np.load(out), csgraph.dijkstra(matrix, indices=3), rtol=1e-12)
    ranks = []
    for rules in ([], ["--kill", "0@graph.emit:6", "--recovery", "lwcp", "--checkpoint", "2"]):
        result = command("pagerank", "rmat:7", "-n", "3", "--steps", "9", "--out", str(out), *rules)
        assert result.status == 0 and ("graph recovers" in result.stderr) == bool(rules), result
        ranks.append(np.load(out))
    assert ranks[0].tobytes() == ranks[1].tobytes() and abs(ranks[0].sum() - 1) < 1e-12
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graph.npz", "out.npy"]
    for words, told in (
        (("cc", str(tmp_path / "none.npz"), "-n", "2"), "No such file or directory; give a file"),
        (("bfs", where, "-n", "2", "--source", "-1"), "--source -1: expected a whole number"),
        (("bfs", where, "-n", "2", "--checkpoint", "x"), "--checkpoint x: expected steps, seconds"),
        (("pagerank", where, "-n", "2", "--tolerance", "0"), "--tolerance 0: expected a number"),
        (("colour", where, "-n", "2", "--recovery", "lwlog"), "give one of phoenix, cr"),
        (("bfs", where), "-n"), (("hops", where, "-n", "2"), "invalid choice: 'hops'"),
    ):
        result = command(*words)
        assert result.status == 2 and told in result.stderr, result
        lines = [line for line in result.stderr.splitlines() if not line.startswith("usage:")]
        assert len(lines) == 1, result


@pytest.mark.full
def test_what_out_names_stays_what_it_is(tmp_path: Path) -> None:
    """Law: a device, a FIFO and a link are written into; what cannot be written when all is done is
    told with a remedy and has a status of its own; what is read, or written already, is refused."""
    where, link, pipe = tmp_path / "g.txt", tmp_path / "link.npy", tmp_path / "pipe"
    where.write_text("0 1\n1 2\n2 0\n")
    link.symlink_to("target.npy")
    os.mkfifo(pipe)
    words = ("bfs", str(where), "-n", "2", "--out")
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for out in ("/dev/null", str(link), str(pipe)):
        result = command(*words, out)
        assert result.status == 0 and json.loads(result.stdout)["out"] == out, result
    assert np.load(io.BytesIO(os.read(end, 1 << 16))).tolist() == [0, 1, 2]
    os.close(end)
    assert Path("/dev/null").is_char_device() and pipe.is_fifo() and link.is_symlink()
    assert np.load(tmp_path / "target.npy").tolist() == [0, 1, 2]
    result = command(*words, "/dev/full")
    assert result.status == 1 and json.loads(result.stdout)["out"] is None, result
    assert result.stderr == (
        "graph: g.txt read as: directed, 3 vertices, 0-based, no weights\n"
        "graph: error: --out /dev/full: No space left on device; free some space, or name a file "
        "where there is some\n"), result
    for more in ([str(where)], [str(link), "--stats", str(where)],
                 [str(link), "--trace", str(link)]):
        result = command(*words, *more)
        assert result.status == 2 and "; name another file" in result.stderr, result
    assert where.read_text() == "0 1\n1 2\n2 0\n"
    assert {path.name for path in tmp_path.iterdir()} == {"g.txt", "link.npy", "target.npy", "pipe"}


@pytest.mark.nightly
def test_all_programs_on_the_command_line(tmp_path: Path) -> None:
    """Law: each is there, by each way to recover it, on files of each kind; what only the graph
    tells to be wrong is one line, too."""
    out, ranks = tmp_path / "out.npy", []
    (tmp_path / "edges.txt").write_text("# a path\n0 1\n1 2\n4 5\n")
    scipy.io.mmwrite(tmp_path / "weights.mtx", scipy.sparse.diags([[-1.0] * 8], [1]).tocoo())
    where = str(tmp_path / "weights.mtx")
    for words, said in (
        (("kcore", "rmat:7", "--k", "9"), {"recovery": "lwlog"}),
        (("kcore", "rmat:7", "--k", "9", "--recovery", "phoenix"), {"recovery": "phoenix"}),
        (("cc", str(tmp_path / "edges.txt"), "--recovery", "cr", "--checkpoint", "0.5"),
         {"components": 3}),
        (("bfs", where), {"vertices": 9}),
        (("matching", "path:9", "--left", "1", "--checkpoint", "daly"), {"pairs": 1}),
        (("colour", "grid:7", "--kill", "1@graph.compute:2"), {"recovery": "phoenix"}),
    ):
        result = command(*words, "-n", "2", "--out", str(out))
        assert result.status == 0, result
        line = json.loads(result.stdout)
        assert said.items() <= line.items(), (line, said)
        if words[0] == "kcore":
            ranks.append(np.load(out))
    assert ranks[0].tobytes() == ranks[1].tobytes() and 0 < ranks[0].sum() < 128
    assert {p.name for p in tmp_path.iterdir()} == {"edges.txt", "weights.mtx", "out.npy"}
    for words, told in (
        (("bfs", "rmat:x"), "rmat:x: expected rmat:NUMBER, such as rmat:16"),
        (("bfs", where, "--source", "50"), "--source 50: vertices are 0 to 8"),
        (("matching", where), "--left is missing: vertices below it are on one side"),
        (("sssp", where), "an edge of weight -1.0; sssp needs weights from 0 up"),
        (("sssp", "path:9"), "the graph has no weights; sssp needs some: give bfs"),
        (("pagerank", "rmat:40"), "1099511627776 vertices and 17592186044416 edges do not fit"),
        (("pagerank", "path:40000000000"), "40000000000 vertices and 39999999999 edges do not fit"),
        (("pagerank", "grid:99999999999"), "vertices: more than 2**44; give a smaller one"),
    ):
        result = command(*words, "-n", "2")
        assert result.status == 2 and told in result.stderr, result
        lines = [line for line in result.stderr.splitlines() if " read as: " not in line]
        assert len(lines) == 1, result


@pytest.mark.full
def test_names_go_through(tmp_path: Path) -> None:
    """Law: a vertex is called by its name on the command line, on the terminal and in the file; a
    kill changes no bit, whatever the slots have read."""
    where, out = tmp_path / "roads.csv", tmp_path / "out.csv"
    where.write_text('from,to,km\n"Ulm, Neu",Augsburg,79.5\nAugsburg,"München",57\nBonn,Ulm,400\n')
    words = (str(where), "-n", "2", "--columns", "from,to,km", "--out", str(out), "--top", "2",
             "--source", "Ulm, Neu")
    written = []
    for rules in ([], ["--kill", "0@graph.compute:2", "--checkpoint", "1"]):
        result = command("sssp", *words, *rules)
        line = json.loads(result.stdout.splitlines()[-1])
        assert result.status == 0 and line["top"] == [["Ulm, Neu", 0.0], ["Augsburg", 79.5]], result
        assert "\nAugsburg  79.5\n" in result.stdout and line["vertices"] == 5, result
        assert result.stderr.count("roads.csv read as: directed, 5 vertices, ids are words") == 1
        written.append(out.read_text())
    assert written[0] == written[1] == (
        'vertex,value\n"Ulm, Neu",0.0\nAugsburg,79.5\nMünchen,136.5\nBonn,inf\nUlm,inf\n')
    result = command("cc", *words[:7])
    assert out.read_text().splitlines()[1:] == [
        '"Ulm, Neu","Ulm, Neu"', 'Augsburg,"Ulm, Neu"', 'München,"Ulm, Neu"', "Bonn,Bonn",
        "Ulm,Bonn"], result
    for more, told in ((("--source", "Rom"), "--source Rom: no vertex has that name"),
                       (("--columns", "from,x"), "no column x; there are from, to, km"),
                       (("--weighted", "--unweighted"), "give one of them")):
        result = command("sssp", *words, *more)
        assert result.status == 2 and told in result.stderr, result
